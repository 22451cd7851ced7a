package book

import (
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/dispatch/client"
	"github.com/leasehold/leasehold/dispatch/mail"
	"github.com/leasehold/leasehold/dispatch/manifest"
	"github.com/leasehold/leasehold/dispatch/server/tools"
	launched "github.com/leasehold/leasehold/dispatch/work"
	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/event"
	"github.com/leasehold/leasehold/kvstore"
	"github.com/leasehold/leasehold/layer"
	"github.com/leasehold/leasehold/queue"
	"github.com/leasehold/leasehold/registry"
)

var (
	contentionLike = regexp.MustCompile(`lease "[^"]*" held by actor`)
	contention     = regexp.MustCompile(`lease "([^"]*)" held by actor (<uuid>|[0-9a-f-]{36}) \(([^)]*)\), expires in (\d+)s`)
)

// What agents read when a lease is held is a fixed text. Wherever a page quotes
// it, the code says the same.
func TestContentionText(t *testing.T) {
	quoted := 0
	for _, p := range pages(t) {
		for _, l := range p.lines {
			matches := contention.FindAllStringSubmatch(l.text, -1)
			if like := contentionLike.FindAllString(l.text, -1); len(like) != len(matches) {
				t.Errorf("%s:%d: this is not how contention reads: %s", p.file, l.n, l.text)
			}
			for _, m := range matches {
				quoted++
				secs, err := strconv.Atoi(m[4])
				if err != nil {
					t.Fatal(err)
				}
				id := uuid.Max
				if m[2] != "<uuid>" {
					id = uuid.MustParse(m[2])
				}
				held := &registry.HeldError{Lease: registry.Lease{
					Key: m[1], Holder: registry.Holder{Actor: id, Path: m[3]},
					Times: registry.Times{ExpiresIn: time.Duration(secs)*time.Second - time.Millisecond}, // rounded up
				}}
				if want := strings.ReplaceAll(held.Error(), uuid.Max.String(), "<uuid>"); m[0] != want {
					t.Errorf("%s:%d:\n  says %s\n  code %s", p.file, l.n, m[0], want)
				}
			}
		}
	}
	if quoted == 0 {
		t.Error("no page quotes it")
	}
}

// refusals are the errors that become each code.
var refusals = []error{
	&registry.HeldError{Lease: registry.Lease{Reason: "tests", Key: "file:src/**"}, Asked: "file:src/app.ts"},
	&registry.WaitError{HeldError: registry.HeldError{Lease: registry.Lease{Reason: "tests", Key: "file:src/**"}, Asked: "file:src/app.ts"}},
	&registry.DeadlockError{Cycle: make([]registry.Link, 2)},
	registry.ErrNotHolder,
	&registry.LostError{Notice: registry.Notice{SupersededBy: "W2", Regained: 7}},
	registry.ErrRequestIDReused,
	&registry.LimitError{}, &registry.LimitError{TooLarge: true},
	&registry.ArgumentError{},
	&kvstore.VersionError{},
	&layer.ForbiddenError{},
	&launched.BudgetError{},
	&dispatch.DrainingError{},
	dispatch.ErrNoLauncher,
	dispatch.ErrNotFound,
	dispatch.ErrUnauthenticated,
	&dispatch.EndedError{By: "root", Held: make([]launched.LeaseName, 1)},
	&queue.StaleError{Task: queue.Task{State: queue.Ready}},
	&registry.StaleError{TokenStanding: registry.TokenStanding{Held: true, Lease: registry.Lease{Key: "x/**"}}},
	&event.CompactedError{},
	engine.ErrFailed,
	engine.ErrFull,
	errors.New("anything else"),
}

// The page of refusals lists each code, with the data that it carries.
func TestCodes(t *testing.T) {
	want := make(map[string][]string)
	for _, err := range refusals {
		r := tools.RefusalOf(err)
		data := slices.AppendSeq(want[r.Code], maps.Keys(r.Data)) // several errors may become one code
		slices.Sort(data)
		want[r.Code] = slices.Compact(data)
	}
	text, err := os.ReadFile(filepath.Join("..", "dispatch", "server", "tools", "reply.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`r\.Code(?:, r\.Data)? = "([A-Z_]+)"`).FindAllSubmatch(text, -1) {
		if _, ok := want[string(m[1])]; !ok {
			t.Errorf("this test knows no error that becomes %s", m[1])
		}
	}

	have := make(map[string][]string)
	for _, cells := range table(t, "book/src/refusals.md", "code") {
		data := []string{}
		for _, name := range spans(cells[1]) {
			data = append(data, strings.TrimSuffix(name, "?"))
		}
		slices.Sort(data)
		have[spans(cells[0])[0]] = data
	}
	for code, data := range want {
		if got, ok := have[code]; !ok {
			t.Errorf("refusals.md does not list %s", code)
		} else if !slices.Equal(got, data) {
			t.Errorf("refusals.md gives %s the data %v, the code %v", code, got, data)
		}
	}
	for code := range have {
		if _, ok := want[code]; !ok {
			t.Errorf("refusals.md lists %s, which nothing answers", code)
		}
	}
}

// So it does the fields of a notice.
func TestNoticeFields(t *testing.T) {
	var want, have []string
	for _, f := range reflect.VisibleFields(reflect.TypeFor[tools.Notice]()) {
		if !f.IsExported() {
			continue // it is for the text
		}
		name, rest, _ := strings.Cut(f.Tag.Get("json"), ",")
		if strings.HasPrefix(rest, "omit") {
			name += "?"
		}
		want = append(want, name)
	}
	for _, cells := range table(t, "book/src/refusals.md", "field") {
		have = append(have, spans(cells[0])...)
	}
	if !slices.Equal(have, want) {
		t.Errorf("refusals.md lists %v, a notice has %v", have, want)
	}
}

// The numbers that the pages give for limits are those of the code.
func TestLimits(t *testing.T) {
	limits := kvstore.New(nil, nil, uuid.Nil, kvstore.Limits{}).Limits()
	want := map[string]string{
		"shortest TTL":                                fmt.Sprintf("%d s", registry.MinTTL/time.Second),
		"longest TTL":                                 fmt.Sprintf("%d s", registry.MaxTTL/time.Second),
		"TTL if none is asked for":                    fmt.Sprintf("%d s", registry.DefaultTTL/time.Second),
		"longest wait in one call":                    fmt.Sprintf("%d s", registry.MaxWait/time.Second),
		"a place is kept between two calls":           fmt.Sprintf("%d s", registry.ParkTime/time.Second),
		"a free key is reserved, once for each place": fmt.Sprintf("%d s", registry.ReserveTime/time.Second),
		"leases of one actor":                         fmt.Sprint(registry.DefaultLeasesPerActor),
		"one message":                                 fmt.Sprintf("%d KiB", mail.MaxText>>10),
		"unread messages of one actor":                fmt.Sprint(mail.MaxUnread),
		"of those, from one sender":                   fmt.Sprint(mail.MaxFrom),
		"losses kept for one actor":                   fmt.Sprint(registry.MaxUntold),
		"key of a run's lease":                        fmt.Sprintf("%d bytes", registry.MaxKey),
		"reason of a lease, a revoke or a pause":      fmt.Sprintf("%d bytes", registry.MaxReason),
		"reason of a nack, or of an actor's end":      fmt.Sprintf("%d bytes", queue.MaxReason),
		"name of a sub-agent (`as`)":                  fmt.Sprintf("%d bytes", registry.MaxParty),
		"leases in one request":                       fmt.Sprint(registry.MaxWants),
		"leases that one write requires":              fmt.Sprint(registry.MaxRequirements),
		"request_id":                                  fmt.Sprintf("%d bytes", registry.MaxRequestID),
		"path or glob":                                fmt.Sprintf("%d bytes", kvstore.MaxPath),
		"name of an actor":                            fmt.Sprintf("%d bytes", layer.MaxName),
		"one value":                                   fmt.Sprintf("%d MiB", limits.ValueBytes>>20),
		"all paths and values of a layer":             fmt.Sprintf("%d MiB", limits.Bytes>>20),
		"entries of a layer":                          fmt.Sprint(limits.Entries),
		"entries in one listing":                      fmt.Sprint(kvstore.MaxList),
		"elements of a list that an agent asks for, unless one has more": fmt.Sprintf("%d KiB", kvstore.MaxListBytes>>10),
		"depth of the tree":          fmt.Sprint(4),
		"message to the daemon":      "4 MiB",
		"waiters for one lease":      fmt.Sprint(1000),
		"waits of one actor at once": fmt.Sprint(100),
		"leases that may share the keys or directories of a request": fmt.Sprint(registry.MaxBelow),
		"leases and places that a search for a deadlock looks at":    fmt.Sprint(registry.MaxSearched),
		"prompt of an actor":                     fmt.Sprintf("%d KiB", launched.MaxPrompt>>10),
		"environment of an actor":                fmt.Sprintf("%d KiB", launched.MaxEnv>>10),
		"result of an actor":                     fmt.Sprintf("%d KiB", launched.MaxResult>>10),
		"timeout of an actor":                    fmt.Sprintf("%d days", launched.MaxTimeout/(24*time.Hour)),
		"payload of a task":                      fmt.Sprintf("%d MiB", queue.MaxPayload>>20),
		"result of a task":                       fmt.Sprintf("%d MiB", queue.MaxResult>>20),
		"name of a queue":                        "64 bytes",
		"idempotency_key":                        fmt.Sprintf("%d bytes", queue.MaxKey),
		"attempts of a task":                     fmt.Sprint(queue.MaxAttempts),
		"attempts (default)":                     fmt.Sprint(queue.DefaultAttempts),
		"delay of a task":                        fmt.Sprintf("%d days", queue.MaxDelay/(24*time.Hour)),
		"queues in one claim":                    fmt.Sprint(queue.MaxQueues),
		"tasks in one claim, enqueue or submit":  fmt.Sprint(queue.MaxCount),
		"payloads of several tasks in one claim": fmt.Sprintf("%d KiB", queue.MaxClaimBytes>>10),
		"claims that wait at a queue":            fmt.Sprint(queue.DefaultWaitsPerQueue),
		"claims of one actor that wait":          fmt.Sprint(queue.DefaultWaitsPerActor),
		"queues of a run that have tasks":        fmt.Sprint(queue.DefaultQueuesPerRun),
		"of those, begun by one actor":           fmt.Sprint(queue.DefaultQueuesPerActor),
		"unfinished tasks of a queue":            fmt.Sprintf("%d million", queue.DefaultTasks/1_000_000),
		"payloads of those":                      fmt.Sprintf("%d GiB", queue.DefaultBytes>>30),
		"tasks in one redrive":                   fmt.Sprint(queue.MaxRedrive),
	}
	have := make(map[string]string)
	for _, cells := range table(t, "book/src/limits.md", "what") {
		have[cells[0]] = cells[1]
	}
	for what, limit := range want {
		if have[what] != limit {
			t.Errorf("limits.md says %q is %q, the code %q", what, have[what], limit)
		}
	}
	for what := range have {
		if _, ok := want[what]; !ok {
			t.Errorf("limits.md has a limit that nothing checks: %q", what)
		}
	}
	for line := range strings.Lines(manifest.Reference()) {
		if timeout := fmt.Sprintf(" number, 0 to %.0f ", launched.MaxTimeout.Seconds()); strings.HasPrefix(line, "| `timeout_secs` ") && !strings.Contains(line, timeout) {
			t.Errorf("a manifest allows a timeout other than%s: %s", timeout, line)
		}
	}
}

// The access table of the page is what a daemon does.
func TestAccessTable(t *testing.T) {
	rows := table(t, "book/src/store.md", "path")
	if len(rows) != 4 {
		t.Fatalf("the access table has %d rows", len(rows))
	}
	synctest.Test(t, func(t *testing.T) {
		d := newDaemon(t)
		defer d.stop()
		lead := d.actor(dispatch.NewActor{Name: "lead", Role: dispatch.Root})
		owner := d.actor(dispatch.NewActor{Name: "W1", Role: dispatch.Worker})
		other := d.actor(dispatch.NewActor{Name: "W2", Role: dispatch.Worker})
		for _, c := range []*client.Client{lead, owner, other} {
			defer c.Close()
		}
		columns := []*client.Client{lead, owner, other}
		at := map[string]string{"ref": "/ref/x", "peer": "/peer/W1/x", "shared": "/shared/x", "leases": "/leases/x"}
		for _, cells := range rows {
			path := at[strings.Split(spans(cells[0])[0], "/")[1]]
			for i, c := range columns {
				cell := strings.TrimSpace(cells[i+1])
				if cell == "–" {
					continue
				}
				read := d.call(c, "kv_get", args{"path": path}).code == ""
				write := d.call(c, "kv_set", args{"path": path, "value": 1}).code == ""
				override := d.call(c, "kv_set", args{"path": path, "value": 1, "override": true}).code == ""
				says := map[string][3]bool{
					"nothing":                           {false, false, false},
					"read":                              {true, false, false},
					"write":                             {true, true, true},
					"read; write with `override: true`": {true, false, true},
				}
				want, ok := says[cell]
				if have := [3]bool{read, write, override}; !ok || have != want {
					t.Errorf("%s, column %d: the table says %q, the daemon reads, writes, overrides: %v", path, i+1, cell, have)
				}
			}
		}
	})
}

// The configurations of clients parse, and the README shows the same ones as
// the book.
func TestClientConfigurations(t *testing.T) {
	files, err := filepath.Glob("clients/*")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("src/clients.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(filepath.Ext(file), "json") && !json.Valid(text) {
			t.Errorf("%s is not JSON", file)
		}
		if !strings.Contains(string(page), "<!-- from ../"+filepath.ToSlash(file)+" -->") {
			t.Errorf("clients.md does not show %s", file)
		}
		bookAlone := strings.Contains(file, "-http") || slices.Contains([]string{"block.md", "claude-code-permissions.json", "codex-hooks.json", "copilot-hooks.json", "qwen.json", "kimi.json", "kimi-hooks.toml", "crush.json", "continue.yaml", "cursor.json", "vscode.json"}, filepath.Base(file))
		if !bookAlone && !strings.Contains(string(readme), strings.TrimSpace(string(text))) {
			t.Errorf("the README does not show %s as it is", file)
		}
	}
}

// The README's recording is of a real run. What it shows of contention is what the
// code says now, and the one who waits gets the lease.
func TestRecordingShowsContention(t *testing.T) {
	b, err := os.ReadFile("src/recording.svg")
	if err != nil {
		t.Fatal(err)
	}
	picture := html.UnescapeString(string(b))
	m := regexp.MustCompile(`(\w+) waits for run lease "report.txt", held by (\w+)`).FindStringSubmatch(picture)
	if m == nil {
		t.Fatal("nobody waits; run just recording")
	}
	for _, want := range []string{m[2] + " no longer holds run lease", m[1] + ` holds run lease "report.txt", token`, "after a wait", "3 succeeded"} {
		if !strings.Contains(picture, want) {
			t.Errorf("the recording does not show %q; run just recording", want)
		}
	}
}

// The page of events has every kind there is.
func TestEventsPageHasEveryKind(t *testing.T) {
	page, err := os.ReadFile("src/events.md")
	if err != nil {
		t.Fatal(err)
	}
	for kind := range event.Kinds() {
		if !strings.Contains(string(page), "`"+kind.String()+"`") {
			t.Errorf("events.md does not have %s", kind)
		}
	}
}

// table reads the rows of the table of a page whose first heading is first.
func table(t *testing.T, file, first string) (rows [][]string) {
	t.Helper()
	in := false
	for _, l := range read(t, file).lines {
		cells := strings.Split(strings.Trim(strings.ReplaceAll(l.text, `\|`, "¦"), "| "), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		switch {
		case !strings.HasPrefix(l.text, "|"):
			in = false
		case cells[0] == first:
			in = true
		case in && !strings.HasPrefix(cells[0], "---"):
			rows = append(rows, cells)
		}
	}
	if len(rows) == 0 {
		t.Fatalf("%s has no table of %q", file, first)
	}
	return rows
}

// spans are the code spans of a cell.
func spans(cell string) (words []string) {
	for _, span := range codeSpan.FindAllString(cell, -1) {
		words = append(words, strings.Trim(span, "`"))
	}
	return words
}

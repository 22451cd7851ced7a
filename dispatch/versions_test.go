package dispatch_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/uuid"

	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/dispatch/work"
	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/layer"
	"github.com/leasehold/leasehold/queue"
	"github.com/leasehold/leasehold/registry"
)

var keepState = flag.String("keep-state", "", "write testdata/states of this version, and testdata/formats.txt")

// keepsakes are what a client has of a state that is kept: it is in the archive.
type keepsakes struct {
	Handle, LeadHandle string
	PID, LeadPID       int
	Held               uuid.UUID // a lease of the worker
	Task               uuid.UUID // that the worker has claimed
	Token              uint64
}

// States of earlier versions, of a daemon that was stopped and of one that was
// killed, open with all they had; and their clients go on where they were.
func TestStatesOfEarlierVersionsOpen(t *testing.T) {
	if *keepState != "" {
		keep(t, *keepState)
	}
	archives, err := filepath.Glob("testdata/states/*.tgz")
	if err != nil || len(archives) < 2 {
		t.Fatalf("there are %d states: %v", len(archives), err)
	}
	for _, archive := range archives {
		t.Run(strings.TrimSuffix(filepath.Base(archive), ".tgz"), func(t *testing.T) {
			text, err := os.ReadFile(archive)
			if err != nil {
				t.Fatal(err)
			}
			synctest.Test(t, func(t *testing.T) {
				fs := vfs.NewCrashableMem()
				k := unpack(t, fs, text)
				h := &house{t: t, opts: dispatch.Options{}}
				for pid := range launcherPID + 1 {
					h.alive.Store(pid, true)
				}
				at(h, fs, func(h *house) {
					version, _, _ := strings.Cut(filepath.Base(archive), "-")
					want, err := os.ReadFile(filepath.Join("testdata", "states", version+".txt"))
					if got := h.describe(); err != nil || got != string(want) {
						t.Errorf("it has\n%s\nand not\n%s%v", got, want, err)
					}
					h.goOn(k)
				})
			})
		})
	}
}

// goOn lets the clients of a kept state come back.
func (h *house) goOn(k keepsakes) {
	t, ctx := h.t, h.t.Context()
	worker := h.connect(dispatch.Credentials{Handle: k.Handle}, k.PID)
	lead := h.connect(dispatch.Credentials{Handle: k.LeadHandle}, k.LeadPID)
	if !worker.Resumed() || !lead.Resumed() {
		t.Error("a session did not last")
	}
	notices, _, err := worker.TakeNotices(ctx, "", dispatch.Model)
	if err != nil || !slices.ContainsFunc(notices, func(n registry.Notice) bool { return n.Key == "build" && n.Kind == registry.Loss }) {
		t.Errorf("notices: %+v %v", notices, err)
	}
	messages, _, err := worker.TakeMessages(ctx, "")
	if err != nil || len(messages) != 1 || messages[0].Text != "are you done?" {
		t.Errorf("messages: %+v %v", messages, err)
	}
	if _, err := worker.Renew(ctx, "", k.Held, 2*time.Minute); err != nil {
		t.Errorf("renew: %v", err)
	}
	tasks, err := worker.Tasks()
	if err != nil {
		t.Fatal(err)
	}
	done, err := tasks.Submit(ctx, queue.Submission{ID: k.Task, Token: k.Token, State: queue.Completed})
	if err != nil || done.State != queue.Completed {
		t.Errorf("submit: %v %v", done.State, err)
	}
	claimed, err := tasks.Claim(ctx, queue.Claim{Queues: []string{"compile"}, TTL: time.Minute})
	if err != nil || len(claimed) != 1 || string(claimed[0].Payload) != `"ready"` || claimed[0].Token <= k.Token {
		t.Errorf("claim: %+v %v", claimed, err)
	}
	if held, err := lead.Acquire(ctx, dispatch.RunScope, registry.Request{Key: "deploy"}); err != nil || !held.Reentrant {
		t.Errorf("re-entry: %+v %v", held, err)
	} else if _, _, err := lead.Release(ctx, "", held.ID); err != nil {
		t.Error(err)
	}
	if g := h.take(worker, dispatch.RunScope, "deploy", time.Minute); g.Token <= k.Token {
		t.Errorf("token %d is not above %d", g.Token, k.Token)
	}
}

// describe says what is in a state.
func (h *house) describe() string {
	t, ctx := h.t, h.t.Context()
	var b strings.Builder
	say := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	runs, err := h.Runs(ctx, "")
	must(err)
	for _, r := range runs {
		say("run %s", r.Name)
		for _, a := range r.Actors {
			say("  actor %s (%s, %s) ended %v (%s) sessions %d", a.Path, a.Name, a.Role, !a.EndedAt.IsZero(), a.EndCause, a.Sessions)
			if w := a.Work; w != nil {
				say("    work %s agent %s spent %v cause %q", w.Status, w.Agent, w.Spent, w.Cause)
			}
		}
		page, err := h.RunLeases(ctx, r.Name, "", dispatch.LeaseQuery{Scopes: []dispatch.Scope{dispatch.RunScope, dispatch.LayerScope}})
		must(err)
		for _, l := range page.Leases {
			say("  lease %s %q %s by %s %q ttl %v kept alive %v: %q", l.Scope, l.Key, l.Mode(), l.Holder.Path, l.Holder.Party, l.TTL, l.KeepAlive, l.Reason)
			for _, w := range l.Waiters {
				say("    waits: %s", w.Holder.Path)
			}
		}
		for _, lead := range []string{"", "S1"} {
			view, err := h.RunStore(ctx, r.Name, lead)
			if err != nil {
				continue // it has no such lead
			}
			list, err := view.List(ctx, layer.Listing{Glob: "/**", Values: true})
			must(err)
			for _, e := range list.Entries {
				if !strings.HasPrefix(e.Path.String(), "/leases/") {
					say("  entry %s%s version %d by %s: %d bytes, %.20s", lead, e.Path, e.Version, e.UpdatedBy, len(e.Value), e.Value)
				}
			}
		}
		tasks, err := h.RunTasks(ctx, r.Name)
		must(err)
		for state := queue.Delayed; state <= queue.Cancelled; state++ {
			list, _, err := tasks.List(ctx, "compile", state, "", 100)
			if errors.Is(err, queue.ErrNoQueue) {
				break // the run has no tasks
			}
			must(err)
			for _, task := range list {
				d, err := tasks.Get(ctx, task.ID)
				must(err)
				say("  task %s %s priority %d attempt %d of %d key %q by %s: %d bytes", d.State, d.Payload, d.Priority, d.Attempt, d.MaxAttempts, d.Key, d.EnqueuedBy, len(d.Result))
				for _, a := range d.Attempts {
					say("    by %s, %q", a.Path, a.Cause)
				}
			}
		}
		events, err := h.RunEvents(ctx, r.Name, dispatch.EventQuery{})
		must(err)
		kinds := make(map[string]int)
		for _, e := range events.Events {
			kinds[e.Kind.String()]++
		}
		for _, kind := range slices.Sorted(maps.Keys(kinds)) {
			say("  event %s %d", kind, kinds[kind])
		}
	}
	return b.String()
}

// keep writes the states of the version that this is going to be.
func keep(t *testing.T, version string) {
	inHouse(t, dispatch.Options{}, func(t *testing.T, h *house) {
		k := h.fill()
		text := h.describe()
		killed := h.fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(1, 1))})
		h.close()
		stopped := h.fs.CrashClone(vfs.CrashCloneCfg{})
		h.open() // for who closes it
		write := func(name string, b []byte) {
			if err := os.WriteFile(filepath.Join("testdata", "states", name), b, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		write(version+".txt", []byte(text))
		write(version+"-stopped.tgz", pack(t, stopped, k))
		write(version+"-killed.tgz", pack(t, killed, k))
	})
	if err := os.WriteFile(formatsFile, []byte(formats(t)), 0o644); err != nil {
		t.Fatal(err)
	}
}

// fill puts something of each kind into a state.
func (h *house) fill() keepsakes {
	t, ctx := h.t, h.t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := h.AddActor(ctx, dispatch.NewActor{Run: "old", Name: "lead", Role: dispatch.Root}); err != nil {
		t.Fatal(err)
	}
	must(h.EndActor(ctx, "old", "root", "done"))

	tr := h.dispatch(work.Settings{Limits: work.Limits{BudgetUSD: 10}})
	tr.start()
	tr.spawn("root", dispatch.Spawn{Role: dispatch.Sublead, BudgetUSD: new(4.0)})
	tr.spawn("root", dispatch.Spawn{Role: dispatch.Worker, Name: "crashed"})
	tr.start()
	tr.spawn("S1", dispatch.Spawn{Role: dispatch.Worker})
	tr.spawn("S1", dispatch.Spawn{Role: dispatch.Worker})
	tr.start()
	tr.exit("crashed", work.Exit{Status: work.Failed, Cost: money(1)})
	must(tr.cast["S1→W2"].Report(ctx, json.RawMessage(`{"tests": 12}`)))
	tr.exit("S1→W2", work.Exit{Status: work.Succeeded, Cost: money(2)})
	root, lead, worker := tr.cast["root"], tr.cast["S1"], tr.cast["S1→W1"]

	acquire := func(se *dispatch.Session, scope dispatch.Scope, req registry.Request) registry.Grant {
		t.Helper()
		g, err := se.Acquire(ctx, scope, req)
		must(err)
		return g
	}
	acquire(root, dispatch.RunScope, registry.Request{Key: "deploy", TTL: time.Hour, KeepAlive: true, Reason: "a release"})
	acquire(root, dispatch.RunScope, registry.Request{Key: "docs", TTL: time.Minute, Shared: true})
	acquire(lead, dispatch.RunScope, registry.Request{Key: "docs", TTL: time.Minute, Shared: true, Holder: lead.As("reviewer")})
	acquire(lead, dispatch.LayerScope, registry.Request{Key: "output.json", TTL: time.Minute, RequestID: "once"})
	acquire(worker, dispatch.RunScope, registry.Request{Key: "build", TTL: time.Minute})
	held := acquire(worker, dispatch.RunScope, registry.Request{Key: "schema", TTL: time.Minute})
	if _, err := worker.Acquire(ctx, dispatch.RunScope, registry.Request{Key: "deploy", TTL: time.Minute, Wait: time.Second}); !errors.As(err, new(*registry.WaitError)) {
		t.Fatal(err)
	}
	_, err := root.Revoke(ctx, dispatch.Revocation{Scope: dispatch.RunScope, Key: "build", Reason: "it hangs"})
	must(err)
	_, err = worker.Transfer(ctx, held.ID, "S1")
	must(err)
	h.send(root, "S1→W1", "are you done?")

	store := func(se *dispatch.Session, path, value string) {
		t.Helper()
		view, err := se.Store(ctx, dispatch.SelfLayer)
		must(err)
		_, err = view.Set(ctx, layer.Write{Path: path, Value: json.RawMessage(value)})
		must(err)
	}
	store(root, "/ref/plan", `{"step": 1}`)
	store(root, "/ref/plan", `{"step": 2}`)
	store(root, "/shared/large", `"`+strings.Repeat("x", 8<<10)+`"`)
	store(worker, "/peer/self/found", `[1, 2]`)

	tasks, err := worker.Tasks()
	must(err)
	enqueue := func(n queue.NewTask) {
		t.Helper()
		n.Queue = "compile"
		_, err := tasks.Enqueue(ctx, n)
		must(err)
	}
	claim := func() queue.Claimed {
		t.Helper()
		list, err := tasks.Claim(ctx, queue.Claim{Queues: []string{"compile"}, TTL: time.Minute})
		must(err)
		return list[0]
	}
	for state, result := range map[queue.State]string{queue.Completed: `"fine"`, queue.Failed: `"` + strings.Repeat("e", 2000) + `"`} {
		enqueue(queue.NewTask{Payload: json.RawMessage(`"to finish"`)})
		c := claim()
		_, err := tasks.Submit(ctx, queue.Submission{ID: c.ID, Token: c.Token, State: state, Result: json.RawMessage(result)})
		must(err)
	}
	enqueue(queue.NewTask{Payload: json.RawMessage(`"to die"`), MaxAttempts: 1})
	c := claim()
	_, err = tasks.Nack(ctx, c.ID, c.Token, nil, "it cannot be")
	must(err)
	enqueue(queue.NewTask{Payload: json.RawMessage(`"under way"`), Key: "k"})
	c = claim()
	enqueue(queue.NewTask{Payload: json.RawMessage(`"ready"`), Priority: 9})
	enqueue(queue.NewTask{Payload: json.RawMessage(`"later"`), Delay: time.Hour})
	enqueue(queue.NewTask{Payload: json.RawMessage(`"on a day"`), RunAt: time.Now().Add(24 * time.Hour)})
	cancelled, err := tasks.Enqueue(ctx, queue.NewTask{Queue: "compile", Payload: json.RawMessage(`"cancelled"`)})
	must(err)
	_, err = tasks.Cancel(ctx, cancelled.ID)
	must(err)
	return keepsakes{
		Handle: worker.Handle(), LeadHandle: root.Handle(), PID: tr.pid["S1→W1"], LeadPID: tr.pid["root"],
		Held: held.ID, Task: c.ID, Token: c.Token,
	}
}

const keepsakesFile = "keepsakes.json"

func pack(t *testing.T, fs vfs.FS, k keepsakes) []byte {
	var b bytes.Buffer
	z, _ := gzip.NewWriterLevel(&b, gzip.BestCompression)
	w := tar.NewWriter(z)
	add := func(name string, text []byte) {
		err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Size: int64(len(text))})
		if _, writeErr := w.Write(text); errors.Join(err, writeErr) != nil {
			t.Fatal(err, writeErr)
		}
	}
	text, _ := json.Marshal(k)
	add(keepsakesFile, text)
	names, err := fs.List("state")
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(names)
	for _, name := range names {
		if name == "reserve" { // of room on the disk
			continue
		}
		f, err := fs.Open(fs.PathJoin("state", name))
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(f)
		if err := errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
		add(name, text)
	}
	if err := errors.Join(w.Close(), z.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func unpack(t *testing.T, fs vfs.FS, archive []byte) (k keepsakes) {
	z, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		t.Fatal(err)
	}
	if err := fs.MkdirAll("state", 0o700); err != nil {
		t.Fatal(err)
	}
	r := tar.NewReader(z)
	for {
		header, err := r.Next()
		if err == io.EOF {
			return k
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err == nil && header.Name == keepsakesFile {
			err = json.Unmarshal(text, &k)
		} else if err == nil {
			var f vfs.File
			if f, err = fs.Create(fs.PathJoin("state", header.Name), "a kept state"); err == nil {
				_, err = f.Write(text)
				err = errors.Join(err, f.Sync(), f.Close())
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// A state that a later version has written is refused, and stays as it is.
func TestAStateOfALaterVersionIsRefused(t *testing.T) {
	inHouse(t, dispatch.Options{}, func(t *testing.T, h *house) {
		is := h.plantText("format", fmt.Sprint(dispatch.Format+1))
		_, err := dispatch.Open(t.Context(), h.eng, h.opts)
		if !errors.Is(err, engine.ErrNewer) {
			t.Errorf("error: %v", err)
		}
		h.plantText("format", "much")
		if _, err := dispatch.Open(t.Context(), h.eng, h.opts); !errors.Is(err, engine.ErrCorrupt) {
			t.Errorf("error: %v", err)
		}
		if is != fmt.Sprint(dispatch.Format) {
			t.Errorf("a new state has format %q", is)
		}
		h.plantText("format", is)
	})
}

// plantText replaces the value of a row.
func (h *house) plantText(key, value string) (was string) {
	h.t.Helper()
	err := h.eng.Update(h.t.Context(), func(tx engine.Tx) error {
		row, _ := tx.Get(key)
		was = row.Value
		tx.Put(engine.Row{Key: key, Value: value})
		return nil
	})
	if err != nil {
		h.t.Fatal(err)
	}
	return was
}

const formatsFile = "testdata/formats.txt"

var formatConst = regexp.MustCompile(`(?m)^(?:const |\t)(\w*[fF]ormat|formatVersion|recordVersion|beatVersion|marksVersion) += (\d+)`)

// formats lists the numbers of formats that the packages of a state have.
func formats(t *testing.T) string {
	t.Helper()
	var list strings.Builder
	list.WriteString(fmt.Sprintln("Format", dispatch.Format))
	for _, dir := range []string{"../engine/call", "../engine/event", "../engine/memory", "../engine/pebble", "../kvstore", "../queue", "../registry", "mail"} {
		files, err := filepath.Glob(dir + "/*.go")
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %v", dir, err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range formatConst.FindAllSubmatch(text, -1) {
				list.WriteString(fmt.Sprintf("%s %s %s\n", strings.TrimPrefix(dir, "../"), m[1], m[2]))
			}
		}
	}
	return list.String()
}

func TestFormatRisesWithTheFormats(t *testing.T) {
	was, err := os.ReadFile(formatsFile)
	if now := formats(t); err != nil || now != string(was) {
		t.Errorf(`formats have changed, from
%s
to
%s
Read the earlier ones too, and raise Format, if a version with them was released: see Versions in the package doc.
Then keep the state of the version to come: just keep-state VERSION. %v`, was, now, err)
	}
}

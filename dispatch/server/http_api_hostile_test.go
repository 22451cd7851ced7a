package server_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/dispatch/server"
	"github.com/leasehold/leasehold/dispatch/server/api"
)

var (
	apiRequests = flag.Int("api.requests", 10000, "random requests to the API; 600 at most with -short")
	apiSeed     = flag.Uint64("api.seed", 0, "of the random requests; 0: another each time")
)

// Whatever a request is made of, it is answered as the document says: by an answer that
// fits its schema, or a refusal with a code. Nothing is a fault of the daemon, and none
// of it keeps another from being served.
func TestAPIAnswersAnyRequestAsTheDocumentSays(t *testing.T) {
	seed := *apiSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-api.seed %d", seed)
	synctest.Test(t, func(t *testing.T) {
		one := newProgram(t, newWeb(t, server.Options{})).open()
		p := &prober{program: one, rnd: rand.New(rand.NewPCG(seed, 1)), seen: make(map[string]map[int]int)}
		p.readOperations()
		for _, role := range []dispatch.Role{dispatch.Operator, dispatch.Reader} {
			_, token, err := one.state.IssueAccess(t.Context(), "the-"+string(role), role, 0)
			if err != nil {
				t.Fatal(err)
			}
			p.tokens = append(p.tokens, token)
		}
		p.tokens = append(p.tokens, one.token, one.another("w2").token)
		p.learn("POST", "/leases", `{"key":"known","ttl_secs":3600}`)
		p.learn("POST", "/queues/q/tasks", `{"payload":1}`)
		p.learn("POST", "/tasks/next", `{"queues":["q"],"ttl_secs":3600}`)
		for range requests() {
			p.probe()
			if t.Failed() {
				return
			}
		}
		// In a run of its own, because an operator among them may have ended and removed r.
		bystander := one.actor(dispatch.NewActor{Run: "nobody-guessed-it", Name: "root", Role: dispatch.Root})
		began := time.Now()
		bystander.want(201, "POST", "/leases", `{"key":"mine"}`)
		if took := time.Since(began); took > time.Second {
			t.Errorf("after all that, another waits %v", took)
		}
		answered := make(map[int]int)
		for id, statuses := range p.seen {
			for status, n := range statuses {
				answered[status] += n
			}
			// With arguments of all kinds each operation is refused sometimes, and most do something.
			if len(statuses) < 2 && *apiRequests >= 20000 {
				t.Errorf("%s only ever answered %v", id, statuses)
			}
		}
		t.Logf("%d requests of %d operations: %v", requests(), len(p.operations), answered)
		for _, status := range []int{200, 201, 400, 401, 403, 404} {
			if answered[status] == 0 {
				t.Errorf("nothing was answered %d: the requests are too tame", status)
			}
		}
	})
}

// requests is how many random requests a test makes. The race detector is slow, and
// what it looks for is the same in the first few hundred.
func requests() int {
	if testing.Short() {
		return min(*apiRequests, 600)
	}
	return *apiRequests
}

// An operation is one of the document.
type operation struct {
	method, path string
	id           string
	parameters   []apiParameter
	body         *jsonschema.Schema
}

type apiParameter struct {
	Name, In string
	Required bool
	Schema   *jsonschema.Schema
}

// A prober makes requests.
type prober struct {
	*program
	rnd        *rand.Rand
	operations []operation
	tokens     []string
	known      []any // values from answers, to be found again
	seen       map[string]map[int]int
	told       func(answer string) // is given each answer, if it is not nil
}

func (p *prober) readOperations() {
	var doc struct {
		Paths map[string]map[string]struct {
			OperationID string
			Parameters  []apiParameter
			RequestBody struct {
				Content map[string]struct{ Schema *jsonschema.Schema }
			}
		}
	}
	if err := json.Unmarshal(api.Document(""), &doc); err != nil {
		p.t.Fatal(err)
	}
	for _, path := range slices.Sorted(maps.Keys(doc.Paths)) {
		for _, method := range slices.Sorted(maps.Keys(doc.Paths[path])) {
			o := doc.Paths[path][method]
			if strings.HasSuffix(path, "/stream") || strings.HasSuffix(path, "/notices") {
				continue // a stream has no end
			}
			p.operations = append(p.operations, operation{strings.ToUpper(method), strings.TrimPrefix(path, api.Prefix), o.OperationID, o.Parameters, o.RequestBody.Content["application/json"].Schema})
		}
	}
}

// learn makes a request whose answer has values that others can use.
func (p *prober) learn(method, path, body string) {
	p.t.Helper()
	p.keep(p.ask(method, path, body).object)
}

// keep remembers the values of an answer.
func (p *prober) keep(v any) {
	switch v := v.(type) {
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			p.keep(v[name])
		}
	case []any:
		for _, item := range v {
			p.keep(item)
		}
	case string, float64:
		if len(p.known) < 500 {
			p.known = append(p.known, v)
		} else {
			p.known[p.rnd.IntN(len(p.known))] = v
		}
	}
}

func pick[T any](p *prober, list ...T) T { return list[p.rnd.IntN(len(list))] }

// probe makes one random request.
func (p *prober) probe() {
	o := pick(p, p.operations...)
	path, query, header := o.path, url.Values{}, make(http.Header)
	for _, a := range o.parameters {
		value := fmt.Sprint(p.value(a.Schema, 0))
		switch {
		case a.In == "path":
			if value == "" || value == "." || value == ".." || strings.ContainsAny(value, "\x00") {
				value = "x"
			}
			path = strings.ReplaceAll(path, "{"+a.Name+"}", url.PathEscape(value))
		case a.Name == "Leasehold-Session":
			if a.Required || p.rnd.IntN(2) == 0 {
				header.Set(a.Name, pick(p, p.session, p.session, p.session, headerText(value)))
			}
		case a.In == "header" && p.rnd.IntN(6) == 0:
			header.Set(a.Name, headerText(value))
		case a.In == "query" && (a.Required && p.rnd.IntN(10) > 0 || p.rnd.IntN(3) == 0):
			query.Set(a.Name, value)
		}
	}
	if p.rnd.IntN(20) == 0 {
		query.Add(pick(p, "nothing", "key", "limit", "layer"), pick(p, "", "1", "\x00", "→"))
	}
	body := ""
	if o.body != nil {
		b, err := json.Marshal(p.value(o.body, 0))
		if err != nil {
			p.t.Fatal(err)
		}
		body = p.spoil(string(b))
	}
	header.Set("Authorization", "Bearer "+p.tokenFor(o))
	switch p.rnd.IntN(60) {
	case 0:
		header.Set("Authorization", pick(p, "", "Bearer", "Bearer lh_none", "Basic Og==", strings.Repeat("x", 5000)))
	case 1:
		header.Set("Content-Type", pick(p, "text/plain", "application/json; charset=\"", "multipart/form-data", "\x7f"))
	case 2:
		header.Set("Origin", pick(p, "http://evil.example", "null", "%%%"))
	case 3:
		header.Set("Accept", pick(p, "text/html", "image/*;q=0"))
	}
	if o.id == "session_end" && p.rnd.IntN(10) > 0 {
		return // else most requests have no session
	}
	p.send(o, path, query, header, body)
}

func (p *prober) tokenFor(o operation) string {
	if strings.Contains(o.path, "/runs") || strings.Contains(o.path, "/tokens") {
		return pick(p, p.tokens[0], p.tokens[0], p.tokens[1], p.tokens[2])
	}
	return pick(p, p.token, p.token, p.token, p.token, p.tokens[3], p.tokens[0])
}

func (p *prober) send(o operation, path string, query url.Values, header http.Header, body string) {
	target := path
	if len(query) > 0 {
		target += "?" + query.Encode()
	}
	r, err := http.NewRequestWithContext(p.t.Context(), o.method, "http://localhost"+api.Prefix+target, strings.NewReader(body))
	if err != nil {
		return // no client would send it
	}
	r.Header = header
	askFirst(r)
	resp, err := p.client.Do(r)
	if err != nil {
		if strings.Contains(err.Error(), "invalid header field") {
			return
		}
		p.t.Fatalf("%s %s %q: %v", o.method, target, body, err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	a := answer{status: resp.StatusCode, header: resp.Header, body: string(b)}
	said := fmt.Sprintf("%s %s %v %.2000q\n%d %s", o.method, target, header, body, a.status, b)
	if len(b) > 0 {
		if err := json.Unmarshal(b, &a.object); err != nil {
			p.t.Fatalf("no JSON: %s", said)
		}
	}
	if p.told != nil {
		p.told(string(b))
	}
	if a.status >= 500 {
		p.t.Errorf("a fault: %s", said)
	}
	p.book.check(p.t, o.method, resp.Request.URL.EscapedPath()[len(api.Prefix):], a)
	if p.t.Failed() {
		p.t.Log(said)
	}
	if p.seen[o.id] == nil {
		p.seen[o.id] = make(map[int]int)
	}
	p.seen[o.id][a.status]++
	switch {
	case o.id == "session_open" && a.status == http.StatusCreated: // their number is bounded
		r, _ := http.NewRequestWithContext(p.t.Context(), "DELETE", "http://localhost"+api.Prefix+"/session", http.NoBody)
		r.Header.Set("Authorization", header.Get("Authorization"))
		r.Header.Set("Leasehold-Session", a.text("session"))
		if resp, err := p.client.Do(r); err != nil || resp.StatusCode != http.StatusNoContent {
			p.t.Errorf("end a session: %v %v", resp, err)
		}
	case a.status < 300:
		p.keep(a.object)
	case a.status == http.StatusNotFound && resp.Header.Get("Leasehold-Session") == "ended" && header.Get("Leasehold-Session") == p.session && header.Get("Authorization") == "Bearer "+p.token:
		p.session = ""
		p.open()
	}
}

func headerText(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return 'x'
		}
		return r
	}, s)
}

// value is one for a schema: mostly one that fits, or is known from an answer.
func (p *prober) value(s *jsonschema.Schema, depth int) any {
	if s == nil || p.rnd.IntN(25) == 0 || depth > 5 {
		return p.odd()
	}
	if len(p.known) > 0 && p.rnd.IntN(3) == 0 {
		for range 10 {
			switch v := pick(p, p.known...).(type) {
			case string:
				if s.Type == "string" && s.Enum == nil {
					return v
				}
			case float64:
				if s.Type == "integer" || s.Type == "number" {
					return v
				}
			}
		}
	}
	switch {
	case len(s.Enum) > 0:
		return pick(p, s.Enum...)
	case s.Type == "string":
		return pick(p, "x", "known", "q", "/shared/a", "/shared/**", "r", "root", "w", "main", "a b", "→", "11111111-1111-1111-1111-111111111111", strings.Repeat("y", p.rnd.IntN(600)))
	case s.Type == "integer", s.Type == "number":
		low, high := 0.0, 10.0
		if s.Minimum != nil {
			low = *s.Minimum
		}
		if s.Maximum != nil {
			high = *s.Maximum
		}
		return pick(p, low, low, high, float64(int(low+(high-low)*p.rnd.Float64())))
	case s.Type == "boolean":
		return p.rnd.IntN(2) == 0
	case s.Type == "array":
		list := []any{}
		for range p.rnd.IntN(4) {
			list = append(list, p.value(s.Items, depth+1))
		}
		return list
	case s.Type == "object":
		object := make(map[string]any)
		for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
			if slices.Contains(s.Required, name) && p.rnd.IntN(20) > 0 || p.rnd.IntN(4) == 0 {
				object[name] = p.value(s.Properties[name], depth+1)
			}
		}
		if p.rnd.IntN(20) == 0 {
			object[pick(p, "no_such", "", "→", "__proto__")] = p.odd()
		}
		return object
	}
	return pick[any](p, 1, "text", nil, map[string]any{"a": []any{1, 2}})
}

// odd is a value that fits nothing.
func (p *prober) odd() any {
	deep := any("bottom")
	for range p.rnd.IntN(100) {
		deep = []any{deep}
	}
	return pick[any](p, nil, true, -1, 1e300, 0.1, "", "\x00", "\u202e", strings.Repeat("z", 5000), "../../etc/passwd", "/leases/../x", "' OR 1=1 --", "${jndi:x}",
		json.RawMessage(`18446744073709551616`), json.RawMessage(`1e999`), json.RawMessage(`-0`), []any{}, map[string]any{"": nil}, deep)
}

// spoil makes some bodies ones that no encoder makes.
func (p *prober) spoil(body string) string {
	switch p.rnd.IntN(40) {
	case 0:
		return body[:p.rnd.IntN(len(body)+1)]
	case 1:
		return body + body
	case 2:
		return "[" + body + "]"
	case 3:
		return strings.Replace(body, `"`, "\"\xff", 1)
	case 4:
		return strings.Replace(body, "{", `{"key":1,"key":2,`, 1)
	case 5:
		return ""
	case 6:
		return strings.Repeat("[", 20000)
	case 7:
		return strings.Repeat(" ", 5<<20)
	}
	return body
}

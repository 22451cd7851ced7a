package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// A scenario is what the model of one agent does. The agent's prompt has it, so the
// model needs no state: how far it has come is how many results it was shown.
type scenario struct {
	ID    string // under which what it reads is kept
	Steps []step
}

// A step is what the model does at once.
type step struct {
	Gate    string // until the test opens it, the model thinks
	Ops     []op
	Refused []step // what it does then if it was refused

	// Compacted is the script with which the model goes on, if there is one: with this step its
	// context is full, its client asks for a summary, and the summary is this script alone.
	Compacted *scenario
}

// An op is one call of a tool, in no client's words.
type op struct {
	Tool string         // write, edit, read, sh, agent, wait (for agents), or a tool of leasehold's
	Args map[string]any // path and text; path, old and new; path; command; prompt; else the tool's own
}

func one(tool string, args map[string]any) step { return step{Ops: []op{{tool, args}}} }

// when is a step that waits for the test to open a gate.
func when(gate string, s step) step {
	s.Gate = gate
	return s
}

const scriptMark = "SCRIPT "

func (s scenario) prompt() string {
	return "Follow the script.\n" + scriptMark + encoded(s) + "\n"
}

// refusedRE is in an answer that refuses: leasehold's, or of a client that finds a
// file changed since it has read it.
var refusedRE = regexp.MustCompile(`held by actor|modified since|been modified`)

// next is the step to do after these results, of which it takes those of the steps
// before it; nil if there is none.
func next(steps []step, results *[]string) *step {
	for i := range steps {
		s := &steps[i]
		if len(*results) < len(s.Ops) {
			return s
		}
		own := (*results)[:len(s.Ops)]
		*results = (*results)[len(s.Ops):]
		if slices.ContainsFunc(own, refusedRE.MatchString) {
			if s := next(s.Refused, results); s != nil {
				return s
			}
		}
	}
	return nil
}

// A model speaks the protocols of all clients, and does what scripts say.
type model struct {
	*httptest.Server
	t *testing.T

	mu    sync.Mutex
	heard map[string]turn // what an agent's model has read last, by its script
	gates map[string]chan struct{}
	full  map[string]string // the summary that is asked for next, by script
	came  chan struct{}     // closed and replaced when heard changes

	calls atomic.Int64
}

func newModel(t *testing.T) *model {
	m := &model{t: t, heard: map[string]turn{}, gates: map[string]chan struct{}{}, full: map[string]string{}, came: make(chan struct{})}
	m.Server = httptest.NewServer(m)
	t.Cleanup(m.Close)
	return m
}

// A turn is a request for the model's next step, in no protocol's words.
type turn struct {
	text    string   // all that was said to it
	results []string // of its calls
	tools   []object // that it was offered, as its protocol has them
	over    bool     // it has nothing more to do
}

// of is what the model of a script has read.
func (m *model) of(id string) turn {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.heard[id]
}

// await is what the model of a script has read, once it has n results.
func (m *model) await(t *testing.T, id string, n int) turn {
	t.Helper()
	for {
		m.mu.Lock()
		heard, came := m.heard[id], m.came
		m.mu.Unlock()
		if len(heard.results) >= n && heard.tools != nil {
			return heard
		}
		select {
		case <-came:
		case <-t.Context().Done():
			t.Fatalf("%s has %d results of %d: %q", id, len(heard.results), n, heard.results)
		}
	}
}

// callID is a new id for a call: to a client and to leasehold, the same id is the same call,
// also if it is another sub-agent's.
func (m *model) callID(kind string) string { return fmt.Sprint(kind, "_", m.calls.Add(1)) }

// gate is closed once models may pass it.
func (m *model) gate(name string) chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.gates[name] == nil {
		m.gates[name] = make(chan struct{})
	}
	return m.gates[name]
}

func (m *model) open(gate string) { close(m.gate(gate)) }

// A move is what the model does: it calls tools, or else says something.
type move struct {
	ops    []op
	say    string
	tokens int // which all that it has read takes
}

// fullTokens are more than those with which a client asks for a summary.
const fullTokens = 990_000

// next is what the model does now; with the last script, if its conversation has several.
func (m *model) next(r *http.Request, in turn) move {
	done := move{say: "done", tokens: 1}
	at := strings.LastIndex(in.text, "\n"+scriptMark)
	if at < 0 {
		return done // a question of the client's own, such as for a title
	}
	rest := in.text[at+1+len(scriptMark):]
	var s scenario
	if err := json.NewDecoder(strings.NewReader(rest)).Decode(&s); err != nil {
		m.t.Errorf("a script that cannot be read: %v in %.300s", err, rest)
		return done
	}
	m.mu.Lock()
	summary := m.full[s.ID]
	delete(m.full, s.ID)
	m.mu.Unlock()
	if summary != "" {
		return move{say: summary, tokens: 1}
	}
	if len(in.tools) == 0 {
		return done
	}
	left := slices.Clone(in.results)
	do := next(s.Steps, &left)
	in.over = do == nil
	m.mu.Lock()
	m.heard[s.ID] = in
	close(m.came)
	m.came = make(chan struct{})
	m.mu.Unlock()
	if in.over {
		return done
	}
	if do.Gate != "" {
		select {
		case <-m.gate(do.Gate):
		case <-r.Context().Done(): // its client is gone
		}
	}
	for _, o := range do.Ops {
		for name, value := range o.Args {
			if re := readBefore[name]; re != nil && value == theLast {
				delete(o.Args, name)
				var all []string
				for _, found := range re.FindAllStringSubmatch(strings.Join(in.results, "\n"), -1) {
					all = append(all, found[1])
				}
				switch {
				case name == "agents":
					o.Args[name] = all
				case len(all) > 0:
					o.Args[name] = all[len(all)-1]
				}
			}
		}
	}
	if do.Compacted == nil {
		return move{ops: do.Ops, tokens: 1}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.full[s.ID] = do.Compacted.prompt()
	return move{ops: do.Ops, tokens: fullTokens}
}

// theLast stands for what the model has read last of what an argument takes.
const theLast = "THE LAST"

var readBefore = map[string]*regexp.Regexp{
	"lease_id": regexp.MustCompile(`lease_id[":\s]+([0-9a-f-]{36})`),
	"ticket":   regexp.MustCompile(`ticket[":\s]+([0-9a-f-]{36})`),
	"as":       regexp.MustCompile(`again with as \\*"([^"\\]+)`),
	"agents":   regexp.MustCompile(`agent_id[":\s]+([0-9a-f-]{36})`), // of Codex, all of them
}

// textOf is all text in a value of JSON that is a message's content.
func textOf(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case []any:
		var all []string
		for _, one := range v {
			all = append(all, textOf(one))
		}
		return strings.Join(all, "\n")
	case map[string]any:
		for _, name := range []string{"text", "output", "content", "error"} {
			if _, ok := v[name]; ok {
				return textOf(v[name])
			}
		}
		text, _ := json.Marshal(v)
		return string(text)
	}
	return ""
}

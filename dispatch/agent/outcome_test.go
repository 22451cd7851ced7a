package agent_test

import (
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"

	"github.com/leasehold/leasehold/dispatch/agent"
)

// The output of each client is read as the client documents it, for success and
// failure.
func TestOutcomeOfEachClient(t *testing.T) {
	for _, c := range []struct{ what, client, out, want string }{
		{
			"claude's result is the last line of its stream", agent.Claude,
			`{"type":"system","subtype":"init"}` + "\n" + `{"type":"assistant","message":{"content":[{"type":"text","text":"no"}]}}` + "\n" +
				`{"type":"result","subtype":"success","is_error":false,"result":"done","total_cost_usd":0.127}` + "\n",
			`"done" $0.127`,
		},
		{"claude may print that line alone", agent.Claude, `{"type":"result","subtype":"success","is_error":false,"result":"done","total_cost_usd":0}`, `"done" $0`},
		{
			"claude's structured output is a result of its own", agent.Claude,
			`{"type":"result","subtype":"success","result":"","structured_output":{"ok":true},"total_cost_usd":1}`, `"" {"ok":true} $1`,
		},
		{"claude was not logged in", agent.Claude, `{"type":"result","subtype":"success","is_error":true,"result":"Not logged in","total_cost_usd":0}`, `"Not logged in" $0 failed: Not logged in`},
		{"claude ran out of budget", agent.Claude, `{"type":"result","subtype":"error_max_budget_usd","is_error":true,"total_cost_usd":5.01,"errors":["Reached maximum budget ($5)"]}`, `"" $5.01 failed: Reached maximum budget ($5)`},
		{"claude was killed amid a line", agent.Claude, `{"type":"system","subtype":"init"}` + "\n" + `{"type":"resu`, `""`},
		{
			"codex's result is its last message", agent.Codex,
			`{"type":"thread.started","thread_id":"x"}` + "\n" + `{"type":"item.completed","item":{"id":"item_0","type":"agent_message","text":"first"}}` + "\n" +
				`{"type":"item.completed","item":{"id":"item_1","type":"command_execution","command":"ls","aggregated_output":"","exit_code":0}}` + "\n" +
				`{"type":"item.completed","item":{"id":"item_2","type":"agent_message","text":"done"}}` + "\n" + `{"type":"turn.completed","usage":{"input_tokens":1}}`,
			`"done"`,
		},
		{
			"codex got over a lost connection", agent.Codex,
			`{"type":"error","message":"Reconnecting... 2/5"}` + "\n" + `{"type":"item.completed","item":{"type":"agent_message","text":"done"}}` + "\n" + `{"type":"turn.completed"}`,
			`"done"`,
		},
		{"codex failed", agent.Codex, `{"type":"error","message":"Reconnecting... 5/5"}` + "\n" + `{"type":"turn.failed","error":{"message":"stream disconnected"}}`, `"" failed: stream disconnected`},
		{"gemini's answer is one object after some words", agent.Gemini, "Loaded cached credentials.\n{\n  \"response\": \"done\",\n  \"stats\": {\n    \"models\": {}\n  }\n}\n", `"done"`},
		{"gemini failed", agent.Gemini, "{\n  \"session_id\": \"x\",\n  \"error\": {\n    \"type\": \"Error\",\n    \"message\": \"Please set an Auth method\",\n    \"code\": 41\n  }\n}\n", `"" failed: Please set an Auth method`},
		{
			"opencode's answer is its last message, its cost that of all steps", agent.OpenCode,
			`{"type":"text","part":{"messageID":"m1","text":"first"}}` + "\n" + `{"type":"step_finish","part":{"cost":0.25}}` + "\n" +
				`{"type":"text","part":{"messageID":"m2","text":"so"}}` + "\n" + `{"type":"text","part":{"messageID":"m2","text":"done"}}` + "\n" + `{"type":"step_finish","part":{"cost":0.5}}`,
			`"so\ndone" $0.75`,
		},
		{"opencode failed", agent.OpenCode, `{"type":"error","error":{"name":"ProviderAuthError","data":{"providerID":"x","message":"no key"}}}`, `"" failed: no key`},
		{"opencode says it otherwise", agent.OpenCode, `{"type":"error","error":"no key"}`, `"" failed: it reports an error`},
		{"none of them", agent.Claude, "Segmentation fault\n", `""`},
	} {
		if got := said(builtIn(t, c.client).Outcome(strings.NewReader(c.out))); got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.what, got, c.want)
		}
	}
}

// A profile can say where its result and its cost are.
func TestOutcomeByPointer(t *testing.T) {
	const out = "starting\n{\"a\": 1}\nlog {\n{\"answer\": {\"text\": \"done\", \"list\": [1, {\"x/y~z\": 2}]}, \"usd\": 0.5}\nbye\n"
	for _, c := range []struct{ result, cost, out, want string }{
		{"", "", " one\ntwo \n\n", `"one\ntwo"`},
		{"output", "/usd", out, fmt.Sprintf("%q $0.5", strings.TrimSpace(out))},
		{"/answer/text", "/usd", out, `"done" $0.5`},
		{"/answer/list", "", out, `"[1, {\"x/y~z\": 2}]" [1, {"x/y~z": 2}]`},
		{"/answer/list/1/x~1y~0z", "", out, `"2" 2`},
		{"/nowhere", "/answer", "so what\n{}\n", `"so what\n{}"`},
		{"/a", "/usd", "{\n  \"a\": [\n    {\n\"b\": 1}\n  ],\n  \"usd\": -1\n}\n", `"[\n    {\n\"b\": 1}\n  ]" [` + "\n    {\n\"b\": 1}\n  ]"},
		{"/a", "", "", `""`},
	} {
		p := agent.Profile{Command: []string{"x"}, Result: c.result, Cost: c.cost}.Over("mine")
		if got := said(p.Outcome(strings.NewReader(c.out))); got != c.want {
			t.Errorf("%s and %s in %q:\n got %s\nwant %s", c.result, c.cost, c.out, got, c.want)
		}
	}
	// The client's own format applies, except for what the profile says.
	p := agent.Profile{Extends: agent.Claude, Result: "/structured_output/verdict"}.Over("mine")
	line := `{"type":"result","subtype":"success","result":"text","structured_output":{"verdict":"good"},"total_cost_usd":2}` + "\n"
	if got, want := said(p.Outcome(strings.NewReader(line))), `"good" $2`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func said(o agent.Outcome) string {
	s := fmt.Sprintf("%q", o.Result)
	if o.ResultJSON != nil {
		s += " " + string(o.ResultJSON)
	}
	if o.CostUSD != nil {
		s += fmt.Sprintf(" $%v", *o.CostUSD)
	}
	if o.Failed != "" {
		s += " failed: " + o.Failed
	}
	return s
}

// However much an agent prints, and however long the lines are, reading it
// takes a few megabytes, and the result has a limit.
func TestOutcomeIsBounded(t *testing.T) {
	const size = 12 << 20
	end := "\n" + `{"type":"result","subtype":"success","result":"` + strings.Repeat("ä", agent.MaxResult) + `","total_cost_usd":1}` + "\n"
	for what, unit := range map[string]string{
		"one line": "{xxxxxxxxxxxxxxx", "many lines": "{\"type\": \"" + strings.Repeat("y", 100) + "\"}\n", "braces": "{ of no object\n",
	} {
		for _, name := range []string{agent.Claude, agent.Gemini} {
			in := io.MultiReader(&repeated{unit: unit, left: size}, strings.NewReader(end))
			runtime.GC()
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			o := builtIn(t, name).Outcome(in)
			runtime.ReadMemStats(&after)
			if len(o.Result) > agent.MaxResult || name != agent.Gemini && len(o.Result) == 0 {
				t.Errorf("%s of %s: %d bytes are kept", name, what, len(o.Result))
			}
			if strings.ContainsRune(o.Result, '\uFFFD') {
				t.Errorf("%s of %s: a character is cut", name, what)
			}
			if name == agent.Claude && (o.CostUSD == nil || *o.CostUSD != 1) {
				t.Errorf("%s of %s: the last line is not read", name, what)
			}
			if grown := int64(after.HeapSys) - int64(before.HeapSys); grown > 64<<20 {
				t.Errorf("%s of %s: the heap has grown by %d MiB", name, what, grown>>20)
			}
		}
	}
}

// repeated is a reader that returns unit again and again.
type repeated struct {
	unit string
	at   int
	left int
}

func (r *repeated) Read(b []byte) (n int, err error) {
	if r.left <= 0 {
		return 0, io.EOF
	}
	for n < len(b) {
		c := copy(b[n:], r.unit[r.at:])
		n += c
		r.at = (r.at + c) % len(r.unit)
	}
	r.left -= n
	return n, nil
}

func TestFaults(t *testing.T) {
	for _, name := range agent.BuiltIns() {
		p := builtIn(t, name)
		if name == agent.Command {
			p.Command = []string{"x"}
		}
		if faults := p.Faults(); faults != nil {
			t.Errorf("%s: %v", name, faults)
		}
	}
	if _, ok := agent.BuiltIn("aider"); ok {
		t.Error("aider is a built-in")
	}
	for want, p := range map[string]agent.Profile{
		`[{extends "aider" is no built-in profile: it is one of claude, codex, gemini, opencode, command}]`:                                                      {Extends: "aider", Command: []string{"x"}},
		`[{command must name a program, as in command = ["./agent.sh"]}]`:                                                                                        {},
		`[{prompt is "stdin", and the profile has {prompt} as well: keep one of them}]`:                                                                          {Command: []string{"x", "{prompt}"}, Prompt: "stdin"},
		`[{extends codex takes its MCP configuration as flags, which the profile makes: remove {mcp_config}}]`:                                                   {Extends: "codex", Args: []string{"{mcp_config}"}},
		`[{env LEASEHOLD_RUN is set by leasehold itself: choose another name} {env "a=b" cannot be the name of a variable}]`:                                     {Command: []string{"x"}, Env: map[string]string{"a=b": "", "LEASEHOLD_RUN": ""}},
		`[{args has more than 131071 bytes in one argument, which no process can be given} {env A is longer than a process takes (131071 bytes with its name)}]`: {Command: []string{"x"}, Args: []string{strings.Repeat("x", 131_072)}, Env: map[string]string{"A": strings.Repeat("x", 131_070), "B": strings.Repeat("x", 131_069)}},
		`[{result "answer" must be "output" or a JSON pointer, which begins with /} {cost "usd" must be a JSON pointer, which begins with /}]`:                   {Command: []string{"x"}, Result: "answer", Cost: "usd"},
	} {
		if got := fmt.Sprint(p.Over("mine").Faults()); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

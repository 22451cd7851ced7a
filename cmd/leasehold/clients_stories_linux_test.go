package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tiktoken-go/tokenizer"
)

type args = map[string]any

// All clients at once: each writes to a file, and then to that of the next, which
// is refused before anything happens; its model reads who has it, until when, and
// what to do.
func (b *bench) areKeptApart() {
	var agents []*agent
	guarded := b.guarded()
	mine := func(i int) string { return guarded[i%len(guarded)] + ".txt" }
	for i, client := range guarded {
		theirs := b.path(mine(i + 1))
		agents = append(agents, b.start(client, scenario{ID: client, Steps: []step{
			one("write", args{"path": b.path(mine(i)), "text": "written by " + client + "\n"}),
			when("all have written", one("read", args{"path": theirs})),
			one("edit", args{"path": theirs, "old": "written", "new": "changed"}),
			one("run_lease_acquire", args{"key": "file:" + mine(i)}),
			when("all have read", one("sh", args{"command": "true"})),
		}}))
	}
	for _, a := range agents {
		a.await(1)
	}
	b.model.open("all have written")
	for _, a := range agents {
		a.await(4)
	}
	b.model.open("all have read")
	for i, a := range agents {
		b.t.Run(a.client, func(t *testing.T) {
			b := *b
			b.t, a.b = t, &b
			heard := a.wait()
			if got := b.read(mine(i)); got != "written by "+a.client+"\n" {
				t.Errorf("its file is %q", got)
			}
			if len(heard.results) < 4 {
				return
			}
			next := map[string]string{"claude": "claude-code", "codex": "codex", "gemini": "gemini-cli", "opencode": "opencode", "copilot": "copilot-cli", "qwen": "qwen-c", "kimi": "kimi", "crush": "crush"}[guarded[(i+1)%len(guarded)]]
			b.wants("its model", heard.results[2], `lease "file:`+mine(i+1)+`" held by actor`, "("+next, "expires in ", "is not changed", "wait_secs 50")
			if own := heard.results[3]; !strings.Contains(own, "already yours") && !strings.Contains(own, `"reentrant":true`) {
				t.Errorf("the file that it has written to is not its session's: %q", own)
			}
			t.Log(passedOn(t, heard.tools))
		})
	}
}

// passedOn says what a client passes on of the list of tools to its model.
func passedOn(t *testing.T, tools []object) string {
	codec, err := tokenizer.Get(tokenizer.O200kBase)
	if err != nil {
		t.Fatal(err)
	}
	n, tokens, all := 0, 0, ""
	var others []string
	for _, tool := range tools {
		text := encoded(tool)
		if inside, ok := tool["tools"].([]any); ok && strings.Contains(text, `"mcp__leasehold"`) { // Codex has them in a namespace
			n += len(inside) - 1
		} else if !strings.Contains(text, "leasehold_") && !strings.Contains(text, "leasehold-") { // as their names begin
			if tool["name"] == nil {
				others = append(others, fmt.Sprint(tool["type"]))
			}
			continue
		}
		count, err := codec.Count(text)
		if err != nil {
			t.Fatal(err)
		}
		n, tokens, all = n+1, tokens+count, all+text
	}
	var said strings.Builder
	said.WriteString(fmt.Sprintf("its model has %d tools, %d of leasehold, which are %d tokens", len(tools), n, tokens))
	for _, word := range []string{"minimum", "default", "additionalProperties", "outputSchema"} {
		said.WriteString(fmt.Sprintf(", %d times %s", strings.Count(all, `"`+word+`"`), word))
	}
	if n == 0 {
		said.WriteString("; they are found through " + strings.Join(others, ", "))
	}
	return said.String()
}

// One client holds what others ask for: they are refused, wait, time out, keep
// their places, and get it in the order in which they first asked.
func (b *bench) contend() {
	contend := func(t *testing.T, clients ...string) {
		b := b.in(t)
		var agents []*agent
		gate := func(format string, a ...any) string { return t.Name() + clients[0] + fmt.Sprintf(format, a...) }
		for i, client := range clients {
			steps := []step{
				one("sh", args{"command": "true"}), // once all have started, nobody's place is kept for too long
				when(gate("ask %d", i), one("run_lease_acquire", args{"key": "deploy"})),
				one("run_lease_acquire", args{"key": "deploy", "wait_secs": 1}),
				when(gate("again %d", i), one("run_lease_acquire", args{"key": "deploy", "wait_secs": 50, "ticket": theLast})),
				one("sh", args{"command": fmt.Sprintf("echo %d >> %s", i, b.path("order"))}),
				one("run_lease_release", args{"lease_id": theLast}),
			}
			if i == 0 {
				steps = []step{one("run_lease_acquire", args{"key": "deploy", "ttl_secs": 600}), when(gate("again 0"), one("run_lease_release", args{"lease_id": theLast}))}
			}
			agents = append(agents, b.start(client, scenario{ID: gate("%d", i), Steps: steps}))
		}
		for _, a := range agents {
			a.await(1)
		}
		for i, a := range agents[1:] {
			b.model.open(gate("ask %d", i+1))
			read := a.await(3)[1:]
			b.wants(a.client, read[0], `lease "deploy" held by actor`, "expires in ")
			b.wants(a.client, read[1], "ticket", "position", "held by actor")
		}
		for i := len(agents) - 1; i > 0; i-- {
			b.model.open(gate("again %d", i))
		}
		b.untilWaiting("deploy", len(agents)-1)
		b.model.open(gate("again 0"))
		var want strings.Builder
		for i, a := range agents {
			a.wait()
			if i > 0 {
				want.WriteString(fmt.Sprintln(i))
			}
		}
		if got := b.read("order"); got != want.String() && !b.lapsed("deploy") {
			t.Errorf("it was granted in the order %q", got)
		}
	}
	for i, one := range clientNames {
		for _, other := range clientNames[i+1:] {
			b.t.Run(one+" and "+other, func(t *testing.T) { contend(t, one, other); contend(t, other, one) })
		}
	}
	// In the pairs each has held and has waited, so one order of all is enough.
	b.t.Run("all", func(t *testing.T) { contend(t, clientNames...) })
}

// lapsed checks by the daemon's record that whoever is first in line for a key gets it,
// and reports whether somebody lost a place for not asking again, which may be so where
// the machine is too slow for it: after no less than placeKept.
func (b *bench) lapsed(key string) (lapsed bool) {
	b.t.Helper()
	const placeKept = 30 * time.Second
	type place struct {
		path string
		at   time.Time
	}
	var line []place
	for text := range strings.Lines(b.call("history", key, "--json")) {
		var e struct {
			Event, Path string
			At          time.Time
		}
		if err := json.Unmarshal([]byte(text), &e); err != nil {
			b.t.Fatalf("%v: %s", err, text)
		}
		i := slices.IndexFunc(line, func(p place) bool { return p.path == e.Path })
		switch e.Event {
		case "lease_waiting":
			line = append(line, place{e.Path, e.At})
		case "lease_handed_over":
			if i != 0 {
				b.t.Errorf("%s got it, and was number %d of %v in line", e.Path, i, line)
			}
		case "lease_wait_ended":
			if kept := e.At.Sub(line[i].at); kept < placeKept {
				b.t.Errorf("the place of %s was kept for %v", e.Path, kept)
			}
			lapsed = true
		}
		if i >= 0 {
			line = slices.Delete(line, i, i+1)
		}
	}
	return lapsed
}

// untilWaiting returns once so many wait for a key.
func (b *bench) untilWaiting(key string, n int) {
	b.t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		var list struct {
			Leases []struct {
				Key     string
				Waiters []struct{ Path string }
			}
		}
		text := b.call("leases", "--json")
		if err := json.Unmarshal([]byte(text), &list); err != nil {
			b.t.Fatalf("%v: %s", err, text)
		}
		for _, l := range list.Leases {
			if l.Key == key && len(l.Waiters) == n {
				return
			}
		}
	}
	b.t.Errorf("there are never %d who wait for %s: %s", n, key, b.call("leases"))
}

// Two sub-agents of one client exclude each other, from a file and from a key.
func (b *bench) haveSubAgents() {
	for _, client := range b.guarded() {
		if client == "crush" { // whose sub-agents only read
			continue
		}
		b.t.Run(client, func(t *testing.T) {
			t.Parallel()
			b := b.in(t)
			id := func(who string) string { return client + " " + who }
			named := 0 // how many calls it takes to name itself
			one1 := scenario{ID: id("one"), Steps: []step{
				one("write", args{"path": b.path("file"), "text": "one\n"}),
				one("run_lease_acquire", args{"key": "port"}),
				when(id("end"), one("read", args{"path": b.path("file")})),
			}}
			two := scenario{ID: id("two"), Steps: []step{
				when(id("two"), one("read", args{"path": b.path("file")})),
				one("edit", args{"path": b.path("file"), "old": "one", "new": "two"}),
				one("run_lease_acquire", args{"key": "port"}),
			}}
			if client == "qwen" { // whose hook refuses a call of a sub-agent that does not name itself
				name := func(steps []step) []step {
					last := slices.IndexFunc(steps, func(s step) bool { return s.Ops[0].Tool == "run_lease_acquire" })
					return slices.Insert(steps, last+1, one("run_lease_acquire", args{"key": "port", "as": theLast}))
				}
				one1.Steps, two.Steps, named = name(one1.Steps), name(two.Steps), 1
			}
			lead := scenario{ID: id("lead"), Steps: []step{{Ops: []op{{"agent", args{"prompt": one1.prompt()}}, {"agent", args{"prompt": two.prompt()}}}}}}
			if client == "codex" { // whose agents it waits for
				lead.Steps = append(lead.Steps, one("wait", args{"agents": theLast}))
			}
			a := b.start(client, lead)
			first := b.model.await(t, one1.ID, 2+named).results
			b.model.open(id("two"))
			read := b.model.await(t, two.ID, 3+named).results
			b.model.open(id("end"))
			a.wait()
			b.wants("the first", first[1+named], "lease_id")
			if client == "gemini" {
				b.saysNotWhichSubAgent("write_file", "replace")
				return
			}
			if client == "kimi" { // if that changes, its hook can keep them apart
				if got := b.read("file"); got != "two\n" {
					t.Errorf("Kimi Code tells its sub-agents apart: the file is %q", got)
				}
				return
			}
			b.wants("the second", read[1], `lease "file:file" held by actor`, "is not changed")
			b.wants("the second", read[2+named], `lease "port" held by actor`)
			if got := b.read("file"); got != "one\n" {
				t.Errorf("the file is %q", got)
			}
		})
	}
}

// saysNotWhichSubAgent checks that nothing in what Gemini CLI says to a hook tells two
// agents apart that use these tools: if that changes, the hook can.
func (b *bench) saysNotWhichSubAgent(one, other string) {
	b.t.Helper()
	files, err := filepath.Glob(filepath.Join(b.home, geminiSaid, "*"))
	if err != nil {
		b.t.Fatal(err)
	}
	of := map[string]object{}
	for _, file := range files {
		var in object
		said, err := os.ReadFile(file)
		if err := errors.Join(err, json.Unmarshal(said, &in)); err != nil {
			b.t.Fatalf("%v: %s", err, said)
		}
		if tool := fmt.Sprint(in["tool_name"]); in["cwd"] == b.dir && (tool == one || tool == other) {
			b.t.Logf("Gemini CLI says %s", said)
			delete(in, "tool_name")
			delete(in, "tool_input")
			delete(in, "timestamp")
			of[tool] = in
		}
	}
	if len(of) != 2 || !reflect.DeepEqual(of[one], of[other]) {
		b.t.Errorf("Gemini CLI tells its sub-agents apart: %v", of)
	}
}

// A message and the loss of a lease reach the model of each client at its next
// call of a tool, which is the client's own; that of Kimi Code when it ends its turn.
func (b *bench) areToldInTime() {
	for _, client := range b.guarded() {
		b.t.Run(client, func(t *testing.T) {
			t.Parallel()
			b := b.in(t)
			name := client + ".txt"
			id := "told " + client
			a := b.start(client, scenario{ID: id, Steps: []step{
				one("write", args{"path": b.path(name), "text": "x\n"}),
				when(id, one("read", args{"path": b.path(name)})),
				when(id+" again", one("read", args{"path": b.path("missing")})), // which fails
				one("sh", args{"command": "true"}),
				when(id+" at the end", one("sh", args{"command": "true"})),
			}})
			a.await(1)
			b.call("call", "actor_message", "to=holder of file:"+name, "text=are you done?")
			b.model.open(id)
			a.await(2)
			asked := []string{"are you done?", "another agent, not your user"}
			told := func(words ...string) {
				heard := b.model.of(id)
				b.wants(client, heard.text+strings.Join(heard.results, "\n"), words...)
			}
			if client != "kimi" {
				told(asked...)
			}
			b.call("revoke", "file:"+name, "--reason", "it is mine")
			b.model.open(id + " again")
			a.await(4)
			lost := `you lost lease "file:` + name
			if client != "kimi" {
				told(lost)
			}
			b.model.open(id + " at the end")
			a.wait()
			told(append(asked, lost)...)
		})
	}
}

// The model of a client that has compacted its conversation is told what it still holds.
// The model of a client that resumes one is told that it holds nothing of it.
func (b *bench) areToldWhatTheyHaveForgotten() {
	for _, client := range clientNames {
		b.t.Run(client, func(t *testing.T) {
			t.Parallel()
			b := b.in(t)
			id := "forgets " + client
			told := func(id, words string) {
				t.Helper()
				heard := b.model.of(id)
				if n := strings.Count(strings.ReplaceAll(heard.text+strings.Join(heard.results, "\n"), `\"`, `"`), words); n != 1 {
					t.Errorf("its model has read %d times that %s: %q in %s", n, words, heard.results, heard.text)
				}
			}
			use := one("sh", args{"command": "true"})
			s := scenario{ID: id, Steps: []step{one("run_lease_acquire", args{"key": "port"}), use}}
			if client != "gemini" { // which could not say so
				s.Steps[1].Compacted = &scenario{ID: id + " after", Steps: []step{use, use}}
			}
			a := b.start(client, s)
			if after := s.Steps[1].Compacted; after != nil {
				a.id = after.ID
			}
			a.wait()
			if a.id != id {
				told(a.id, `you still hold run lease "port"`)
			}
			again := scenario{ID: id + " again", Steps: []step{use, use, use, use}} // it may see results of before
			b.startWith(client, again, resumes[client]).wait()
			told(again.ID, "this conversation was resumed")
			if client == "opencode" { // a fork is a conversation that its own process has begun
				b := b.in(t)
				b.start(client, scenario{ID: id + " forked", Steps: []step{use}}).wait()
				again.ID += " as a fork"
				b.startWith(client, again, append(slices.Clone(resumes[client]), "--fork")).wait()
				told(again.ID, "this conversation was resumed")
			}
		})
	}
}

// A command that changes what another holds is reported to the client's model, also if
// the command fails.
func (b *bench) sayWhatACommandChanged() {
	for _, client := range b.guarded() {
		if client == "crush" { // which runs no hook after a command
			continue
		}
		b.t.Run(client, func(t *testing.T) {
			t.Parallel()
			b := b.in(t)
			id := client + " commands"
			held, release := b.path("held"), b.path("release")
			holder := exec.CommandContext(t.Context(), b.leasehold, "exec", "--path", b.path("theirs.txt"), "--", "sh", "-c", "touch "+held+"; until [ -e "+release+" ]; do sleep 0.1; done")
			holder.Dir, holder.Env = b.dir, b.env
			if err := holder.Start(); err != nil {
				t.Fatal(err)
			}
			defer holder.Wait()
			defer b.write(release, "")
			a := b.start(client, scenario{ID: id, Steps: []step{
				when(id, one("sh", args{"command": "echo well >> theirs.txt"})),
				one("sh", args{"command": "echo ill >> theirs.txt; exit 3"}),
				one("sh", args{"command": "true"}),
			}})
			for {
				if _, err := os.Stat(held); err == nil {
					break
				}
				time.Sleep(50 * time.Millisecond)
			}
			b.model.open(id)
			a.wait()
			if client == "kimi" { // which ignores what a hook says after a command
				b.wants("the operator", b.call("history", "file:theirs.txt"), "file_changed")
				return
			}
			heard := b.model.of(id)
			all := heard.text + strings.Join(heard.results, "\n")
			if n := strings.Count(all, "files changed that others have leased"); n != 2 {
				t.Errorf("its model has read of %d changes, and there were 2: %q", n, heard.results)
			}
		})
	}
}

// Whoever of them is killed, the others get what it held and go on, and the daemon
// that the first of them has started serves them all.
func (b *bench) surviveOneAnother() {
	for i, first := range clientNames {
		b.t.Run("first "+first, func(t *testing.T) {
			b := b.in(t)
			if b.daemon() != 0 {
				b.call("stop")
			}
			id := func(i int) string { return fmt.Sprintf("killed %s %d", first, i) }
			acquire := func(i int) scenario {
				return scenario{ID: id(i), Steps: []step{
					one("run_lease_acquire", args{"key": "deploy", "wait_secs": 50, "ttl_secs": 600}),
					when(id(i), one("write", args{"path": b.path("last"), "text": "done\n"})),
					one("run_lease_release", args{"lease_id": theLast}),
				}}
			}
			order := slices.Concat(clientNames[i:], clientNames[:i])
			holder := b.start(order[0], acquire(0))
			holder.await(1)
			daemon := b.daemon()
			for i, next := range order[1:] {
				a := b.start(next, acquire(i+1))
				b.untilWaiting("deploy", 1)
				holder.kill()
				b.wants(next, a.await(1)[0], "lease_id")
				holder = a
			}
			b.model.open(id(3))
			holder.wait()
			if got := b.read("last"); got != "done\n" {
				t.Errorf("the last has written %q", got)
			}
			if now := b.daemon(); now == 0 || now != daemon {
				t.Errorf("the daemon was process %d, and is %d", daemon, now)
			}
		})
	}
}

// A lead of each client launches a worker of every client and reads its result.
func (b *bench) lead() {
	for _, client := range clientNames {
		b.t.Run(client, func(t *testing.T) {
			b := b.in(t)
			id := func(who string) string { return client + " leads " + who }
			lead := scenario{ID: id(""), Steps: []step{{}, one("actor_wait", args{"actors": clientNames, "mode": "all", "wait_secs": 50}), one("actor_wait", args{"actors": clientNames, "mode": "all", "wait_secs": 50})}}
			for _, worker := range clientNames {
				s := scenario{ID: id(worker), Steps: []step{one("actor_report", args{"result": "said by " + worker + " for " + client})}}
				lead.Steps[0].Ops = append(lead.Steps[0].Ops, op{"spawn_worker", args{"name": worker, "agent": worker, "model": models[worker], "prompt": s.prompt()}})
			}
			manifest := fmt.Sprintf("[run]\nname = \"led-by-%s\"\n\n[agents.claude]\n[agents.codex]\n[agents.gemini]\n[agents.opencode]\n\n[root]\nagent = %q\nmodel = %q\nprompt = %s\n", client, client, models[client], encoded(lead.prompt()))
			b.write(b.path("tree.toml"), manifest)
			out := b.call("dispatch", b.path("tree.toml"))
			heard := b.model.of(lead.ID)
			if !heard.over {
				t.Errorf("the lead has not done all; it read %q\n%s", heard.results, out)
			}
			for _, worker := range clientNames {
				b.wants("the lead", strings.Join(heard.results, "\n"), "said by "+worker+" for "+client)
			}
		})
	}
}

// All clients at once change the same files, each line of them by one edit: none is
// lost. An agent edits without asking; if it is refused, it waits for the lease and
// does it again. It asks for the lease beside the edit to have what it gives back with
// the next, so an edit takes two turns of a model.
func (b *bench) loseNoUpdate() {
	files, agents := 4, 4
	if *clientEdits >= 200 {
		files, agents = 20, 10
	}
	edits := *clientEdits / agents                                                 // of each
	name := func(n, e int) string { return fmt.Sprintf("f%d.txt", (n+7*e)%files) } // each agent changes all of them
	for f := range files {
		b.write(b.path(name(f, 0)), "end\n")
	}
	var all sync.WaitGroup
	said := make([]string, agents)
	began := time.Now()
	for n := range agents {
		client := clientNames[n%len(clientNames)]
		s := scenario{ID: fmt.Sprintf("edits %s %d", client, n)}
		release := op{"run_lease_release", args{"lease_id": theLast}}
		for e := range edits {
			path := b.path(name(n, e))
			read := op{"read", args{"path": path}}
			edit := op{"edit", args{"path": path, "old": "end", "new": fmt.Sprintf("edit %d of %d\nend", e, n)}}
			ask := op{"run_lease_acquire", args{"key": "file:" + filepath.Base(path), "wait_secs": 50, "ttl_secs": 60}}
			look := step{Ops: []op{read}}
			if e > 0 {
				look.Ops = []op{release, read}
			}
			s.Steps = append(s.Steps, look, step{Ops: []op{edit, ask}, Refused: []step{{Ops: []op{ask}}, {Ops: []op{read}}, {Ops: []op{edit}}}})
		}
		s.Steps = append(s.Steps, step{Ops: []op{release}})
		a := b.start(client, s)
		all.Go(func() {
			refused := 0
			results := a.wait().results
			for _, result := range results {
				if strings.Contains(result, "is not changed") {
					refused++
				}
			}
			said[n] = fmt.Sprintf("%s %v, %d results, %d refused", client, time.Since(began).Round(time.Second), len(results), refused)
		})
	}
	all.Wait()
	b.t.Logf("%d edits of %d files by %d agents: %s", edits*agents, files, agents, strings.Join(said, "; "))
	for n := range agents {
		for e := range edits {
			if !strings.Contains(b.read(name(n, e)), fmt.Sprintf("edit %d of %d\n", e, n)) {
				b.t.Errorf("edit %d of agent %d, of %s, is lost", e, n, name(n, e))
			}
		}
	}
}

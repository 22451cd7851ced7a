package server_test

import (
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/dispatch/process"
	"github.com/leasehold/leasehold/dispatch/server"
)

// A writer is a client that writes and reads messages.
type writer struct {
	*peer
	id int
}

// ask calls a tool, and gives the text and the object that it answers.
func (w *writer) ask(tool, arguments string) (text, object string) {
	w.t.Helper()
	w.id++
	w.call(w.id, tool, arguments)
	m := w.receive()
	if m.Error != nil {
		w.t.Fatalf("%s %s: %+v", tool, arguments, m.Error)
	}
	return whole(m), string(m.Result.StructuredContent)
}

// whole is the text with the JSON below its line.
func whole(m message) string { return m.Result.Content[0].Text }

// tells checks that text and object each have a message once or, with no words, none.
func tells(t *testing.T, what, text, object string, words ...string) {
	t.Helper()
	if len(words) == 0 && strings.Contains(text+object, "message_id") {
		t.Errorf("%s tells of a message: %s %s", what, text, object)
	}
	for _, word := range words {
		if strings.Count(text, word) != 1 || strings.Count(object, word) != 1 {
			t.Errorf("%s: %q is to be once in the text and once in the object: %s %s", what, word, text, object)
		}
	}
}

// A sub-agent that wrote to another agent waits for the answer, which is for it and not
// for the main agent.
func TestTheAnswerToAMessageIsForTheSubAgentThatWroteIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDaemon(t, server.Options{})
		a, b := &writer{peer: d.dial(t, "a")}, &writer{peer: d.dial(t, "b")}
		a.ask("run_lease_acquire", `{"key":"port 3000"}`)
		subs := []string{"x", "y"}
		for _, sub := range subs {
			b.ask("hook_present", fmt.Sprintf(`{"party":%q}`, sub))
			b.ask("actor_message", fmt.Sprintf(`{"to":"holder of port 3000","text":"when are you done?","as":%q}`, sub))
		}
		var got struct {
			Messages []struct {
				ID string `json:"message_id"`
			}
		}
		if _, object := a.ask("actor_inbox", `{}`); json.Unmarshal([]byte(object), &got) != nil || len(got.Messages) != len(subs) {
			t.Fatal(object)
		}
		for i := range subs {
			a.ask("actor_message", fmt.Sprintf(`{"to":"b","text":"soon %d","reply_to":%q}`, i, got.Messages[i].ID))
		}
		text, object := b.ask("actor_inbox", `{}`)
		tells(t, "the main agent", text, object)
		text, object = b.ask("actor_inbox", `{"as":"y"}`)
		tells(t, "a sub-agent", text, object, "soon 1")
		if strings.Contains(text+object, `"as"`) {
			t.Errorf("a sub-agent reads that its message is for a sub-agent of its own: %s", object)
		}
		// What one has not read when it ends, the main agent is told.
		b.ask("hook_party_end", `{"party":"x"}`)
		text, object = b.ask("actor_inbox", `{}`)
		tells(t, "the main agent, of what the other has not read", text, object, "soon 0", `"as":"x"`)
	})
}

// A client may name its main agents, too, and begin a conversation with another one. Who
// is left may never be heard from again, so the answer is for whichever is the main agent.
func TestTheAnswerToAMainAgentIsForTheNextOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDaemon(t, server.Options{})
		a, b := &writer{peer: d.dial(t, "a")}, &writer{peer: d.dial(t, "b")}
		b.ask("hook_present", `{"party":"first","main":true}`)
		b.ask("actor_message", `{"to":"a","text":"when are you done?","as":"first"}`)
		var got struct {
			Messages []struct {
				ID string `json:"message_id"`
			}
		}
		if _, object := a.ask("actor_inbox", `{}`); json.Unmarshal([]byte(object), &got) != nil || len(got.Messages) != 1 {
			t.Fatal(object)
		}
		b.ask("hook_present", `{"party":"second","main":true,"rests":"others"}`)
		a.ask("actor_message", fmt.Sprintf(`{"to":"b","text":"soon","reply_to":%q}`, got.Messages[0].ID))
		text, object := b.ask("actor_inbox", `{"as":"second"}`)
		tells(t, "the next main agent", text, object, "soon")
		if strings.Contains(object, `"as"`) {
			t.Errorf("the answer is for a sub-agent: %s", object)
		}
	})
}

// A notice names only tools that the client sees.
func TestANoticeNamesNoToolThatIsHidden(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDaemon(t, server.Options{})
		p := d.pipe(t)
		p.greet(server.Hello{Run: "r", Name: "a", Tools: "leases"})
		a, b := &writer{peer: p}, &writer{peer: d.dial(t, "b")}
		for i := range 6 {
			b.ask("actor_message", fmt.Sprintf(`{"to":"a","text":"number %d"}`, i))
		}
		if text, object := a.ask("lease_list", `{}`); !strings.Contains(object, "1 message of another agent is unread; the next answers have the rest") || strings.Contains(text+object, "actor_inbox") {
			t.Errorf("of a message that is left it says\n%s\n%s", text, object)
		}
		if text, object := a.ask("lease_list", `{}`); !strings.Contains(object, "number 5") {
			t.Errorf("the next answer is\n%s\n%s", text, object)
		}
	})
}

// So does what a hook tells the client, and a refusal.
func TestAHookAndARefusalNameNoToolThatIsHidden(t *testing.T) {
	for tools, want := range map[string]struct{ names, namesNot string }{
		"layer": {"", "lease_list actor_message"},
		"":      {"lease_list actor_message", ""},
	} {
		synctest.Test(t, func(t *testing.T) {
			d := newDaemon(t, server.Options{})
			near, far := net.Pipe()
			d.conns.Go(func() { d.ServeConn(d.ctx, far, process.Peer{PID: 4711, Transport: "unix"}) })
			a, b := &writer{peer: &peer{t: t, nc: near}}, &writer{peer: d.dial(t, "b")}
			a.greet(server.Hello{Run: "r", Name: "a", Tools: tools})
			for i := range 21 {
				a.ask("lease_acquire", fmt.Sprintf(`{"name":"x%d"}`, i))
			}
			b.ask("actor_message", `{"to":"a","text":"hello"}`)
			hook := &writer{peer: d.pipe(t)}
			hook.greet(server.Hello{Operator: true})
			told, _ := hook.ask("hook_notices", `{"pid":4711,"holds":true}`)
			refused, _ := a.ask("lease_renew", fmt.Sprintf(`{"lease_id":%q}`, uuid.NewString()))
			if !strings.HasPrefix(refused, "no lease of yours has this lease_id") {
				t.Errorf("the renewal is refused with %s", refused)
			}
			for name := range strings.FieldsSeq(want.names) {
				if !strings.Contains(told, name) {
					t.Errorf("with the tools %q a hook does not name %s: %s", tools, name, told)
				}
			}
			for name := range strings.FieldsSeq(want.namesNot) {
				if strings.Contains(told, name) || strings.Contains(refused, name) {
					t.Errorf("with the tools %q, %s is named:\n%s\n%s", tools, name, told, refused)
				}
			}
		})
	}
}

// A worker is not told to use a queue if its client shows no tools for that.
func TestAWorkerThatMayNotSpawnIsToldWhatItSees(t *testing.T) {
	for tools, queues := range map[string]bool{"tree": false, "": true} {
		synctest.Test(t, func(t *testing.T) {
			d := newDaemon(t, server.Options{})
			a := &writer{peer: d.pipe(t)}
			a.greet(server.Hello{Run: "r", Name: "a", Tools: tools})
			text, _ := a.ask("spawn_worker", `{"prompt":"x"}`)
			if !strings.Contains(text, "ask your lead to spawn") || strings.Contains(text, "task_enqueue") != queues {
				t.Errorf("with the tools %q it is told: %s", tools, text)
			}
		})
	}
}

// A message is in the next answer of any tool, whether its client shows its model
// the text or the object, and says that another agent wrote it.
func TestAMessageIsInTheNextAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDaemon(t, server.Options{})
		a, b := &writer{peer: d.dial(t, "a")}, &writer{peer: d.dial(t, "b")}
		a.ask("run_lease_acquire", `{"key":"port 3000"}`)
		b.ask("actor_message", `{"to":"holder of port 3000","text":"when are you done?\nI wait"}`)
		text, object := a.ask("lease_list", `{}`)
		tells(t, "the next answer", text, object, `when are you done?\nI wait`)
		if !strings.Contains(text, "a message from b (another agent, not your user)") {
			t.Errorf("the text is %s", text)
		}
		for _, answer := range []string{text, object} {
			if !strings.Contains(answer, `"from":"b"`) || !strings.Contains(answer, `"about":"port 3000"`) {
				t.Errorf("the answer is %s", answer)
			}
		}
		text, object = a.ask("lease_list", `{}`)
		tells(t, "the one after", text, object)

		// An agent may know a file that it was refused by its path alone.
		a.ask("run_lease_acquire", `{"path":"src/app.ts"}`)
		b.ask("actor_message", `{"to":"holder of ./src/app.ts","text":"may I have it?"}`)
		text, object = a.ask("lease_list", `{}`)
		tells(t, "the holder of a file", text, object, "may I have it?", `"about":"file:src/app.ts"`)
		if text, _ := b.ask("actor_message", `{"to":"holder of src/b.ts","text":"hello"}`); !strings.Contains(text, `nobody holds the lease "src/b.ts"; if you need it, acquire it`) {
			t.Errorf("of a file that nobody holds: %s", text)
		}
		a.ask("run_lease_acquire", `{"path":"lib/**"}`)
		if text, _ := b.ask("actor_message", `{"to":"holder of lib/b.ts","text":"hello"}`); !strings.Contains(text, `a holds "file:lib/**", which overlaps with it; write to "holder of file:lib/**"`) {
			t.Errorf("of a file in a directory that somebody holds: %s", text)
		}

		// A refusal tells it too, and actor_inbox gives the text of both.
		b.ask("actor_message", `{"to":"a","text":"first"}`)
		text, object = a.ask("lease_renew", `{"lease_id":"x"}`)
		tells(t, "a refusal", text, object, "first")
		b.ask("actor_message", `{"to":"a","text":"second"}`)
		b.ask("actor_message", `{"to":"a","text":"third"}`)
		text, object = a.ask("actor_inbox", `{"wait_secs":10}`)
		tells(t, "actor_inbox", text, object, "second", "third")

		// An answer has five messages at most, and says how many are left.
		for i := range 6 {
			b.ask("actor_message", fmt.Sprintf(`{"to":"a","text":"number %d"}`, i))
		}
		text, object = a.ask("lease_list", `{}`)
		for _, answer := range []string{text, object} {
			if !strings.Contains(answer, "number 4") || !strings.Contains(answer, "1 message of another agent is unread: call actor_inbox") {
				t.Errorf("the answer is %s", answer)
			}
		}

		// actor_inbox gives 20 at a time, and says how many are left after this answer.
		c := &writer{peer: d.dial(t, "c")}
		a.ask("actor_inbox", `{}`)
		for i := range 13 {
			b.ask("actor_message", fmt.Sprintf(`{"to":"a","text":"from b %d"}`, i))
			c.ask("actor_message", fmt.Sprintf(`{"to":"a","text":"from c %d"}`, i))
		}
		for _, want := range []struct{ count, left int }{{20, 6}, {6, 0}} {
			text, object = a.ask("actor_inbox", `{}`)
			if n := strings.Count(object, "message_id"); n != want.count {
				t.Errorf("actor_inbox gives %d messages, want %d", n, want.count)
			}
			if more := fmt.Sprintf("and %d more", want.left); strings.Contains(text, more) != (want.left > 0) {
				t.Errorf("%d are left, and the text is %s", want.left, text)
			}
		}
	})
}

// A client that dies with an answer unread has been told nothing, here by a call that
// nobody can send again.
func TestAnAnswerThatIsNotReadLosesNoMessage(t *testing.T) {
	for _, tool := range []string{"lease_list", "actor_inbox"} {
		t.Run(tool, func(t *testing.T) {
			d := newDaemon(t, server.Options{})
			path := d.listenSocket(t)
			token := d.token(t, "root")
			b := &writer{peer: d.dialSocket(t, path, "b")}
			a := dialUnread(t, path, token)
			b.ask("actor_message", `{"to":"root","text":"read me"}`)
			a.call(1, tool, `{}`)
			a.awaitUnread()
			again := &writer{peer: dialUnread(t, path, token)}
			again.call(1, "actor_inbox", `{"wait_secs":50}`)
			a.nc.Close()
			if m := again.receive(); !strings.Contains(whole(m), "read me") {
				t.Errorf("after its answer was lost: %s", whole(m))
			}
		})
	}
}

func dialUnread(t *testing.T, path, token string) *peer {
	t.Helper()
	nc, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	p := &peer{t: t, nc: nc}
	p.greet(server.Hello{Token: token})
	return p
}

// awaitUnread waits until there is something to read, and leaves it unread.
func (p *peer) awaitUnread() {
	p.t.Helper()
	raw, err := p.nc.(*net.UnixConn).SyscallConn()
	if err != nil {
		p.t.Fatal(err)
	}
	err = raw.Read(func(fd uintptr) bool {
		n, _, err := syscall.Recvfrom(int(fd), make([]byte, 1), syscall.MSG_PEEK)
		return n > 0 && err == nil
	})
	if err != nil {
		p.t.Fatal(err)
	}
}

// A hook takes what the sessions of its client are to be told, as their user. If
// nobody reads its answer, that is told again.
func TestAHookTakesNoticesForItsClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDaemon(t, server.Options{})
		near, far := net.Pipe()
		d.conns.Go(func() { d.ServeConn(d.ctx, far, process.Peer{PID: 4711, Transport: "unix"}) })
		client := &writer{peer: &peer{t: t, nc: near}}
		client.greet(server.Hello{Run: "r", Name: "client"})
		other := &writer{peer: d.dial(t, "other")}
		client.ask("run_lease_acquire", `{"key":"x","ttl_secs":1}`)
		time.Sleep(2 * time.Second)
		other.ask("actor_message", `{"to":"client","text":"hello"}`)

		hook := func() *writer {
			w := &writer{peer: d.pipe(t)}
			w.greet(server.Hello{Operator: true})
			return w
		}
		first := hook()
		text, object := first.ask("hook_notices", `{"pid":4711}`)
		for _, answer := range []string{text, object} {
			if !strings.Contains(answer, "hello") || !strings.Contains(answer, `lost lease`) {
				t.Errorf("the hook is told %s", answer)
			}
		}
		if text, _ := hook().ask("hook_notices", `{"pid":4711}`); !strings.HasPrefix(text, "nothing new\n") {
			t.Errorf("another hook is told %s", text)
		}
		if text, _ := client.ask("actor_inbox", `{}`); !strings.HasPrefix(text, "no messages\n") {
			t.Errorf("its client is told %s", text)
		}

		other.ask("actor_message", `{"to":"client","text":"again"}`)
		lost := hook()
		lost.call(1, "hook_notices", `{"pid":4711}`)
		synctest.Wait()
		lost.nc.Close() // a pipe is closed with what nobody has read unwritten
		synctest.Wait()
		if text, _ := client.ask("lease_list", `{}`); !strings.Contains(text, "again") {
			t.Errorf("after a hook that died its client is told %s", text)
		}

		// A hook that connects as the actor itself reads no notices in other answers.
		other.ask("actor_message", `{"to":"client","text":"to the model"}`)
		for tool, args := range map[string]string{
			"hook_present": `{}`, "hook_check": `{"run":"r"}`,
			"hook_write": `{"hold_secs":5,"name":"x","writes":[{"run":"r","home":true,"keys":["file:a"]}]}`,
		} {
			if text, object := client.ask(tool, args); strings.Contains(text+object, "to the model") {
				t.Errorf("%s is told %s", tool, text)
			}
		}
		if text, _ := client.ask("lease_list", `{}`); !strings.Contains(text, "to the model") {
			t.Errorf("after hooks of its actor a client is told %s", text)
		}
	})
}

// A long message is not in an answer, which says that there is one. That is told to
// each agent once, and again if nobody reads the answer that told it, or if its agent has
// ended.
func TestThatAMessageIsUnreadIsToldToItsAgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDaemon(t, server.Options{})
		near, far := net.Pipe()
		d.conns.Go(func() { d.ServeConn(d.ctx, far, process.Peer{PID: 4711, Transport: "unix"}) })
		client, other := &writer{peer: &peer{t: t, nc: near}}, &writer{peer: d.dial(t, "other")}
		client.greet(server.Hello{Run: "r", Name: "client"})
		hook := func() *writer {
			w := &writer{peer: d.pipe(t)}
			w.greet(server.Hello{Operator: true})
			return w
		}
		say := func(to string) {
			other.ask("actor_message", fmt.Sprintf(`{"to":%q,"text":%q}`, to, strings.Repeat("long ", 1<<10)))
		}
		expect := func(who, text, want string) {
			t.Helper()
			if strings.Contains(text, "unread") != (want != "") || !strings.Contains(text, want) {
				t.Errorf("%s is told %s, want %q", who, text, want)
			}
		}
		main := func(want string) {
			t.Helper()
			text, _ := client.ask("lease_list", `{}`)
			expect("the client", text, want)
		}
		agent := func(name, want string) {
			t.Helper()
			text, _ := hook().ask("hook_notices", fmt.Sprintf(`{"pid":4711,"party":%q}`, name))
			expect(name, text, want)
		}

		say("client")
		lost := hook()
		lost.call(1, "hook_notices", `{"pid":4711}`)
		synctest.Wait()
		lost.nc.Close() // with its answer unread
		synctest.Wait()
		main("1 message of another agent is unread")
		main("")

		for _, name := range []string{"a", "b"} {
			hook().ask("hook_write", fmt.Sprintf(`{"pid":4711,"party":%q,"hold_secs":600,"name":"x","writes":[{"run":"r","home":true,"keys":["file:%s"]}]}`, name, name))
			say("holder of file:" + name)
		}
		for _, want := range []string{"1 message of another agent is unread", ""} {
			agent("a", want)
			agent("b", want)
		}
		main("")
		hook().ask("hook_party_end", `{"pid":4711,"party":"a"}`)
		agent("b", "")
		main("2 messages of other agents are unread")
		main("")
	})
}

// An actor that was ended has no session any more, and its model may call no tool. So the
// hooks of its client tell each of its agents once, and not those of another client.
func TestAHookTellsThatAnActorWasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDaemon(t, server.Options{})
		connect := func(pid int, name string) *writer {
			near, far := net.Pipe()
			d.conns.Go(func() { d.ServeConn(d.ctx, far, process.Peer{PID: pid, Transport: "unix"}) })
			w := &writer{peer: &peer{t: t, nc: near}}
			w.greet(server.Hello{Run: "r", Name: name, Directory: "/work"})
			return w
		}
		client := connect(4711, "client")
		connect(4712, "other")
		client.ask("run_lease_acquire", `{"key":"x"}`)
		operator := func() *writer {
			w := &writer{peer: d.pipe(t)}
			w.greet(server.Hello{Operator: true})
			return w
		}
		told := func(pid int, agent string) string {
			t.Helper()
			text, _ := operator().ask("hook_notices", fmt.Sprintf(`{"pid":%d,"party":%q}`, pid, agent))
			return text
		}
		const nothing = "nothing new\n"
		if text := told(4711, ""); !strings.HasPrefix(text, nothing) {
			t.Errorf("before: %s", text)
		}
		operator().ask("operator_actor_end", `{"run":"r","path":"client","reason":"the plan has changed"}`)

		lost := operator()
		lost.call(1, "hook_notices", `{"pid":4711}`)
		synctest.Wait()
		lost.nc.Close() // with its answer unread
		synctest.Wait()
		for _, agent := range []string{"", "sub-agent"} {
			text := told(4711, agent)
			for _, want := range []string{"actor client of run r has ended, by operator", "the plan has changed", `its lease \"x\" is released`} {
				if !strings.Contains(text, want) {
					t.Errorf("agent %q is not told %s: %s", agent, want, text)
				}
			}
			if text := told(4711, agent); !strings.HasPrefix(text, nothing) {
				t.Errorf("agent %q is told again: %s", agent, text)
			}
		}
		if text := told(4712, ""); !strings.HasPrefix(text, nothing) {
			t.Errorf("another client is told %s", text)
		}

		// A client that has connected as another actor goes on.
		connect(4711, "again")
		if text := told(4711, "third"); !strings.HasPrefix(text, nothing) {
			t.Errorf("after it has connected again: %s", text)
		}
	})
}

// What is about a lease of a sub-agent is told to that one alone, whoever of those
// that share the session calls next, and to the main agent once it has ended. What is
// to the session is told to its main agent. A party that no client told of may be
// anybody, so the main agent is told.
func TestNoticesOfSubAgentsAreTheirs(t *testing.T) {
	const mine, session = "to the holder", "to the session"
	const aLost, bLost = `"key":"file:a's"`, `"key":"file:b's"`
	type told map[string]string // what an agent's next answer has, by agent; "" is the main one
	for name, of := range map[string]struct {
		main string // how the client names its main agent
		ask  func(party, string) party
	}{
		"Claude Code": {"", func(p party, agent string) party {
			p.meta = fmt.Sprintf(`{"claudecode/toolUseId":"use of %s"}`, agent)
			return p
		}},
		"opencode": {"main", func(p party, agent string) party { p.as = agent; return p }},
		"Codex":    {"main", func(p party, agent string) party { p.meta = fmt.Sprintf(`{"threadId":%q}`, agent); return p }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newDaemon(t, server.Options{})
				near, far := net.Pipe()
				d.conns.Go(func() { d.ServeConn(d.ctx, far, process.Peer{PID: 4711, Transport: "unix"}) })
				client := party{&peer{t: t, nc: near}, "", "", new(int)}
				client.greet(server.Hello{Run: "r", Name: "client"})
				client.send("%s", initialize)
				client.receive()
				other, operator := &writer{peer: d.dial(t, "other")}, &writer{peer: d.pipe(t)}
				operator.greet(server.Hello{Operator: true})
				hook := func(tool, agent, more string) string {
					t.Helper()
					if main := agent != "" && agent == of.main; main {
						more += `,"main":true`
					}
					text, object := operator.ask(tool, fmt.Sprintf(`{"pid":4711,"party":%q%s}`, agent, more))
					if strings.Contains(object, `"code":"INV`) {
						t.Fatal(text)
					}
					return text
				}
				for _, agent := range []string{of.main, "a", "b"} {
					if agent != "" && of.main == "" {
						hook("hook_tool_use", agent, fmt.Sprintf(`,"tool_use_id":"use of %s"`, agent))
					}
					of.ask(client, agent).ask("kv_list", `{"glob":"/**"`)
					hook("hook_write", agent, fmt.Sprintf(`,"hold_secs":5,"name":"x","writes":[{"run":"r","home":true,"keys":["file:%s"]}]`, agent+"'s"))
				}
				say := func(to, text string) {
					t.Helper()
					if text, object := other.ask("actor_message", fmt.Sprintf(`{"to":%q,"text":%q}`, to, text)); strings.Contains(object, `"code"`) {
						t.Fatal(text)
					}
				}
				say("holder of file:a's", mine)
				say("client", session)
				expect := func(want told) {
					t.Helper()
					for _, agent := range []string{"b", of.main, "a"} {
						m, _ := of.ask(client, agent).ask("kv_list", `{"glob":"/**"`)
						text := whole(m) + hook("hook_notices", agent, "")
						for _, word := range []string{mine, session, aLost, bLost} {
							if got := strings.Contains(text, word); got != strings.Contains(want[agent], word) {
								t.Errorf("%q is told of %s: %v in %s", agent, word, got, text)
							}
						}
					}
				}
				expect(told{"a": mine, of.main: session})
				time.Sleep(10 * time.Second) // the leases expire
				expect(told{"a": aLost, "b": bLost})

				hook("hook_write", "a", `,"hold_secs":5,"name":"x","writes":[{"run":"r","home":true,"keys":["file:a's"]}]`)
				say("holder of file:a's", mine)
				if text := hook("hook_notices", "a", ""); !strings.Contains(text, mine) || strings.Contains(text, "your sub-agent") {
					t.Errorf("a sub-agent is told by its hook %s", text)
				}
				say("holder of file:a's", mine)
				hook("hook_party_end", "a", "")
				if m, _ := of.ask(client, of.main).ask("kv_list", `{"glob":"/**"`); !strings.Contains(whole(m), mine) {
					t.Errorf("after the end of its sub-agent the main agent is told %s", whole(m))
				}
				made := client
				made.as = "made up"
				made.ask("run_lease_acquire", `{"key":"port","ttl_secs":1`)
				time.Sleep(2 * time.Second)
				if text := hook("hook_notices", "b", ""); strings.Contains(text, "port") {
					t.Errorf("a sub-agent is told %s", text)
				}
				if m, _ := of.ask(client, of.main).ask("kv_list", `{"glob":"/**"`); !strings.Contains(whole(m), `your agent "made up" lost lease "port"`) {
					t.Errorf("of a party that its model made up the main agent is told %s", whole(m))
				}
			})
		})
	}
}

package server_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/dispatch/server"
)

// A party calls tools over one connection, as one of those who share it.
type party struct {
	*peer
	as   string // in the arguments
	meta string // JSON
	id   *int
}

// ask calls a tool and gives what it answered. The arguments have no closing brace.
func (p party) ask(tool, arguments string) (m message, object struct {
	Code, Message string
	Reentrant     bool
	LeaseID       string `json:"lease_id"`
	Holder        struct{ As string }
	Reason        string
},
) {
	p.t.Helper()
	*p.id++
	if p.as != "" {
		arguments += fmt.Sprintf(`,"as":%q`, p.as)
	}
	meta := p.meta
	if meta == "" {
		meta = "{}"
	}
	p.send(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":%q,"arguments":%s,"_meta":%s}}`, *p.id, tool, arguments+"}", meta)
	for m = p.receive(); m.Method != ""; m = p.receive() { // told unasked, as that somebody waits
	}
	if m.Error != nil {
		p.t.Fatalf("%s %s: %+v", tool, arguments, m.Error)
	}
	if err := json.Unmarshal(m.Result.StructuredContent, &object); err != nil {
		p.t.Fatal(err)
	}
	return m, object
}

// TestPartiesOfOneConnection are apart from one another, however they are told
// apart: by an argument, by what the client says of the call, or by a hook.
func TestPartiesOfOneConnection(t *testing.T) {
	for name, of := range map[string]func(p *peer, id *int) (a, b party){
		"as": func(p *peer, id *int) (party, party) {
			return party{p, "a", "", id}, party{p, "b", "", id}
		},
		"threadId": func(p *peer, id *int) (party, party) {
			return party{p, "", `{"threadId":"a"}`, id}, party{p, "", `{"threadId":"b"}`, id}
		},
		"hook": func(p *peer, id *int) (party, party) {
			for use, who := range map[string]string{"use-1": "a", "use-2": "b"} {
				party{p, "", "", id}.ask("hook_tool_use", fmt.Sprintf(`{"party":%q,"tool_use_id":%q`, who, use))
			}
			return party{p, "", `{"claudecode/toolUseId":"use-1"}`, id}, party{p, "", `{"claudecode/toolUseId":"use-2"}`, id}
		},
		"as before threadId": func(p *peer, id *int) (party, party) {
			return party{p, "a", `{"threadId":"x"}`, id}, party{p, "b", `{"threadId":"x"}`, id}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newDaemon(t, server.Options{})
				p := d.dial(t, "w")
				p.send("%s", initialize)
				p.receive()
				a, b := of(p, new(int))
				if _, got := a.ask("run_lease_acquire", `{"key":"k"`); got.Code != "" || got.Reentrant || got.Holder.As != "a" {
					t.Fatalf("a acquires: %+v", got)
				}
				if _, got := a.ask("run_lease_acquire", `{"key":"k"`); !got.Reentrant {
					t.Errorf("a acquires again: %+v", got)
				}
				if m, got := b.ask("run_lease_acquire", `{"key":"k"`); got.Code != "LEASE_HELD" || got.Holder.As != "a" || !m.Result.IsError {
					t.Errorf("b acquires: %+v", got)
				}
				nobody := party{p, "", "", a.id}
				if _, got := nobody.ask("run_lease_acquire", `{"key":"k"`); got.Code != "LEASE_HELD" {
					t.Errorf("a call of no party acquires: %+v", got)
				}
				nobody.ask("hook_party_end", `{"party":"a"`)
				if _, got := b.ask("run_lease_acquire", `{"key":"k"`); got.Code != "" || got.Reentrant || got.Holder.As != "b" {
					t.Errorf("after the end of a, b acquires: %+v", got)
				}
			})
		})
	}
}

// TestACallWhoseAnswerNobodyReadsLeavesTheNotices to the next one that a model reads.
func TestACallWhoseAnswerNobodyReadsLeavesTheNotices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDaemon(t, server.Options{})
		p, id := d.dial(t, "w"), new(int)
		p.send("%s", initialize)
		p.receive()
		model, script := party{p, "", "", id}, party{p, "", `{"leasehold/unread":true}`, id}
		model.ask("run_lease_acquire", `{"key":"build","ttl_secs":1`)
		time.Sleep(5 * time.Second)
		for _, c := range []struct {
			by   party
			told bool
		}{{script, false}, {model, true}, {model, false}} {
			if m, _ := c.by.ask("run_lease_acquire", `{"key":"other"`); strings.Contains(m.Result.Content[0].Text, "build") != c.told {
				t.Errorf("told of the loss of build: %t, in %+v", !c.told, m.Result)
			}
		}
	})
}

// TestACancelledActorIsToldOverMCP by whom it was cancelled, why and what it lost:
// by the call that it has under way, and when it comes back.
func TestACancelledActorIsToldOverMCP(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDaemon(t, server.Options{})
		open := func(token string) party {
			p := d.pipe(t)
			p.greet(server.Hello{Token: token})
			p.send("%s", initialize)
			p.receive()
			return party{p, "", "", new(int)}
		}
		root := open(d.token(t, "root"))
		token := d.token(t, "W1")
		w1 := open(token)
		root.ask("run_lease_acquire", `{"key":"roots"`)
		w1.ask("run_lease_acquire", `{"key":"build"`)
		w1.call("waits", "run_lease_acquire", `{"key":"roots","wait_secs":50}`)
		synctest.Wait()
		root.ask("actor_cancel", `{"actor":"W1","reason":"not needed"`)
		told := func(what, text string) {
			t.Helper()
			for _, want := range []string{"W1", "by root", "not needed", `"build" is released`} {
				if !strings.Contains(text, want) {
					t.Errorf("%s is told %q, without %q", what, text, want)
				}
			}
		}
		for {
			m, err := w1.next()
			if err != nil {
				t.Fatalf("the call under way has no answer: %v", err)
			}
			if string(m.ID) == `"waits"` { // what came before tells of the lost lease
				told("the call under way", m.text())
				break
			}
		}
		w1.expectClosed()
		_, _, err := server.Greet(d.pipe(t).nc, server.Hello{Token: token})
		var refused *server.HelloError
		if !errors.As(err, &refused) || refused.Code != "UNAUTHENTICATED" {
			t.Fatalf("it comes back: %v", err)
		}
		told("who comes back", refused.Message)
		if _, got := root.ask("run_lease_acquire", `{"key":"build"`); got.Code != "" {
			t.Errorf("what it held: %+v", got)
		}
	})
}

// TestASubAgentThatWaitsForAnActorHoldsNothingOfTheOthers. An actor that it waits for
// may wait in turn for a lease of the main agent, which goes on working, but not for
// one of the sub-agent.
func TestASubAgentThatWaitsForAnActorHoldsNothingOfTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDaemon(t, server.Options{})
		open := func(path, as string) party {
			p := d.pipe(t)
			p.greet(server.Hello{Token: d.token(t, path)})
			p.send("%s", initialize)
			p.receive()
			return party{p, as, "", new(int)}
		}
		sub, w1 := open("root", "sub"), open("W1", "")
		main := party{sub.peer, "", "", sub.id}
		main.ask("run_lease_acquire", `{"key":"main's"`)
		sub.ask("run_lease_acquire", `{"key":"sub's"`)
		sub.call("waits", "actor_wait", `{"actors":["W1"],"wait_secs":50,"as":"sub"}`)
		synctest.Wait()
		for key, code := range map[string]string{"main's": "WAIT_TIMEOUT", "sub's": "DEADLOCK"} {
			if _, got := w1.ask("run_lease_acquire", fmt.Sprintf(`{"key":%q,"wait_secs":1`, key)); got.Code != code {
				t.Errorf("W1 waits for %s lease: %+v", key, got)
			}
		}
		sub.call("end", "hook_party_end", `{"party":"sub"}`)
		answers := map[string]string{}
		for len(answers) < 2 {
			if m := sub.receive(); m.Method == "" {
				answers[string(m.ID)] = m.text()
			}
		}
		if text := answers[`"waits"`]; !strings.Contains(text, "has ended") {
			t.Errorf("the wait of the sub-agent that ended: %s", text)
		}
		if _, got := w1.ask("run_lease_acquire", `{"key":"sub's","wait_secs":1`); got.Code != "" {
			t.Errorf("W1 waits for what the sub-agent had: %+v", got)
		}
	})
}

// TestTheAnswerToASubAgentThatHasEndedTellsNothing. It ends every call of the sub-agent
// that waits. Its client shows it to no model, so the main agent would not learn what it
// has lost.
func TestTheAnswerToASubAgentThatHasEndedTellsNothing(t *testing.T) {
	for tool, arguments := range map[string]string{
		"run_lease_acquire":  `"key":"held",`,
		"lease_acquire_many": `"leases":[{"scope":"run","key":"held"}],`,
		"task_claim":         `"queues":["none"],"ttl_secs":60,`,
		"task_result":        `"task_id":"TASK",`,
		"kv_wait":            `"path":"/shared/none",`,
		"actor_inbox":        "",
	} {
		t.Run(tool, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newDaemon(t, server.Options{})
				p, id := d.dial(t, "w"), new(int)
				p.send("%s", initialize)
				p.receive()
				main := party{p, "", "", id}
				main.ask("hook_present", `{"party":"sub"`)
				main.ask("run_lease_acquire", `{"key":"held"`)
				main.ask("run_lease_acquire", `{"key":"build","ttl_secs":1`)
				m, _ := main.ask("task_enqueue", `{"queue":"q","payload":1`)
				var made struct {
					ID string `json:"task_id"`
				}
				if err := json.Unmarshal(m.Result.StructuredContent, &made); err != nil {
					t.Fatal(err)
				}
				p.call("waits", tool, `{`+strings.Replace(arguments, "TASK", made.ID, 1)+`"wait_secs":50,"as":"sub"}`)
				time.Sleep(5 * time.Second)
				p.call("end", "hook_party_end", `{"party":"sub"}`)
				answers := map[string]string{}
				for len(answers) < 2 {
					if m := p.receive(); m.Method == "" {
						answers[string(m.ID)] = m.text()
					}
				}
				if text := answers[`"waits"`]; !strings.Contains(text, "has ended") || strings.Contains(text, "build") {
					t.Errorf("the call of the sub-agent that ended: %s", text)
				}
				if m, _ := main.ask("queue_stats", `{"queue":"q"`); !strings.Contains(m.text(), `you lost lease "build"`) {
					t.Errorf("the main agent is told %s", m.text())
				}
			})
		})
	}
}

// TestEveryAnswerNamesTheHolderAlike. It may be a main agent of its client or a sub-agent.
func TestEveryAnswerNamesTheHolderAlike(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDaemon(t, server.Options{})
		p := d.dial(t, "w")
		p.send("%s", initialize)
		p.receive()
		thread := party{p, "", `{"threadId":"t"}`, new(int)}
		thread.ask("run_lease_acquire", `{"key":"k"`)
		for _, call := range [][2]string{
			{"lease_list", `{"scope":"run"`},
			{"lease_check", `{"scope":"run","key":"k","token":1`},
		} {
			if m, _ := thread.ask(call[0], call[1]); !strings.Contains(m.text(), "held by w (as t)") {
				t.Errorf("%s answers %s", call[0], m.text())
			}
		}
	})
}

// TestWhatASubAgentDidIsOnRecordAsIts, so that a history of a lease and the page tell the
// agents of a session apart.
func TestWhatASubAgentDidIsOnRecordAsIts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDaemon(t, server.Options{})
		p, id := d.dial(t, "w"), new(int)
		d.dial(t, "other")
		p.send("%s", initialize)
		p.receive()
		sub := party{p, "sub", "", id}
		sub.ask("run_lease_acquire", `{"key":"k"`)
		sub.ask("kv_set", `{"path":"/shared/x","value":1,"require_leases":[{"scope":"run","key":"k","token":9999}]`)
		sub.ask("task_enqueue", `{"queue":"q","payload":1`)
		sub.ask("task_claim", `{"queues":["q"],"ttl_secs":60`)
		sub.ask("actor_message", `{"to":"other","text":"hello"`)
		var by []string
		page, err := d.state.RunEvents(t.Context(), "r", dispatch.EventQuery{Actor: "w"})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range page.Events {
			if e.Party == "sub" {
				by = append(by, e.Kind.String())
			}
		}
		if got, want := strings.Join(by, " "), "lease_granted write_refused task_claimed message_sent"; got != want {
			t.Errorf("the sub-agent did %s\nwant %s", got, want)
		}
	})
}

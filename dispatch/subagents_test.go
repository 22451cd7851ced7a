package dispatch_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/queue"
	"github.com/leasehold/leasehold/registry"
)

// A sub-agent may have two names: its client's for it, and one that it has made up as it was
// asked to. Renewing or releasing its lease under the other is no loss, and nobody is told of
// one.
func TestASubAgentHasItsLeasesUnderEitherOfItsNames(t *testing.T) {
	inHouse(t, dispatch.Options{}, func(t *testing.T, h *house) {
		se := h.connect(dispatch.Credentials{Run: "r", Name: "client"}, 1)
		defer h.hangUp(se)
		for _, name := range []string{"known", "known too"} {
			if err := se.Heard(t.Context(), name, false); err != nil {
				t.Fatal(err)
			}
		}
		for _, c := range []struct {
			holder, by string
			told       int
		}{
			{"made up", "known", 0},
			{"known", "made up", 0},
			{"known", "known too", 1},
			{"made up", "made up too", 1},
			{"", "known", 1},
			{"", "made up", 1},
		} {
			for _, renews := range []bool{true, false} {
				g, err := se.Acquire(t.Context(), dispatch.RunScope, registry.Request{Key: "x", TTL: time.Minute, Holder: registry.Holder{Party: c.holder}})
				if err != nil {
					t.Fatal(err)
				}
				if renews { // and then has it
					if _, err := se.Renew(t.Context(), c.by, g.ID, 0); err != nil {
						t.Fatal(err)
					}
				}
				if ok, why, err := se.Release(t.Context(), c.by, g.ID); !ok {
					t.Fatal(why, err)
				}
				told := 0
				for _, reader := range []string{c.holder, ""} {
					news, _, err := se.TakeNotices(t.Context(), reader, dispatch.Model)
					if told += len(news); err != nil {
						t.Error(err)
					}
				}
				if told != c.told {
					t.Errorf("%q has the lease of %q, and renews it: %t. %d losses are told, want %d", c.by, c.holder, renews, told, c.told)
				}
			}
		}
	})
}

// The daemon that comes after this one knows which sub-agents a session has, so it
// tells each of its own lease, and the main agent of those that have ended.
func TestARestartForgetsNoSubAgent(t *testing.T) {
	for name, of := range map[string]struct {
		main string // how the client names its main agent
		says func(se *dispatch.Session, name string, main bool) error
	}{
		"Claude Code": {"", func(se *dispatch.Session, name string, main bool) error {
			if err := se.UsesTool(t.Context(), "use of "+name, name); err != nil {
				return err
			}
			return se.Heard(t.Context(), name, main)
		}},
		"opencode": {"main", func(se *dispatch.Session, name string, main bool) error { return se.Heard(t.Context(), name, main) }},
		"Codex": {"main", func(se *dispatch.Session, name string, main bool) error {
			if main {
				return se.HeardAlone(t.Context(), name)
			}
			return se.Heard(t.Context(), name, false)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			inHouse(t, dispatch.Options{}, func(t *testing.T, h *house) {
				se := h.connect(dispatch.Credentials{Run: "r", Name: "client"}, 1)
				for _, agent := range []string{of.main, "a", "b", "ended"} {
					if err := of.says(se, agent, agent == of.main); err != nil {
						t.Fatal(err)
					}
				}
				for _, party := range []string{"a", "ended", "made up"} {
					if _, err := se.Acquire(t.Context(), dispatch.RunScope, registry.Request{Key: party, TTL: time.Minute, Holder: registry.Holder{Party: party}}); err != nil {
						t.Fatal(err)
					}
				}
				handle := se.Handle()
				for restart := range 2 {
					h.crash()
					se = h.connect(dispatch.Credentials{Handle: handle}, 1)
					if user := se.UserOf("use of a"); name == "Claude Code" && user != "a" {
						t.Errorf("after restart %d the call of a is taken for one of %q", restart, user)
					}
				}
				// It ends, and what it held is lost by a revoke that comes first.
				if _, err := h.Revoke(t.Context(), "r", dispatch.Revocation{Scope: dispatch.RunScope, Key: "ended", Reason: "x"}); err != nil {
					t.Fatal(err)
				}
				if err := se.EndParty(t.Context(), "ended"); err != nil {
					t.Fatal(err)
				}
				h.crash()
				se = h.connect(dispatch.Credentials{Handle: handle}, 1)
				time.Sleep(2 * time.Minute) // the others expire
				want := map[string]string{"b": "[]", of.main: "[ended made up]", "a": "[a]"}
				for _, agent := range []string{"b", of.main, "a"} {
					list, _, err := se.TakeNotices(t.Context(), agent, dispatch.Model)
					if err != nil {
						t.Fatal(err)
					}
					lost := []string{}
					for _, n := range list {
						lost = append(lost, n.Key)
					}
					slices.Sort(lost) // they expired at the same moment
					if got := fmt.Sprint(lost); got != want[agent] {
						t.Errorf("%q is told of %s, want %s", agent, got, want[agent])
					}
				}
				h.hangUp(se)
			})
		})
	}
}

// A sub-agent whose end nobody has told is forgotten once it has been quiet for a while:
// the main agent is told what it is not there to read. One that was heard from is not.
func TestAQuietSubAgentIsForgotten(t *testing.T) {
	inHouse(t, dispatch.Options{}, func(t *testing.T, h *house) {
		se := h.connect(dispatch.Credentials{Run: "r", Name: "client"}, 1)
		defer h.hangUp(se)
		for _, party := range []string{"lost", "busy"} {
			if err := se.Heard(t.Context(), party, false); err != nil {
				t.Fatal(err)
			}
			if _, err := se.Acquire(t.Context(), dispatch.RunScope, registry.Request{Key: party, TTL: time.Minute, Holder: registry.Holder{Party: party}}); err != nil {
				t.Fatal(err)
			}
		}
		told := func(agent string) []string {
			t.Helper()
			list, _, err := se.TakeNotices(t.Context(), agent, dispatch.Model)
			if err != nil {
				t.Fatal(err)
			}
			keys := []string{}
			for _, n := range list {
				keys = append(keys, n.Key)
			}
			return keys
		}
		time.Sleep(14 * time.Minute) // both leases have expired
		if got := told(""); len(got) > 0 {
			t.Errorf("the main agent is told of %v while its sub-agents may be there", got)
		}
		if err := se.Heard(t.Context(), "busy", false); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Minute)
		if got := fmt.Sprint(told("")); got != "[lost]" {
			t.Errorf("the main agent is told of %s, want of the lease of the quiet one alone", got)
		}
		if got := fmt.Sprint(told("busy")); got != "[busy]" {
			t.Errorf("the one that was heard from is told of %s", got)
		}
	})
}

// What is known of sub-agents is written once, and bounded.
func TestWhatIsKnownOfSubAgentsIsBounded(t *testing.T) {
	inHouse(t, dispatch.Options{}, func(t *testing.T, h *house) {
		se := h.connect(dispatch.Credentials{Run: "r", Name: "client"}, 1)
		defer h.hangUp(se)
		for i := range 1000 {
			name := fmt.Sprint("agent ", i)
			if err := se.Heard(t.Context(), name, false); err != nil {
				t.Fatal(err)
			}
			if err := se.UsesTool(t.Context(), "use of "+name, name); err != nil {
				t.Fatal(err)
			}
		}
		if first, last := se.UserOf("use of agent 0"), se.UserOf("use of agent 999"); first != "" || last != "agent 999" {
			t.Errorf("users: %q and %q", first, last)
		}
		id := se.ID()
		watch := h.eng.Watch("session/" + string(id[:]))
		defer watch.Stop()
		for range 10 {
			if err := se.Heard(t.Context(), "agent 7", false); err != nil {
				t.Fatal(err)
			}
			if err := se.UsesTool(t.Context(), "use of agent 999", "agent 999"); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		select {
		case <-watch.C:
			t.Error("what was known has been written again")
		default:
		}
		size := 0
		err := h.eng.View(t.Context(), func(tx engine.Tx) error {
			for row := range tx.Scan("session/") {
				size = max(size, len(row.Value))
			}
			return nil
		})
		if err != nil || size > 32<<10 {
			t.Errorf("the record has %d bytes: %v", size, err)
		}
	})
}

// A call of a sub-agent that waits as the sub-agent ends is over, and gets nothing: it
// neither joins the line again nor claims a task for nobody. Those of others wait on.
func TestASubAgentThatEndsWaitsNoMore(t *testing.T) {
	for name, wait := range map[string]func(ctx context.Context, se *dispatch.Session, party string) error{
		"a lease": func(ctx context.Context, se *dispatch.Session, party string) error {
			_, err := se.Acquire(ctx, dispatch.RunScope, registry.Request{
				Key: "k", TTL: time.Minute, Wait: 50 * time.Second, Holder: registry.Holder{Party: party},
			})
			return err
		},
		"several leases": func(ctx context.Context, se *dispatch.Session, party string) error {
			_, err := se.AcquireAll(ctx, []dispatch.Want{{Scope: dispatch.RunScope, Key: "k"}, {Scope: dispatch.RunScope, Key: "free"}}, registry.Request{
				TTL: time.Minute, Wait: 50 * time.Second, Holder: registry.Holder{Party: party},
			})
			return err
		},
		"a task": func(ctx context.Context, se *dispatch.Session, party string) error {
			tasks, err := se.Tasks()
			if err != nil {
				return err
			}
			claimed, err := tasks.Claim(ctx, queue.Claim{
				Queues: []string{"q"}, TTL: time.Minute, Wait: 50 * time.Second, Holder: registry.Holder{Party: party},
			})
			if err == nil && len(claimed) == 0 {
				err = errors.New("no task")
			}
			return err
		},
		"a message": func(ctx context.Context, se *dispatch.Session, party string) error {
			list, _, err := se.Inbox(ctx, party, 50*time.Second)
			if err == nil && len(list) == 0 {
				err = errors.New("no message")
			}
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			inHouse(t, dispatch.Options{}, func(t *testing.T, h *house) {
				se := h.connect(dispatch.Credentials{Run: "r", Name: "client"}, 1)
				other := h.connect(dispatch.Credentials{Run: "r", Name: "other"}, 2)
				defer h.hangUp(se)
				defer h.hangUp(other)
				held := h.take(other, dispatch.RunScope, "k", time.Hour)
				answers := map[string]chan error{"ended": make(chan error, 1), "stays": make(chan error, 1)}
				for _, party := range []string{"ended", "stays"} {
					go func() { answers[party] <- wait(t.Context(), se, party) }()
					synctest.Wait()
				}
				if err := se.EndParty(t.Context(), "ended"); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				select {
				case err := <-answers["ended"]:
					if !errors.Is(err, dispatch.ErrAgentEnded) {
						t.Errorf("the call of the sub-agent that ended: %v", err)
					}
				default:
					t.Error("the call of the sub-agent that ended waits on")
				}
				if _, _, err := other.Release(t.Context(), "", held.ID); err != nil {
					t.Fatal(err)
				}
				tasks, err := other.Tasks()
				if err != nil {
					t.Fatal(err)
				}
				if _, err := tasks.Enqueue(t.Context(), queue.NewTask{Queue: "q", Payload: []byte("1")}); err != nil {
					t.Fatal(err)
				}
				h.send(other, se.Actor().Path, "hello")
				if err := <-answers["stays"]; err != nil {
					t.Errorf("the call of the other sub-agent: %v", err)
				}
			})
		})
	}
}

package dispatch_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/dispatch/process"
	"github.com/leasehold/leasehold/registry"
)

// A hook makes the requests of a client's hook, as the operator.
type hook struct {
	*house
	se  *dispatch.Session
	pid int
}

func (h *house) hook(pid int) hook {
	h.alive.Store(pid, true)
	se, err := h.Connect(h.t.Context(), dispatch.Credentials{Operator: true}, process.Peer{})
	if err != nil {
		h.t.Fatal(err)
	}
	return hook{h, se, pid}
}

const hold = 100 * time.Second

// write takes the leases of files, and reports whether it got them.
func (h hook) write(party string, keys ...string) bool {
	h.t.Helper()
	by, err := h.SessionFor(h.t.Context(), h.se, dispatch.Writer{PID: h.pid, Run: "shop", Home: true, Name: "client", Party: party})
	if err != nil {
		h.t.Fatal(err)
	}
	_, err = by.Guard(h.t.Context(), party, keys, hold, "")
	if held, ok := errors.AsType[*registry.HeldError](err); err != nil && (!ok || held.Holder.Path == "") {
		h.t.Fatal(err)
	}
	return err == nil
}

func (h hook) expect(want bool, party string, keys ...string) {
	h.t.Helper()
	if got := h.write(party, keys...); got != want {
		h.t.Errorf("process %d, sub-agent %q, writes %v: %v, want %v", h.pid, party, keys, got, want)
	}
}

// Clients without their own session exclude each other, and so do the
// sub-agents of one client. What a client holds is released when its process
// ends.
func TestGuestsExcludeEachOther(t *testing.T) {
	inHouse(t, dispatch.Options{}, func(t *testing.T, h *house) {
		one, two := h.hook(10), h.hook(20)
		h.family.Store(20, process.Running{Parent: 10}) // started by the other client, and not as its shim
		one.expect(true, "", "file:a", "file:b")
		two.expect(true, "", "file:x")
		one.expect(false, "", "file:x")
		one.expect(true, "", "file:a")
		two.expect(false, "", "file:a")
		one.expect(false, "sub", "file:a")
		one.expect(true, "sub", "file:c")
		one.expect(false, "", "file:d", "file:c", "file:e") // all or nothing
		two.expect(true, "", "file:d", "file:e")
		h.alive.Store(10, false)
		time.Sleep(3 * time.Second)
		two.expect(true, "", "file:a", "file:b", "file:c")
	})
}

// A client that stays active keeps the files that it has written to, and a
// quiet one does not. Nobody keeps a file for ever that others wait for.
func TestGuardedFilesLastWhileTheirWriterIsHeardFrom(t *testing.T) {
	inHouse(t, dispatch.Options{}, func(t *testing.T, h *house) {
		one, two := h.hook(10), h.hook(20)
		one.expect(true, "", "file:a", "file:wanted")
		for range 3 {
			time.Sleep(hold - time.Second)
			one.expect(true, "", "file:b")
			two.expect(false, "", "file:a")
		}
		by, err := h.SessionFor(t.Context(), two.se, dispatch.Writer{PID: 20, Run: "shop", Home: true, Name: "client"})
		if err != nil {
			t.Fatal(err)
		}
		got := make(chan error, 1)
		go func() {
			for range 3 {
				if _, err = by.Acquire(t.Context(), dispatch.RunScope, registry.Request{Key: "file:wanted", Wait: 50 * time.Second}); err == nil {
					break
				}
			}
			got <- err
		}()
		for range 3 {
			time.Sleep(hold/2 - time.Second)
			one.expect(true, "", "file:b")
		}
		if err := <-got; err != nil {
			t.Errorf("who waited for a file of a client that works on others: %v", err)
		}
		time.Sleep(hold + time.Second)
		two.expect(true, "", "file:a", "file:b")
	})
}

// After a restart of the daemon a guest still holds its leases, if its process
// lives.
func TestARestartKeepsGuests(t *testing.T) {
	inHouse(t, dispatch.Options{}, func(t *testing.T, h *house) {
		one, two := h.hook(10), h.hook(20)
		one.expect(true, "", "file:a")
		two.expect(true, "", "file:b")
		h.alive.Store(20, false)
		h.crash()
		one, three := h.hook(10), h.hook(30)
		three.expect(false, "", "file:a")
		three.expect(true, "", "file:b")
		one.expect(true, "", "file:a")
		h.alive.Store(10, false)
		time.Sleep(3 * time.Second)
		three.expect(true, "", "file:a")
	})
}

// Files that a client has written before its server was running belong to its
// session as soon as the session asks for them, for the same sub-agent and no
// other.
func TestASessionTakesOverFromTheGuest(t *testing.T) {
	inHouse(t, dispatch.Options{}, func(t *testing.T, h *house) {
		one := h.hook(10)
		one.expect(true, "", "file:src/a")
		one.expect(true, "sub", "file:b")
		h.family.Store(11, process.Running{Parent: 10})
		shim := h.connect(dispatch.Credentials{Run: "shop", Name: "shim"}, 11)
		defer h.hangUp(shim)
		acquire := func(party, key string) error {
			_, err := shim.Acquire(t.Context(), dispatch.RunScope, registry.Request{Key: key, TTL: time.Second, Holder: registry.Holder{Party: party}})
			return err
		}
		if err := acquire("", "file:src/a"); err != nil {
			t.Errorf("the session asks for what its client has written to: %v", err)
		}
		if _, ok := errors.AsType[*registry.HeldError](acquire("", "file:b")); !ok {
			t.Error("it is given what its sub-agent has written to")
		}
		if err := acquire("sub", "file:b"); err != nil {
			t.Errorf("the sub-agent asks: %v", err)
		}
		one.expect(true, "sub", "file:b")
		one.expect(true, "", "file:src/a", "file:c")
		if got := h.heldBy(shim, dispatch.RunScope, "file:c"); got != "shim" {
			t.Errorf("a file is held by %s, and its client has a session", got)
		}
		two := h.hook(20)
		two.expect(false, "", "file:src/a")
		two.expect(false, "", "file:b")
	})
}

// What one session of an actor has taken over from another of its sessions is not given
// back with what that other one has written to.
func TestAWriterLetsGoOfNothingThatAnotherSessionTookOver(t *testing.T) {
	inHouse(t, dispatch.Options{}, func(t *testing.T, h *house) {
		_, token := h.add(dispatch.Root, "", "root")
		session := func(shim int) *dispatch.Session {
			h.family.Store(shim, process.Running{Parent: 10})
			return h.connect(dispatch.Credentials{Token: token}, shim)
		}
		first := session(11)
		defer h.hangUp(first)
		if _, err := first.Guard(t.Context(), "", []string{"file:a", "file:b"}, hold, ""); err != nil {
			t.Fatal(err)
		}
		second := session(12)
		defer h.hangUp(second)
		h.take(second, dispatch.RunScope, "file:a", time.Hour)
		if err := first.LetGo(t.Context(), "", true); err != nil {
			t.Fatal(err)
		}
		if got := h.heldBy(second, dispatch.RunScope, "file:a"); got != "root" {
			t.Errorf("what the second session took over is held by %q", got)
		}
		if got := h.heldBy(second, dispatch.RunScope, "file:b"); got != "" {
			t.Errorf("what the first one let go of is held by %q", got)
		}
	})
}

// What another agent of the session goes on with is not given back with what the writer
// has written to either.
func TestAWriterLetsGoOfNothingThatAnotherAgentContinues(t *testing.T) {
	inHouse(t, dispatch.Options{}, func(t *testing.T, h *house) {
		one := h.hook(10)
		one.expect(true, "", "file:a", "file:b", "file:c")
		se := h.SessionsOf(10)[0]
		for _, key := range []string{"file:a", "file:b"} {
			held, err := se.LeasesOn(t.Context(), dispatch.RunScope, key)
			if err != nil || len(held) != 1 {
				t.Fatal(held, err)
			}
			if _, err := se.Renew(t.Context(), "sub", held[0].ID, time.Hour); err != nil {
				t.Fatal(err)
			}
		}
		if err := se.LetGoOf(t.Context(), "", []string{"file:a"}); err != nil {
			t.Fatal(err)
		}
		for _, all := range []bool{false, true} {
			if err := se.LetGo(t.Context(), "", all); err != nil {
				t.Fatal(err)
			}
		}
		two := h.hook(20)
		two.expect(false, "", "file:a")
		two.expect(false, "", "file:b")
		two.expect(true, "", "file:c")
	})
}

// A user who begins another conversation in the same client finds the files free that
// the last one has written to, once it rests. While it works it keeps them, it keeps
// what it asked for itself, and whoever waits gets a file first.
func TestAConversationAtRestGivesWay(t *testing.T) {
	inHouse(t, dispatch.Options{}, func(t *testing.T, h *house) {
		one, two := h.hook(10), h.hook(20)
		one.expect(true, "first", "file:a", "file:b", "file:wanted")
		two.expect(true, "", "file:x")
		of, other := h.SessionsOf(10)[0], h.SessionsOf(20)[0]
		heard := func(name string, main bool) {
			t.Helper()
			if err := of.Heard(t.Context(), name, main); err != nil {
				t.Fatal(err)
			}
		}
		heard("first", true)
		heard("second", true)
		if _, err := of.Acquire(t.Context(), dispatch.RunScope, registry.Request{Key: "file:asked", TTL: time.Hour, Holder: registry.Holder{Party: "first"}}); err != nil {
			t.Fatal(err)
		}
		one.expect(false, "second", "file:a")
		of.Rest("first")
		heard("sub", false)
		one.expect(false, "sub", "file:a")
		two.expect(false, "", "file:a")
		one.expect(true, "second", "file:a")
		one.expect(false, "second", "file:asked")
		heard("first", true)
		one.expect(false, "second", "file:b")
		one.expect(false, "first", "file:a")
		if err := h.Begin(t.Context(), h.SessionsOf(10), "third"); err != nil {
			t.Fatal(err)
		}
		heard("third", true)
		if _, err := of.Acquire(t.Context(), dispatch.RunScope, registry.Request{Key: "file:b", Holder: registry.Holder{Party: "third"}}); err != nil {
			t.Errorf("a new conversation asks for what the last has written to: %v", err)
		}
		got := make(chan error, 1)
		go func() {
			_, err := other.Acquire(t.Context(), dispatch.RunScope, registry.Request{Key: "file:wanted", TTL: time.Minute, Wait: 50 * time.Second})
			got <- err
		}()
		synctest.Wait()
		one.expect(false, "third", "file:wanted")
		if err := <-got; err != nil {
			t.Errorf("whoever waited for the file: %v", err)
		}
	})
}

// A client that starts a server for each conversation, and ends it some time after its
// user has left the conversation, does not lose what it writes in the next one.
func TestAConversationOutlivesTheOneBefore(t *testing.T) {
	for name, calls := range map[string]bool{"that has called": true, "that has only written": false} {
		t.Run(name, func(t *testing.T) {
			inHouse(t, dispatch.Options{}, func(t *testing.T, h *house) {
				one, two := h.hook(10), h.hook(20)
				begin := func(conversation string, shim int) *dispatch.Session {
					h.family.Store(shim, process.Running{Parent: 10})
					se := h.connect(dispatch.Credentials{Run: "shop", Name: conversation}, shim)
					if err := h.Begin(t.Context(), h.SessionsOf(10), conversation); err != nil {
						t.Fatal(err)
					}
					for _, se := range h.SessionsOf(10) {
						if err := se.Heard(t.Context(), conversation, true); err != nil {
							t.Fatal(err)
						}
					}
					return se
				}
				first := begin("first", 11)
				if calls {
					if err := first.HeardAlone(t.Context(), "first"); err != nil {
						t.Fatal(err)
					}
				}
				one.expect(true, "first", "file:a")
				second := begin("second", 12)
				defer h.hangUp(second)
				one.expect(true, "second", "file:a", "file:b")
				one.expect(true, "sub", "file:c")
				h.hangUp(first)
				two.expect(false, "", "file:a")
				two.expect(false, "", "file:b")
				two.expect(false, "", "file:c")
			})
		})
	}
}

// When a writer lets go, the leases that the guard took are released, and no
// others.
func TestAWriterLetsGo(t *testing.T) {
	inHouse(t, dispatch.Options{}, func(t *testing.T, h *house) {
		one, two := h.hook(10), h.hook(20)
		one.expect(true, "", "file:a")
		one.expect(true, "sub", "file:b")
		of := func() *dispatch.Session { return h.SessionsOf(10)[0] }
		h.take(of(), dispatch.RunScope, "file:asked for", time.Hour)
		if err := of().LetGo(t.Context(), "", false); err != nil {
			t.Fatal(err)
		}
		one.expect(true, "sub", "file:a")
		if err := of().LetGo(t.Context(), "", true); err != nil {
			t.Fatal(err)
		}
		two.expect(true, "", "file:a", "file:b")
		two.expect(false, "", "file:asked for")
		synctest.Wait()
	})
}

// The files of a write are taken at once. A refused write has taken none of
// them, not even for a moment, however many files there are and whichever of
// them is held. What the party holds in another session of its client stays
// there.
func TestTheFilesOfAWriteAreTakenAtOnce(t *testing.T) {
	inHouse(t, dispatch.Options{}, func(t *testing.T, h *house) {
		one, two := h.hook(10), h.hook(20)
		two.expect(true, "", "file:m")
		of := func(pid int) *dispatch.Session { return h.SessionsOf(pid)[0] }
		before := h.take(of(20), dispatch.RunScope, "before", time.Hour).Token
		one.expect(true, "", "file:n")
		one.expect(false, "", "file:a", "file:m", "file:z")
		if after := h.take(of(20), dispatch.RunScope, "after", time.Hour).Token; after != before+2 {
			t.Errorf("a refused write took %d leases", after-before-2)
		}
		var many []string
		for i := range 2*registry.MaxWantsNow + 1 {
			many = append(many, fmt.Sprintf("file:many/%03d", i))
		}
		one.expect(false, "", append(slices.Clone(many), "file:m")...)
		two.expect(true, "", many[0], many[len(many)-1])
		one.expect(true, "", many[1:len(many)-1]...)

		h.family.Store(21, process.Running{Parent: 20})
		h.family.Store(22, process.Running{Parent: 20})
		first := h.connect(dispatch.Credentials{Run: "shop", Name: "first"}, 21)
		defer h.hangUp(first)
		second := h.connect(dispatch.Credentials{Run: "shop", Name: "second"}, 22)
		defer h.hangUp(second)
		h.take(second, dispatch.RunScope, "file:p", time.Hour)
		two.expect(false, "", "file:o", "file:p", "file:n")
		two.expect(true, "", "file:o", "file:p", "file:q")
		if got := h.heldBy(first, dispatch.RunScope, "file:p"); got != "second" {
			t.Errorf("what its other session holds is now held by %s", got)
		}
	})
}

// A token that comes over a network, and one of a launched actor, opens the run of that
// actor, and no other one to its hooks. Whoever has connected to the socket otherwise
// could be the operator.
func TestTheHooksOfATokenStayInItsRun(t *testing.T) {
	from := func(transport string) func(h *house) *dispatch.Session {
		return func(h *house) *dispatch.Session {
			h.add(dispatch.Root, "", "root")
			_, token := h.add(dispatch.Worker, "", "w")
			peer := process.Peer{Transport: transport}
			if transport == "unix" {
				peer.PID, peer.Start = 40, "1"
				h.alive.Store(40, true)
			}
			se, err := h.Connect(h.t.Context(), dispatch.Credentials{Token: token}, peer)
			if err != nil {
				h.t.Fatal(err)
			}
			return se
		}
	}
	launched := func(h *house) *dispatch.Session {
		tr := h.started()
		return h.connect(dispatch.Credentials{Token: tr.tokens["root"]}, tr.pid["root"]) // not the session that is kept open for it
	}
	for name, c := range map[string]struct {
		connect func(*house) *dispatch.Session
		free    bool
	}{
		"socket": {from("unix"), true}, "http": {from("http"), false}, "remote": {from("remote"), false}, "launched": {launched, false},
	} {
		t.Run(name, func(t *testing.T) {
			inHouse(t, dispatch.Options{}, func(t *testing.T, h *house) {
				h.hook(10).expect(true, "", "file:a")
				se := c.connect(h)
				held, err := h.Conflicts(t.Context(), se, []int{10}, nil, "shop", []string{"file:a"})
				if err != nil || (len(held) == 1) != c.free {
					t.Errorf("it is told of %v, %v", held, err)
				}
				h.alive.Store(50, true)
				by, err := h.SessionFor(t.Context(), se, dispatch.Writer{PID: 50, Run: "shop", Name: "x"})
				if err != nil || (by.Actor().Run == "shop") != c.free {
					t.Errorf("it writes as %+v, %v", by, err)
				}
			})
		})
	}
}

// The files that a launched agent has leased are its own for all its processes, also if no
// process of it has resumed the session that leased them since the daemon started.
func TestNoProcessOfALaunchedAgentFindsItsFilesHeldByAnother(t *testing.T) {
	inHouse(t, dispatch.Options{}, func(t *testing.T, h *house) {
		tr := h.started()
		h.take(tr.cast["root"], dispatch.RunScope, "file:a", time.Hour)
		h.crash()
		shell := h.connect(dispatch.Credentials{Token: tr.tokens["root"]}, tr.pid["root"])
		for who, want := range map[*dispatch.Session]int{shell: 0, h.hook(10).se: 1} {
			held, err := h.Conflicts(t.Context(), who, nil, nil, "r", []string{"file:a"})
			if err != nil || len(held) != want {
				t.Errorf("for %s the file is held by %v, %v", who.Actor().Path, held, err)
			}
		}
	})
}

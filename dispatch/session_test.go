package dispatch_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/dispatch/process"
	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/pebble"
	"github.com/leasehold/leasehold/layer"
	"github.com/leasehold/leasehold/registry"
)

func TestCredentialsThatOpenNothing(t *testing.T) {
	inHouse(t, dispatch.Options{}, func(t *testing.T, h *house) {
		_, token := h.add(dispatch.Root, "", "boss")
		_, other := h.add(dispatch.Worker, "", "W1")
		se := h.connect(dispatch.Credentials{Token: token}, 1)
		defer h.hangUp(se)
		for _, c := range []dispatch.Credentials{
			{Token: "x"},
			{Token: token + "A"},
			{Token: token[:len(token)-4] + "AAAA"},
			{Token: strings.Replace(token, "lht_", "lhs_", 1)},
			{Token: se.Handle()},
			{Handle: token},
			{Handle: se.Handle(), Token: other},
			{Handle: se.Handle()[:len(se.Handle())-4] + "AAAA"},
		} {
			if _, err := h.Connect(t.Context(), c, process.Peer{}); !errors.Is(err, dispatch.ErrUnauthenticated) {
				t.Errorf("%+v: %v", c, err)
			}
		}
		if _, err := h.Connect(t.Context(), dispatch.Credentials{}, process.Peer{}); !names("run")(err) {
			t.Errorf("no credentials: %v", err)
		}
	})
}

func TestASessionLastsAsLongAsAnyOfItsConnections(t *testing.T) {
	inHouse(t, dispatch.Options{}, func(t *testing.T, h *house) {
		_, token := h.add(dispatch.Root, "", "boss")
		one := h.connect(dispatch.Credentials{Token: token}, 1)
		two := h.connect(dispatch.Credentials{Handle: one.Handle()}, 1)
		if !two.Resumed() || two.ID() != one.ID() || two.Actor().Path != "root" {
			t.Fatalf("resumed %v as %s of %s", two.Resumed(), two.ID(), two.Actor().Path)
		}
		h.take(one, dispatch.RunScope, "x", time.Hour)
		h.hangUp(one)
		h.hangUp(one) // counts once
		if got := h.heldBy(two, dispatch.RunScope, "x"); got != "root" {
			t.Errorf("held by %q while a connection lives", got)
		}
		h.hangUp(two)
		three := h.connect(dispatch.Credentials{Token: token, Handle: two.Handle()}, 1)
		defer h.hangUp(three)
		if three.Resumed() {
			t.Error("resumed a session that has ended")
		}
		if got := h.heldBy(three, dispatch.RunScope, "x"); got != "" {
			t.Errorf("held by %q after the last connection", got)
		}
	})
}

func TestTheEndOfASessionHandsOverInEveryScope(t *testing.T) {
	inHouse(t, dispatch.Options{}, func(t *testing.T, h *house) {
		h.add(dispatch.Root, "", "boss")
		_, t1 := h.add(dispatch.Worker, "", "W1")
		_, t2 := h.add(dispatch.Worker, "", "W2")
		a, b := h.connect(dispatch.Credentials{Token: t1}, 1), h.connect(dispatch.Credentials{Token: t2}, 2)
		defer h.hangUp(b)
		var wg sync.WaitGroup
		for _, scope := range []dispatch.Scope{dispatch.LayerScope, dispatch.RunScope} {
			h.take(a, scope, "x", time.Hour)
			wg.Go(func() {
				if _, err := b.Acquire(t.Context(), scope, registry.Request{Key: "x", Wait: time.Second}); err != nil {
					t.Errorf("%s: %v", scope, err)
				}
			})
		}
		synctest.Wait()
		h.hangUp(a)
		wg.Wait()
	})
}

// Of a client that has no process here, only its return shows after a restart that it
// lives. If it does not return, what it held is free long before the ttl.
func TestWhoIsNotSeenAndDoesNotComeBackAfterARestartIsGone(t *testing.T) {
	for name, c := range map[string]struct {
		peer  process.Peer
		alive bool          // a process here has its pid
		until time.Duration // its session is kept; 0: as long as its lease
	}{
		"a process here":                    {process.Peer{PID: 5, Start: "1", Transport: "unix"}, true, 0},
		"a process of another machine":      {process.Peer{PID: 5, Start: "1", Transport: "unix", Machine: "another"}, true, 30 * time.Second},
		"a connection from another machine": {process.Peer{Transport: "remote"}, false, 30 * time.Second},
		"requests over HTTP":                {process.Peer{Transport: "http"}, false, 15 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			inHouse(t, dispatch.Options{}, func(t *testing.T, h *house) {
				_, token := h.add(dispatch.Root, "", "boss")
				h.alive.Store(5, c.alive)
				se, err := h.Connect(t.Context(), dispatch.Credentials{Token: token}, c.peer)
				if err != nil {
					t.Fatal(err)
				}
				h.take(se, dispatch.RunScope, "x", time.Hour)
				h.crash()
				_, token = h.add(dispatch.Worker, "", "W1")
				other := h.connect(dispatch.Credentials{Token: token}, 6)
				defer h.hangUp(other)
				began := time.Now()
				for _, at := range []time.Duration{29 * time.Second, 2 * time.Second, 14*time.Minute + 28*time.Second, 2 * time.Second} {
					time.Sleep(at)
					since := time.Since(began)
					want := "root"
					if c.until > 0 && since > c.until {
						want = ""
					}
					if got := h.heldBy(other, dispatch.RunScope, "x"); got != want {
						t.Errorf("%v after the restart it is held by %q, want %q", since, got, want)
					}
				}
			})
		})
	}
}

func TestARestartKeepsTheSessionsOfLivingProcesses(t *testing.T) {
	inHouse(t, dispatch.Options{}, func(t *testing.T, h *house) {
		h.add(dispatch.Root, "", "boss")
		var handles []string
		var grants []registry.Grant
		for i := range 3 {
			se := h.member(dispatch.Worker, "", fmt.Sprint("W", i), 100+i)
			handles = append(handles, se.Handle())
			grants = append(grants, h.take(se, dispatch.RunScope, fmt.Sprint("key", i), 10*time.Second))
		}
		h.alive.Store(101, false) // dies with the daemon
		h.crash()

		back := h.connect(dispatch.Credentials{Handle: handles[0]}, 100)
		if !back.Resumed() || back.Actor().Path != "W0" {
			t.Fatalf("resumed %v as %s", back.Resumed(), back.Actor().Path)
		}
		if l, err := back.Renew(t.Context(), "", grants[0].ID, 0); err != nil || l.Token != grants[0].Token {
			t.Errorf("renewal: %+v %v", l, err)
		}
		if got := h.heldBy(back, dispatch.RunScope, "key1"); got != "" {
			t.Errorf("the lease of a process that is gone is held by %s", got)
		}
		if got := h.heldBy(back, dispatch.RunScope, "key2"); got != "W2" {
			t.Errorf("the lease of a living process is held by %q", got)
		}
		if _, err := h.Connect(t.Context(), dispatch.Credentials{Handle: handles[1]}, process.Peer{}); !errors.Is(err, dispatch.ErrUnauthenticated) {
			t.Errorf("the dead process's handle: %v", err)
		}

		// W2's process lives and never comes back. Its lease ends with the ttl,
		// and finally its session ends too.
		time.Sleep(11 * time.Second)
		if got := h.heldBy(back, dispatch.RunScope, "key2"); got != "" {
			t.Errorf("after its ttl it is held by %q", got)
		}
		time.Sleep(30 * time.Second)
		if _, err := h.Connect(t.Context(), dispatch.Credentials{Handle: handles[2]}, process.Peer{}); !errors.Is(err, dispatch.ErrUnauthenticated) {
			t.Errorf("the handle of a session never resumed: %v", err)
		}
		h.hangUp(back)
	})
}

func TestADetachedProcessThatDiesGivesBackAtOnce(t *testing.T) {
	inHouse(t, dispatch.Options{}, func(t *testing.T, h *house) {
		se := h.member(dispatch.Root, "", "boss", 7)
		h.take(se, dispatch.RunScope, "x", time.Hour)
		h.crash()
		w := h.member(dispatch.Worker, "", "W1", 8)
		defer h.hangUp(w)
		time.Sleep(10 * time.Second)
		if got := h.heldBy(w, dispatch.RunScope, "x"); got != "root" {
			t.Errorf("held by %q while its process lives", got)
		}
		h.alive.Store(7, false)
		time.Sleep(1100 * time.Millisecond)
		if got := h.heldBy(w, dispatch.RunScope, "x"); got != "" {
			t.Errorf("held by %q after its process died", got)
		}
	})
}

// A program of leasehold exec makes calls in exec's session. After a restart a call may be
// back before exec is. The session does not end with that call, but with exec.
func TestAProcessIsAwaitedThoughAnotherSharesItsSession(t *testing.T) {
	for _, machine := range []string{"", "another"} {
		for _, comes := range []bool{true, false} {
			inHouse(t, dispatch.Options{}, func(t *testing.T, h *house) {
				_, token := h.add(dispatch.Root, "", "boss")
				connect := func(c dispatch.Credentials, pid int) *dispatch.Session {
					h.alive.Store(pid, true)
					se, err := h.Connect(t.Context(), c, process.Peer{PID: pid, Start: "1", Transport: "unix", Machine: machine})
					if err != nil {
						t.Fatal(err)
					}
					return se
				}
				se := connect(dispatch.Credentials{Token: token}, 7)
				h.take(se, dispatch.RunScope, "x", time.Hour)
				h.crash()
				w := h.member(dispatch.Worker, "", "W1", 8)
				defer h.hangUp(w)
				held := func(when, want string) {
					t.Helper()
					if got := h.heldBy(w, dispatch.RunScope, "x"); got != want {
						t.Errorf("machine %q: %s it is held by %q, want %q", machine, when, got, want)
					}
				}
				for range 2 {
					h.hangUp(connect(dispatch.Credentials{Handle: se.Handle()}, 9))
					held("after a call", "root")
				}
				if machine == "" {
					time.Sleep(time.Minute)
					held("while its process lives", "root")
				}
				switch {
				case comes:
					back := connect(dispatch.Credentials{Handle: se.Handle()}, 7)
					call := connect(dispatch.Credentials{Handle: se.Handle()}, 9)
					h.hangUp(back)
					held("during a call", "root")
					h.hangUp(call)
				case machine == "":
					h.alive.Store(7, false)
					time.Sleep(1100 * time.Millisecond)
				default: // nobody here sees whether it lives
					time.Sleep(31 * time.Second)
				}
				held("at last", "")
			})
		}
	}
}

func TestResumingRacesWithEnding(t *testing.T) {
	inHouse(t, dispatch.Options{}, func(t *testing.T, h *house) {
		_, token := h.add(dispatch.Root, "", "boss")
		for range 100 {
			one := h.connect(dispatch.Credentials{Token: token}, 1)
			h.take(one, dispatch.RunScope, "x", time.Hour)
			var two *dispatch.Session
			var wg sync.WaitGroup
			wg.Go(func() { h.hangUp(one) })
			wg.Go(func() {
				two, _ = h.Connect(t.Context(), dispatch.Credentials{Handle: one.Handle()}, process.Peer{PID: 1, Start: "1"})
			})
			wg.Wait()
			// Either it was resumed and is complete, or it has ended.
			if two != nil {
				if g := h.take(two, dispatch.RunScope, "x", time.Hour); !g.Reentrant {
					t.Fatal("resumed, and the lease is lost")
				}
				h.hangUp(two)
			}
		}
	})
}

func TestAnActorThatEndsWhileItConnectsKeepsNoSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		state, late, closeEngine := openLate(t, vfs.NewCrashableMem())
		defer closeEngine()
		_, token, err := state.AddActor(t.Context(), dispatch.NewActor{Run: "r", Name: "boss", Role: dispatch.Root})
		if err != nil {
			t.Fatal(err)
		}
		// The actor ends after its session is stored and before the caller
		// knows that.
		late.after = func() {
			if err := state.EndActor(t.Context(), "r", "root", "over"); err != nil {
				t.Error(err)
			}
		}
		se, err := state.Connect(t.Context(), dispatch.Credentials{Token: token}, process.Peer{})
		if err == nil {
			t.Errorf("connected, and the context of the session has ended: %v", se.Context().Err())
		}
		if !errors.Is(err, dispatch.ErrUnauthenticated) {
			t.Errorf("connecting answers %v, not that the actor has ended", err)
		}
	})
}

// A lateEngine calls after between the next commit and its return.
type lateEngine struct {
	engine.Engine
	after func()
}

// openLate opens a state on a lateEngine. No process is running in it.
func openLate(t *testing.T, fs vfs.FS) (state *dispatch.State, late *lateEngine, closeEngine func() error) {
	t.Helper()
	eng, err := pebble.Open(pebble.Options{Dir: "state", FS: fs})
	if err != nil {
		t.Fatal(err)
	}
	late = &lateEngine{Engine: eng}
	state, err = dispatch.Open(t.Context(), late, dispatch.Options{Process: func(int) process.Running { return process.Running{} }})
	if err != nil {
		t.Fatal(err)
	}
	return state, late, eng.Close
}

func (e *lateEngine) Update(ctx context.Context, fn func(engine.Tx) error) error {
	err := e.Engine.Update(ctx, fn)
	if after := e.after; after != nil {
		e.after = nil
		after()
	}
	return err
}

func TestLayersThatASessionCanName(t *testing.T) {
	inHouse(t, dispatch.Options{}, func(t *testing.T, h *house) {
		_, root := h.add(dispatch.Root, "", "boss")
		_, s1 := h.add(dispatch.Sublead, "", "S1")
		_, w1 := h.add(dispatch.Worker, "S1", "W1")
		_, _, err := h.AddActor(t.Context(), dispatch.NewActor{Run: "r", Name: "open", Role: dispatch.Sublead, ReadDown: true})
		if err != nil {
			t.Fatal(err)
		}
		lead := h.connect(dispatch.Credentials{Token: root}, 1)
		sub := h.connect(dispatch.Credentials{Token: s1}, 2)
		worker := h.connect(dispatch.Credentials{Token: w1}, 3)
		for _, c := range []struct {
			se    *dispatch.Session
			layer string
			path  string
			want  func(error) bool
		}{
			{lead, "self", "/ref/plan", is(nil)},
			{sub, "self", "/ref/plan", is(nil)},
			{worker, "self", "/ref/plan", forbidden},
			{worker, "self", "/peer/self/x", is(nil)},
			{sub, "parent", "/peer/self/x", is(nil)},
			{sub, "parent", "/ref/plan", forbidden},
			{lead, "parent", "/shared/x", forbidden},
			{worker, "parent", "/shared/x", forbidden},
			{lead, "open", "/shared/x", forbidden}, // read only
			{lead, "S1", "/shared/x", forbidden},
			{sub, "root", "/shared/x", func(err error) bool {
				return is(dispatch.ErrNotFound)(err) && strings.Contains(err.Error(), `"parent"`)
			}},
			{lead, "S9", "/shared/x", is(dispatch.ErrNotFound)},
			{worker, "S1", "/shared/x", forbidden},
		} {
			err := write(t, c.se, c.layer, c.path)
			if !c.want(err) {
				t.Errorf("%s writes %s in layer %s: %v", c.se.Actor().Path, c.path, c.layer, err)
			}
		}
		view, err := lead.Store(t.Context(), "open")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := view.List(t.Context(), layer.Listing{Glob: "/**"}); err != nil {
			t.Errorf("reading down: %v", err)
		}
		// What a sub-lead wrote to the layer above is visible there under its
		// name.
		view, err = lead.Store(t.Context(), "self")
		if err != nil {
			t.Fatal(err)
		}
		if e, err := view.Get(t.Context(), "/peer/S1/x"); err != nil || e == nil {
			t.Errorf("published: %v %v", e, err)
		}
		for _, se := range []*dispatch.Session{lead, sub, worker} {
			h.hangUp(se)
		}
	})
}

func forbidden(err error) bool {
	var d *dispatch.ForbiddenError
	var l *layer.ForbiddenError
	return errors.As(err, &d) || errors.As(err, &l)
}

func write(t *testing.T, se *dispatch.Session, name, path string) error {
	view, err := se.Store(t.Context(), name)
	if err != nil {
		return err
	}
	_, err = view.Set(t.Context(), layer.Write{Path: path, Value: []byte(`1`)})
	return err
}

func TestAnOperatorIsInNoTree(t *testing.T) {
	inHouse(t, dispatch.Options{}, func(t *testing.T, h *house) {
		se := h.connect(dispatch.Credentials{Operator: true}, 1)
		defer h.hangUp(se)
		if _, err := se.Acquire(t.Context(), dispatch.RunScope, registry.Request{Key: "x"}); !forbidden(err) {
			t.Errorf("acquire: %v", err)
		}
		if _, err := se.Store(t.Context(), "self"); !forbidden(err) {
			t.Errorf("store: %v", err)
		}
	})
}

func TestALossIsToldInTheNextAnswerAndToThoseWhoListen(t *testing.T) {
	inHouse(t, dispatch.Options{}, func(t *testing.T, h *house) {
		se := h.member(dispatch.Root, "", "boss", 1)
		heard := make(chan registry.Notice, 1)
		follow := se.WatchNotices()
		g := h.take(se, dispatch.RunScope, "x", time.Second)
		time.Sleep(2 * time.Second)
		go follow(se.Context(), func(l registry.Notice) { heard <- l }) // it got no processor before
		if l := <-heard; l.LeaseID != g.ID {
			t.Errorf("heard of %+v", l)
		}
		for i, want := range []int{1, 0} {
			news, _, err := se.TakeNotices(t.Context(), "", dispatch.Model)
			if err != nil || len(news) != want {
				t.Errorf("answer %d tells %+v %v", i, news, err)
			}
		}
		h.hangUp(se)
		synctest.Wait()
	})
}

// TestAPrefixMeansBothScopes: a run's lease may have a key such as /leases/x,
// which for a layer means the lease x.
func TestAPrefixMeansBothScopes(t *testing.T) {
	inHouse(t, dispatch.Options{}, func(t *testing.T, h *house) {
		se := h.member(dispatch.Root, "", "boss", 1)
		defer h.hangUp(se)
		h.take(se, dispatch.RunScope, "/leases/x", time.Minute)
		h.take(se, dispatch.RunScope, "x", time.Minute)
		h.take(se, dispatch.LayerScope, "x", time.Minute)
		for prefix, want := range map[string]int{"/leases/x": 2, "x": 2, "/leases/": 2, "/leases/y": 0, "": 3} {
			page, err := se.Leases(t.Context(), dispatch.LeaseQuery{Scopes: []dispatch.Scope{dispatch.LayerScope, dispatch.RunScope}, Prefix: prefix})
			if err != nil || len(page.Leases) != want {
				t.Errorf("prefix %q: %+v %v, want %d", prefix, page.Leases, err, want)
			}
		}
	})
}

// TestNoLossIsToldOneAnswerLate: not after an answer that was cut off while it
// read the notices, not if many answers read them at once, and not if one
// answer cannot tell all of them.
func TestNoLossIsToldOneAnswerLate(t *testing.T) {
	inHouse(t, dispatch.Options{}, func(t *testing.T, h *house) {
		se := h.member(dispatch.Root, "", "boss", 1)
		defer h.hangUp(se)
		lose := func(n int) {
			t.Helper()
			for i := range n {
				h.take(se, dispatch.RunScope, fmt.Sprint(i), time.Second)
			}
			time.Sleep(3 * time.Second)
			synctest.Wait()
		}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		lose(1)
		for range 64 { // some of them get as far as reading the notices
			if news, _, err := se.TakeNotices(gone, "", dispatch.Model); err == nil {
				t.Fatalf("an answer to nobody tells %+v", news)
			}
		}
		if news, _, err := se.TakeNotices(t.Context(), "", dispatch.Model); err != nil || len(news) != 1 {
			t.Errorf("after answers that were cut off: %+v %v", news, err)
		}

		for range 20 {
			lose(3)
			var told atomic.Int64
			var answers sync.WaitGroup
			for range 8 {
				answers.Go(func() {
					news, _, err := se.TakeNotices(t.Context(), "", dispatch.Model)
					if err != nil {
						t.Error(err)
					}
					told.Add(int64(len(news)))
				})
			}
			answers.Wait()
			if told.Load() != 3 {
				t.Fatalf("answers that looked at once told %d of 3 losses", told.Load())
			}
		}

		lose(dispatch.MaxNotices + 5)
		for i, want := range []int{dispatch.MaxNotices, 5, 0} {
			news, more, err := se.TakeNotices(t.Context(), "", dispatch.Model)
			if err != nil || len(news) != want || i == 0 && more != 5 || i > 0 && more != 0 {
				t.Errorf("answer %d tells %d and %d more: %v", i, len(news), more, err)
			}
		}
	})
}

// An answer that nobody reads has told nothing. Notices that were told long
// before have been read.
func TestALossIsToldAgainIfItsAnswerIsNotRead(t *testing.T) {
	inHouse(t, dispatch.Options{}, func(t *testing.T, h *house) {
		se := h.member(dispatch.Root, "", "boss", 1)
		h.take(se, dispatch.RunScope, "x", time.Second)
		time.Sleep(2 * time.Second)
		for i, want := range []int{1, 1, 0} {
			news, _, err := se.TakeNotices(t.Context(), "", dispatch.Model)
			if err != nil || len(news) != want {
				t.Errorf("answer %d tells %+v %v", i, news, err)
			}
			time.Sleep(time.Duration(i) * 2 * time.Minute)
			if err := se.Retell(t.Context()); err != nil {
				t.Error(err)
			}
		}
		h.hangUp(se)
		synctest.Wait()
	})
}

// TestAllThatAnswersToldIsToldAgain if none of them was read, and not only what the last told.
func TestAllThatAnswersToldIsToldAgain(t *testing.T) {
	inHouse(t, dispatch.Options{}, func(t *testing.T, h *house) {
		se := h.member(dispatch.Root, "", "boss", 1)
		defer h.hangUp(se)
		for i := range dispatch.MaxNotices + 5 {
			h.take(se, dispatch.RunScope, fmt.Sprint(i), time.Second)
		}
		time.Sleep(3 * time.Second)
		for _, round := range []string{"at first", "again"} {
			for i, want := range []int{dispatch.MaxNotices, 5, 0} {
				news, _, err := se.TakeNotices(t.Context(), "", dispatch.Model)
				if err != nil || len(news) != want {
					t.Errorf("%s, answer %d tells %d: %v", round, i, len(news), err)
				}
			}
			if err := se.Retell(t.Context()); err != nil {
				t.Error(err)
			}
		}
	})
}

// A program is told what its own session lost, and leaves what an earlier session lost to a
// model, whether that has the same session or another.
func TestAProgramLeavesTheLossesOfEarlierSessionsToAModel(t *testing.T) {
	for _, same := range []bool{false, true} {
		inHouse(t, dispatch.Options{}, func(t *testing.T, h *house) {
			_, token := h.add(dispatch.Root, "", "boss")
			last := h.connect(dispatch.Credentials{Token: token}, 1)
			program := h.connect(dispatch.Credentials{Token: token}, 2)
			model := h.connect(dispatch.Credentials{Token: token}, 3)
			if same {
				model = program
			}
			tells := func(se *dispatch.Session, by dispatch.Audience, want ...string) {
				t.Helper()
				news, more, err := se.TakeNotices(t.Context(), "", by)
				var keys []string
				for _, n := range news {
					keys = append(keys, n.Key)
				}
				if err != nil || more != 0 || !slices.Equal(keys, want) {
					t.Errorf("told %q and %d more (%v), want %q", keys, more, err, want)
				}
			}
			h.take(last, dispatch.RunScope, "x", time.Minute)
			h.take(program, dispatch.RunScope, "y", time.Second)
			time.Sleep(2 * time.Second)
			h.hangUp(last)
			synctest.Wait()
			tells(program, dispatch.Program, "y")
			tells(program, dispatch.Program)
			tells(model, dispatch.Model, "x")
			tells(model, dispatch.Model)
			h.hangUp(program)
			h.hangUp(model)
			synctest.Wait()
		})
	}
}

// A session that asked in vain is told what the actor's earlier session lost as soon as
// that one has ended, also if nothing else has happened since.
func TestTheNextSessionIsToldOfLossesOfTheLast(t *testing.T) {
	for _, wasTold := range []bool{false, true} {
		inHouse(t, dispatch.Options{}, func(t *testing.T, h *house) {
			_, token := h.add(dispatch.Root, "", "boss")
			last := h.connect(dispatch.Credentials{Token: token}, 1)
			next := h.connect(dispatch.Credentials{Token: token}, 2)
			h.take(last, dispatch.RunScope, "x", time.Second)
			time.Sleep(2 * time.Second)
			if wasTold { // in an answer that its client may not have read
				if news, _, err := last.TakeNotices(t.Context(), "", dispatch.Model); err != nil || len(news) != 1 {
					t.Fatalf("%+v %v", news, err)
				}
			}
			for _, want := range []int{0, 1, 0} {
				news, _, err := next.TakeNotices(t.Context(), "", dispatch.Model)
				if err != nil || len(news) != want {
					t.Errorf("told before %v: %+v %v, want %d", wasTold, news, err, want)
				}
				if want == 0 {
					h.hangUp(last)
					synctest.Wait()
				}
			}
			h.hangUp(next)
			synctest.Wait()
		})
	}
}

// After a power cut the sessions of this machine are gone, and what they held
// may be too. Sessions of other machines lose nothing, not even what a session
// of this machine handed over to them, and tokens rise.
func TestAPowerCutTakesNothingFromThoseWhoSurviveIt(t *testing.T) {
	inHouse(t, dispatch.Options{}, func(t *testing.T, h *house) {
		h.add(dispatch.Root, "", "boss")
		_, here := h.add(dispatch.Worker, "", "here")
		_, there := h.add(dispatch.Worker, "", "there")
		local := h.connect(dispatch.Credentials{Token: here}, 100)
		remote, err := h.Connect(t.Context(), dispatch.Credentials{Token: there}, process.Peer{Transport: "http"})
		if err != nil {
			t.Fatal(err)
		}
		last := h.take(remote, dispatch.RunScope, "mine", time.Minute)
		held := h.take(local, dispatch.RunScope, "handed over", time.Minute)
		got := make(chan registry.Grant, 1)
		go func() {
			g, err := remote.Acquire(t.Context(), dispatch.RunScope, registry.Request{Key: "handed over", Wait: time.Second})
			if err != nil {
				t.Errorf("hand-over: %v", err)
			}
			got <- g
		}()
		synctest.Wait()
		if ok, _, err := local.Release(t.Context(), "", held.ID); !ok {
			t.Fatal(err)
		}
		last = <-got
		for i := range 5 {
			g := h.take(local, dispatch.RunScope, fmt.Sprint("local", i), time.Minute)
			if g.Token <= last.Token {
				t.Errorf("token %d after %d", g.Token, last.Token)
			}
			last = g
		}
		h.powerCut()
		back, err := h.Connect(t.Context(), dispatch.Credentials{Handle: remote.Handle()}, process.Peer{Transport: "http"})
		if err != nil {
			t.Fatal(err)
		}
		for key, want := range map[string]string{"mine": "there", "handed over": "there", "local0": "", "local4": ""} {
			if by := h.heldBy(back, dispatch.RunScope, key); by != want {
				t.Errorf("%q is held by %q, want %q", key, by, want)
			}
		}
		if g := h.take(back, dispatch.RunScope, "local4", time.Minute); g.Token <= last.Token {
			t.Errorf("token %d after %d", g.Token, last.Token)
		}
		if _, err := h.Connect(t.Context(), dispatch.Credentials{Handle: local.Handle()}, process.Peer{PID: 100}); !errors.Is(err, dispatch.ErrUnauthenticated) {
			t.Errorf("a session of the machine before: %v", err)
		}
		h.hangUp(back)
	})
}

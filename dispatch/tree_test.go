package dispatch_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/dispatch/process"
	"github.com/leasehold/leasehold/registry"
)

func TestPathsNameTheWayFromTheRoot(t *testing.T) {
	inHouse(t, dispatch.Options{}, func(t *testing.T, h *house) {
		for _, c := range []struct {
			role         dispatch.Role
			parent, name string
			path         string
		}{
			{dispatch.Root, "", "boss", "root"},
			{dispatch.Worker, "", "W1", "W1"},
			{dispatch.Sublead, "root", "S1", "S1"},
			{dispatch.Worker, "S1", "W1", "S1→W1"},
			{dispatch.Sublead, "S1", "S2", "S1→S2"},
			{dispatch.Sublead, "S1→S2", "S3", "S1→S2→S3"},
			{dispatch.Worker, "S1→S2→S3", "W", "S1→S2→S3→W"},
		} {
			if a, _ := h.add(c.role, c.parent, c.name); a.Path != c.path {
				t.Errorf("%s below %q has path %s, want %s", c.name, c.parent, a.Path, c.path)
			}
		}
	})
}

func TestActorsThatCannotBeAreRefusedAndLeaveNothing(t *testing.T) {
	inHouse(t, dispatch.Options{Caps: dispatch.Caps{Depth: 2, LayerActors: 3}}, func(t *testing.T, h *house) {
		h.add(dispatch.Root, "", "boss")
		h.add(dispatch.Sublead, "", "S1")
		h.add(dispatch.Worker, "S1", "W1")
		before, err := h.Runs(t.Context(), "r")
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			add  dispatch.NewActor
			want func(error) bool
		}{
			{dispatch.NewActor{Run: "r", Name: "x", Role: dispatch.Root}, is(dispatch.ErrExists)},
			{dispatch.NewActor{Run: "r", Name: "S1", Role: dispatch.Worker}, is(dispatch.ErrExists)},
			{dispatch.NewActor{Run: "r", Name: "boss", Role: dispatch.Worker}, is(dispatch.ErrExists)},
			{dispatch.NewActor{Run: "r", Name: "x", Role: dispatch.Worker, Parent: "S9"}, is(dispatch.ErrNotFound)},
			{dispatch.NewActor{Run: "none", Name: "x", Role: dispatch.Worker}, is(dispatch.ErrNotFound)},
			{dispatch.NewActor{Run: "r", Name: "x", Role: dispatch.Worker, Parent: "S1→W1"}, names("parent")},
			{dispatch.NewActor{Run: "r", Name: "x", Role: "chief"}, names("role")},
			{dispatch.NewActor{Run: "r", Name: "x", Role: dispatch.Worker, Caps: dispatch.Caps{Depth: 3}}, names("max_depth")},
			{dispatch.NewActor{Run: "r", Name: "x", Role: dispatch.Sublead, Caps: dispatch.Caps{Depth: 3}}, names("max_depth")},
			{dispatch.NewActor{Run: "r", Name: "x", Role: dispatch.Worker, ReadDown: true}, names("read_down")},
			{dispatch.NewActor{Run: "new", Name: "x", Role: dispatch.Root, ReadDown: true}, names("read_down")},
			{dispatch.NewActor{Run: "r", Name: "x", Role: dispatch.Operator}, names("role")},
			{dispatch.NewActor{Run: "a/b", Name: "x", Role: dispatch.Root}, names("run")},
			{dispatch.NewActor{Run: "r", Name: "", Role: dispatch.Worker}, names("name")},
			{dispatch.NewActor{Run: "r", Name: "a/b", Role: dispatch.Worker}, names("name")},
			{dispatch.NewActor{Run: "r", Name: "a→b", Role: dispatch.Worker}, names("name")},
			{dispatch.NewActor{Run: "r", Name: "..", Role: dispatch.Worker}, names("name")},
			{dispatch.NewActor{Run: "r", Name: "self", Role: dispatch.Worker}, names("name")},
			{dispatch.NewActor{Run: "r", Name: "root", Role: dispatch.Worker}, names("name")},
			{dispatch.NewActor{Run: "r", Name: "7f2c8a52-1de0-4d5a-9a3e-1f2b3c4d5e6f", Role: dispatch.Worker}, names("name")},
		} {
			if _, _, err := h.AddActor(t.Context(), c.add); !c.want(err) {
				t.Errorf("%+v: %v", c.add, err)
			}
		}
		h.add(dispatch.Sublead, "S1", "S2")
		deep := dispatch.NewActor{Run: "r", Name: "x", Role: dispatch.Worker, Parent: "S1→S2"}
		if _, _, err := h.AddActor(t.Context(), deep); !limit(2)(err) {
			t.Errorf("too deep: %v", err)
		}
		h.add(dispatch.Worker, "", "W2")
		h.add(dispatch.Worker, "", "W3")
		if _, _, err := h.AddActor(t.Context(), dispatch.NewActor{Run: "r", Name: "x", Role: dispatch.Worker}); !limit(3)(err) {
			t.Errorf("too many: %v", err)
		}
		after, err := h.Runs(t.Context(), "r")
		if err != nil {
			t.Fatal(err)
		}
		if got, want := len(after[0].Actors), len(before[0].Actors)+3; got != want {
			t.Errorf("%d actors, want %d", got, want)
		}
	})
}

func is(target error) func(error) bool {
	return func(err error) bool { return errors.Is(err, target) }
}

func names(argument string) func(error) bool {
	return func(err error) bool {
		var bad *registry.ArgumentError
		return errors.As(err, &bad) && bad.Argument == argument
	}
}

func limit(n int64) func(error) bool {
	return func(err error) bool {
		var limit *registry.LimitError
		return errors.As(err, &limit) && limit.Max == n
	}
}

func TestEndingASubleadEndsItsSubTree(t *testing.T) {
	inHouse(t, dispatch.Options{}, func(t *testing.T, h *house) {
		h.add(dispatch.Root, "", "boss")
		_, other := h.add(dispatch.Worker, "", "other")
		_, lead := h.add(dispatch.Sublead, "", "S1")
		_, worker := h.add(dispatch.Worker, "S1", "W1")
		_, deep := h.add(dispatch.Sublead, "S1", "S2")
		_, deepest := h.add(dispatch.Worker, "S1→S2", "W1")

		outside := h.connect(dispatch.Credentials{Token: other}, 1)
		defer h.hangUp(outside)
		var inside []*dispatch.Session
		for i, token := range []string{lead, worker, deep, deepest} {
			se := h.connect(dispatch.Credentials{Token: token}, 10+i)
			inside = append(inside, se)
			h.take(se, dispatch.RunScope, fmt.Sprint("key", i), time.Hour)
			h.take(se, dispatch.LayerScope, fmt.Sprint("key", i), time.Hour)
		}
		// An actor of the sub-tree waits for the lease of another one. It must
		// not get the lease while the sub-tree ends.
		errs := make(chan error, 1)
		go func() {
			_, err := inside[1].Acquire(t.Context(), dispatch.RunScope, registry.Request{Key: "key3", Wait: 50 * time.Second})
			errs <- err
		}()
		time.Sleep(time.Second)

		if err := h.EndActor(t.Context(), "r", "S1", "enough"); err != nil {
			t.Fatal(err)
		}
		if err := <-errs; err == nil {
			t.Error("granted to an actor that was ended in the same instant")
		}
		for i, se := range inside {
			if se.Context().Err() == nil {
				t.Errorf("session %d lives on", i)
			}
			if _, err := se.Acquire(t.Context(), dispatch.RunScope, registry.Request{Key: "late"}); err == nil {
				t.Errorf("session %d still acquires", i)
			}
			if g := h.take(outside, dispatch.RunScope, fmt.Sprint("key", i), time.Minute); g.Reentrant {
				t.Errorf("key%d was not free", i)
			}
			h.hangUp(se)
		}
		for _, token := range []string{lead, worker, deep, deepest} {
			if _, err := h.Connect(t.Context(), dispatch.Credentials{Token: token}, process.Peer{}); !errors.Is(err, dispatch.ErrUnauthenticated) {
				t.Errorf("an ended actor's token: %v", err)
			}
		}
	})
}

func TestARunEndsWithItsRootAndItsNameCanBeUsedAgain(t *testing.T) {
	inHouse(t, dispatch.Options{}, func(t *testing.T, h *house) {
		se := h.member(dispatch.Root, "", "boss", 1)
		h.take(se, dispatch.RunScope, "x", time.Hour)
		if err := h.EndActor(t.Context(), "r", "root", "done"); err != nil {
			t.Fatal(err)
		}
		if err := h.EndActor(t.Context(), "r", "root", "done"); !errors.Is(err, dispatch.ErrNotFound) {
			t.Errorf("ending it again: %v", err)
		}
		again := h.member(dispatch.Root, "", "boss", 2)
		defer h.hangUp(again)
		if g := h.take(again, dispatch.RunScope, "x", time.Hour); g.Reentrant {
			t.Errorf("the old run's lease: %+v", g)
		}
		runs, err := h.Runs(t.Context(), "")
		if err != nil || len(runs) != 1 || len(runs[0].Actors) != 1 {
			t.Errorf("runs: %+v %v", runs, err)
		}
		if err := h.EndActor(t.Context(), "r", "root", "done"); err != nil {
			t.Fatal(err)
		}
		alone := h.connect(dispatch.Credentials{Run: "r", Name: "claude"}, 3)
		defer h.hangUp(alone)
		if runs, err := h.Runs(t.Context(), "r"); err != nil || !runs[0].EndedAt.IsZero() {
			t.Errorf("somebody has joined, and the run is still the one that ended: %+v %v", runs, err)
		}
	})
}

// TestTheNameOfAnExpiredTokenIsFree, and no other.
func TestTheNameOfAnExpiredTokenIsFree(t *testing.T) {
	inHouse(t, dispatch.Options{}, func(t *testing.T, h *house) {
		issue := func() (dispatch.Access, string, error) {
			return h.IssueAccess(t.Context(), "ops", dispatch.Operator, time.Minute)
		}
		first, _, err := issue()
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := issue(); !errors.Is(err, dispatch.ErrExists) {
			t.Errorf("the name of a valid token: %v", err)
		}
		time.Sleep(2 * time.Minute)
		if again, _, err := issue(); err != nil || again.ID == first.ID {
			t.Errorf("the name of an expired token: %+v %v", again, err)
		}
	})
}

func TestWhoJoinsAloneBecomesAWorkerAndLeavesNoTrace(t *testing.T) {
	inHouse(t, dispatch.Options{}, func(t *testing.T, h *house) {
		join := dispatch.Credentials{Run: "default", Name: "claude"}
		a, b := h.connect(join, 1), h.connect(join, 2)
		if a.Actor().Path != "claude" || b.Actor().Path != "claude-2" {
			t.Errorf("paths %s and %s", a.Actor().Path, b.Actor().Path)
		}
		view, err := a.Store(t.Context(), dispatch.SelfLayer)
		if err != nil {
			t.Fatal(err)
		}
		_ = view
		h.take(a, dispatch.LayerScope, "x", time.Hour)
		h.hangUp(a)
		if g := h.take(b, dispatch.LayerScope, "x", time.Hour); g.Reentrant {
			t.Error("not freed")
		}
		h.hangUp(b)
		runs, err := h.Runs(t.Context(), "default")
		if err != nil || len(runs[0].Actors) != 1 {
			t.Errorf("left behind: %+v %v", runs, err)
		}
	})
}

// A root that is added after agents have joined its run by themselves sets the depth of
// the run, as one that begins it does.
func TestALateRootSetsTheDepthOfItsRun(t *testing.T) {
	inHouse(t, dispatch.Options{Caps: dispatch.Caps{Depth: 4}}, func(t *testing.T, h *house) {
		defer h.hangUp(h.connect(dispatch.Credentials{Run: "r", Name: "claude"}, 1))
		if _, _, err := h.AddActor(t.Context(), dispatch.NewActor{Run: "r", Name: "boss", Role: dispatch.Root, Caps: dispatch.Caps{Depth: 1}}); err != nil {
			t.Fatal(err)
		}
		h.add(dispatch.Sublead, "", "S1")
		_, _, err := h.AddActor(t.Context(), dispatch.NewActor{Run: "r", Name: "W1", Role: dispatch.Worker, Parent: "S1"})
		if !limit(1)(err) {
			t.Errorf("one deeper than the root allows: %v", err)
		}
	})
}

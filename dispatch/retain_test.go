package dispatch_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/dispatch/work"
	"github.com/leasehold/leasehold/engine/call"
	"github.com/leasehold/leasehold/layer"
)

// A removal that is sent again removes no later run of that name.
func TestARemovalThatIsSentAgainRemovesNothing(t *testing.T) {
	inHouse(t, dispatch.Options{}, func(t *testing.T, h *house) {
		op := h.connect(dispatch.Credentials{Operator: true}, 50)
		remove := call.With(t.Context(), call.Call{Session: op.ID(), Name: "1", Print: 1, Log: op.CallLog()})
		for range 2 {
			h.add(dispatch.Root, "", "boss")
			if err := h.EndActor(t.Context(), "r", "root", "done"); err != nil {
				t.Fatal(err)
			}
			if err := h.RemoveRun(remove, "r"); err != nil {
				t.Fatal(err)
			}
		}
		if got := h.tree(); len(got) != 1 {
			t.Errorf("the later run has %v", got)
		}
	})
}

// A dispatched run is removed with its orders.
func TestADispatchedRunIsRemoved(t *testing.T) {
	inHouse(t, dispatch.Options{}, func(t *testing.T, h *house) {
		tr := h.started()
		tr.exitAll()
		if _, err := h.FinishRun(t.Context(), tr.op, "r"); err != nil {
			t.Fatal(err)
		}
		if err := h.RemoveRun(t.Context(), "r"); err != nil {
			t.Fatal(err)
		}
		h.hangUp(tr.op)
		synctest.Wait()
		h.noRows("")
	})
}

// A removal whose row cannot be read keeps nothing else from being removed.
func TestASpoiltRemovalKeepsOnlyItself(t *testing.T) {
	inHouse(t, dispatch.Options{Keep: short}, func(t *testing.T, h *house) {
		const spoilt = "ending/3spoilt"
		h.plantText(spoilt, "{")
		h.add(dispatch.Root, "", "boss")
		h.add(dispatch.Worker, "", "W1")
		if err := h.EndActor(t.Context(), "r", "root", "done"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(4 * time.Hour)
		if was := h.plantText(spoilt, "{}"); was != "{" {
			t.Errorf("the spoilt row is %q", was)
		}
		if runs, err := h.Runs(t.Context(), ""); err != nil || len(runs) != 0 {
			t.Errorf("runs are left: %+v %v", runs, err)
		}
	})
}

// The retention of a run that is resumed after its end begins with its last end.
func TestAResumedRunIsKeptFromItsLastEnd(t *testing.T) {
	inHouse(t, dispatch.Options{Keep: short}, func(t *testing.T, h *house) {
		spawn := func(tr *troupe) {
			t.Helper()
			tr.spawn("root", dispatch.Spawn{Role: dispatch.Worker, Name: "W1"})
			tr.start()
		}
		finish := func(tr *troupe) {
			t.Helper()
			for _, path := range []string{"W1", "root"} {
				tr.exit(path, work.Exit{Status: work.Failed})
			}
			if _, err := h.FinishRun(t.Context(), tr.op, "r"); err != nil {
				t.Fatal(err)
			}
			h.hangUp(tr.op)
		}
		again := func(tr *troupe) *troupe {
			t.Helper()
			next, _, err := tr.again(resume(work.Settings{}))
			if err != nil {
				t.Fatal(err)
			}
			next.start()
			spawn(next)
			return next
		}
		there := func(after string) {
			t.Helper()
			if runs, err := h.Runs(t.Context(), "r"); err != nil || len(runs) != 1 || len(runs[0].Actors) != 2 {
				t.Fatalf("%s: %+v %v", after, runs, err)
			}
		}
		first := h.dispatch(work.Settings{})
		first.start()
		spawn(first)
		finish(first)
		time.Sleep(30 * time.Minute)
		second := again(first)
		time.Sleep(4 * time.Hour)
		there("it lives, long after its first end and that of its worker")
		finish(second)
		time.Sleep(time.Hour)
		third := again(second)
		finish(third)
		time.Sleep(150 * time.Minute)
		there("2.5 hours after its last end, and 3.5 after the one before")
		time.Sleep(time.Hour)
		h.noRows("")
	})
}

// A lead that has ended is kept while an agent works below it, however deep.
func TestALeadIsKeptWhileAgentsWorkBelowIt(t *testing.T) {
	inHouse(t, dispatch.Options{Keep: short}, func(t *testing.T, h *house) {
		tr := h.started()
		tr.spawn("root", dispatch.Spawn{Role: dispatch.Sublead, Name: "S1"})
		tr.start()
		tr.spawn("S1", dispatch.Spawn{Role: dispatch.Sublead, Name: "S2"})
		tr.start()
		tr.spawn("S1→S2", dispatch.Spawn{Role: dispatch.Worker, Name: "W1"})
		tr.start()
		for _, path := range []string{"S1→S2", "S1", "root"} {
			tr.exit(path, work.Exit{Status: work.Failed})
		}
		time.Sleep(100 * time.Minute)
		if got := h.tree(); len(got) != 4 {
			t.Errorf("while W1 works: %v", got)
		}
	})
}

// Then it is forgotten.
func TestALeadIsForgottenAfterThoseBelowIt(t *testing.T) {
	inHouse(t, dispatch.Options{Keep: short}, func(t *testing.T, h *house) {
		tr := h.started()
		tr.spawn("root", dispatch.Spawn{Role: dispatch.Sublead, Name: "S1"})
		tr.start()
		tr.spawn("S1", dispatch.Spawn{Role: dispatch.Worker, Name: "W1"})
		tr.start()
		tr.exit("S1", work.Exit{Status: work.Failed})
		time.Sleep(100 * time.Minute)
		tr.exit("S1→W1", work.Exit{Status: work.Failed})
		time.Sleep(100 * time.Minute)
		if got := h.tree(); len(got) != 1 {
			t.Errorf("left: %v", got)
		}
	})
}

// An actor is forgotten with all that it wrote for itself, and another that has its
// name by then keeps what it wrote.
func TestAnActorIsForgottenWithItsEntries(t *testing.T) {
	inHouse(t, dispatch.Options{Keep: short}, func(t *testing.T, h *house) {
		h.add(dispatch.Root, "", "boss")
		write := func(name string, entries int) {
			t.Helper()
			view, err := h.member(dispatch.Worker, "", name, 50).Store(t.Context(), dispatch.SelfLayer)
			if err != nil {
				t.Fatal(err)
			}
			for i := range entries {
				if _, err := view.Set(t.Context(), layer.Write{Path: fmt.Sprintf("/peer/self/%s-%d", name, i), Value: []byte(`1`)}); err != nil {
					t.Fatal(err)
				}
			}
		}
		left := func(name string) (n int) {
			for key := range h.rows() {
				if strings.Contains(key, name+"-") {
					n++
				}
			}
			return n
		}
		write("many", 500)
		write("W1", 1)
		for _, path := range []string{"many", "W1"} {
			if err := h.EndActor(t.Context(), "r", path, "done"); err != nil {
				t.Fatal(err)
			}
		}
		write("W1", 1)
		before := left("W1")
		time.Sleep(75 * time.Minute)
		if n := left("many"); n != 0 {
			t.Errorf("%d rows are left of an actor that is forgotten", n)
		}
		if n := left("W1"); n != before {
			t.Errorf("an actor whose name was another's has %d of %d rows", n, before)
		}
		h.noRows("former/")
	})
}

func TestManyActorsAreForgottenAtOnce(t *testing.T) {
	inHouse(t, dispatch.Options{Keep: short}, func(t *testing.T, h *house) {
		h.add(dispatch.Root, "", "boss")
		for i := range 100 {
			h.add(dispatch.Worker, "", fmt.Sprintf("w%d", i))
			if err := h.EndActor(t.Context(), "r", fmt.Sprintf("w%d", i), "done"); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(75 * time.Minute)
		if got := h.tree(); len(got) != 1 {
			t.Errorf("left: %v", got)
		}
	})
}

// A record that cannot be read stops nobody, and what waits for it is forgotten once it
// can be read again.
func TestADamagedRunEndsNoDaemon(t *testing.T) {
	inHouse(t, dispatch.Options{Keep: short}, func(t *testing.T, h *house) {
		h.add(dispatch.Root, "", "boss")
		if err := h.EndActor(t.Context(), "r", "root", "done"); err != nil {
			t.Fatal(err)
		}
		was := h.plantText("run/r", "{")
		time.Sleep(4 * time.Hour)
		h.plantText("run/r", was)
		time.Sleep(11 * time.Minute)
		h.noRows("")
	})
}

package work_test

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/uuid"

	"github.com/leasehold/leasehold/dispatch/process"
	"github.com/leasehold/leasehold/dispatch/rows"
	"github.com/leasehold/leasehold/dispatch/work"
	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/pebble"
)

// A crew is a root and the actors below it, as the rules of works see them.
type crew struct {
	t    *testing.T
	eng  engine.Engine
	run  uuid.UUID
	root uuid.UUID
	all  []uuid.UUID
	lead map[uuid.UUID]uuid.UUID
}

func newCrew(t *testing.T, budget work.Money) *crew {
	t.Helper()
	eng, err := pebble.Open(pebble.Options{Dir: "state", FS: vfs.NewMem()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { eng.Close() })
	c := &crew{t: t, eng: eng, run: uuid.New(), lead: make(map[uuid.UUID]uuid.UUID)}
	c.do(func(tx engine.Tx) {
		work.AmendRun(tx, "r", func(d *work.Dispatched) { d.RunID, d.Life = c.run, 1 })
	})
	c.root = c.give(uuid.Nil, budget)
	return c
}

// do changes works, and checks that they agree afterwards.
func (c *crew) do(change func(tx engine.Tx)) {
	c.t.Helper()
	err := rows.Update(c.t.Context(), c.eng, func(tx engine.Tx) error {
		change(tx)
		work.Check(tx, func(uuid.UUID) string { return "r" }, func(format string, args ...any) {
			c.t.Errorf(format, args...)
		})
		return nil
	})
	if err != nil {
		c.t.Fatal(err)
	}
}

func (c *crew) give(lead uuid.UUID, budget work.Money) uuid.UUID {
	c.t.Helper()
	id := uuid.New()
	c.do(func(tx engine.Tx) {
		work.Give(tx, "r", id, lead, work.Order{Agent: "a", Prompt: "p", BudgetUSD: budget.USD()})
	})
	c.all, c.lead[id] = append(c.all, id), lead
	return id
}

func (c *crew) get(id uuid.UUID) (w work.Work) {
	c.t.Helper()
	c.do(func(tx engine.Tx) { w, _ = work.Get(tx, id) })
	return w
}

func (c *crew) unfinished() map[uuid.UUID]work.Todo {
	c.t.Helper()
	todo := make(map[uuid.UUID]work.Todo)
	c.do(func(tx engine.Tx) {
		maps.Insert(todo, work.Unfinished(tx, c.run))
	})
	return todo
}

// TestTheLifeOfAWork covers to launch, running, to stop, final, and works that
// end at once.
func TestTheLifeOfAWork(t *testing.T) {
	c := newCrew(t, 0)
	stop := work.Stop{Reason: "not needed", Status: work.Cancelled}
	halt := func(id uuid.UUID) (now bool) {
		t.Helper()
		c.do(func(tx engine.Tx) { now = work.Halt(tx, "r", id, stop) })
		return now
	}
	never := c.give(c.root, 0)
	if todo := c.unfinished(); todo[never] != work.ToLaunch || len(todo) != 2 {
		t.Errorf("given: %v", todo)
	}
	if !halt(never) || c.get(never).Status != work.Cancelled {
		t.Errorf("one that was not handed out: %+v", c.get(never))
	}
	if _, there := c.unfinished()[never]; there {
		t.Error("it is unfinished after its end")
	}
	runs := c.give(c.root, 0)
	c.do(func(tx engine.Tx) {
		w, _ := work.Get(tx, runs)
		work.HandOut(tx, w, uuid.New(), &work.Launcher{})
		w, _ = work.Get(tx, runs)
		work.Started(tx, c.run, w, process.Peer{PID: 7, Start: "1"})
	})
	if todo := c.unfinished(); todo[runs] != work.Nothing || c.get(runs).Status != work.Running {
		t.Errorf("started: %v", todo)
	}
	if halt(runs) || c.unfinished()[runs] != work.ToStop || c.get(runs).Stop.Reason != "not needed" {
		t.Errorf("told to stop: %+v", c.get(runs))
	}
	cost := work.USD(1.5)
	c.do(func(tx engine.Tx) {
		work.Conclude(tx, "r", runs, work.Exit{Status: work.Cancelled, Cost: &cost, Output: "the end"}, nil, nil)
		if got := string(work.Result(tx, runs)); got != `"the end"` {
			t.Errorf("its result is %s", got)
		}
		if _, there := work.OrderOf(tx, runs); there {
			t.Error("its order is kept")
		}
	})
	if w := c.get(runs); w.Spent != cost || !w.Reported || halt(runs) {
		t.Errorf("ended: %+v", w)
	}
	c.do(func(tx engine.Tx) { work.Forget(tx, runs) })
	if w := c.get(c.root); w.Below != cost || w.Forgotten != cost {
		t.Errorf("its lead has paid %v, of that for forgotten ones %v", w.Below, w.Forgotten)
	}
}

var seed = flag.Uint64("seed", 0, "of the random test; 0: a new one")

// TestBudgetsAddUp uses random trees, whatever is given, spent, ended and
// forgotten. [work.Check] verifies each change, and nobody is given more than
// there is.
func TestBudgetsAddUp(t *testing.T) {
	seed := *seed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	for range 5 {
		c := newCrew(t, work.USD(100))
		for range 60 {
			id := c.all[random.IntN(len(c.all))]
			w := c.get(id)
			switch step := random.IntN(4); {
			case step < 2 && !w.Status.Final() && w.Actor != uuid.Nil:
				budget := work.USD(float64(random.IntN(30)))
				var refused error
				c.do(func(tx engine.Tx) { refused = work.Afford(tx, "lead", w, budget) })
				var short *work.BudgetError
				if refused != nil && !errors.As(refused, &short) {
					t.Fatal(refused)
				}
				if refused == nil {
					c.give(id, budget)
				}
			case step == 2 && id != c.root && !w.Status.Final() && w.Actor != uuid.Nil:
				left := w.Budget - w.Reserved - w.Below // its own cost becomes known when it ends
				cost := work.Money(random.Int64N(int64(max(1, left))))
				c.do(func(tx engine.Tx) {
					work.Conclude(tx, "r", id, work.Exit{Status: work.Succeeded, Cost: &cost}, nil, nil)
				})
			case step == 3 && w.Status.Final() && c.childless(id):
				c.do(func(tx engine.Tx) { work.Forget(tx, id) })
			}
		}
		if root := c.get(c.root); root.Reserved+root.Below > root.Budget {
			t.Errorf("seed %d: the root has %v and gave %v", seed, root.Budget, fmt.Sprint(root.Purse))
		}
	}
}

// childless reports whether no actor is left below an actor.
func (c *crew) childless(id uuid.UUID) bool {
	for child, lead := range c.lead {
		if lead == id && c.get(child).Actor != uuid.Nil {
			return false
		}
	}
	return true
}

package work

import (
	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
)

// Check reports contradictions between the records of works and runs. A work
// that is not final must be in the list of unfinished works, must have an order
// and must be counted by its run. The sums in a lead's purse must match its
// children. run returns the name of an actor's run.
func Check(tx engine.Tx, run func(actor uuid.UUID) string, fault func(format string, args ...any)) {
	left := make(map[string]int)
	claims, settled := make(map[uuid.UUID]Money), make(map[uuid.UUID]Money)
	for w := range All(tx) {
		name := run(w.Actor)
		d, _ := RunOf(tx, name)
		_, counted := tx.Get(unfinishedKey(d.RunID, w.Actor))
		final := w.Status.Final()
		if !w.Status.Known() || final == counted {
			fault("work of actor %s of run %s is %s, and is among the unfinished: %v", w.Actor, name, w.Status, counted)
		}
		if _, ordered := tx.Get(orderKey(w.Actor)); !final && !ordered {
			fault("work of actor %s of run %s has no order", w.Actor, name)
		}
		if final && w.Session != uuid.Nil {
			fault("work of actor %s of run %s is %s and has a session", w.Actor, name, w.Status)
		}
		if !final {
			left[name]++
		}
		claims[w.Lead] += w.Claim()
		settled[w.Lead] += w.Settled()
	}
	for w := range All(tx) {
		if w.Reserved != claims[w.Actor] || w.Below != settled[w.Actor]+w.Forgotten {
			fault("work of actor %s keeps %d and has paid %d, those below it say %d and %d", w.Actor, w.Reserved, w.Below, claims[w.Actor], settled[w.Actor])
		}
	}
	for name, d := range Runs(tx) {
		if d.Unfinished != left[name] {
			fault("run %s counts %d unfinished works and has %d", name, d.Unfinished, left[name])
		}
		left[name] = 0
	}
	for name, n := range left {
		if n != 0 {
			fault("run %s is not dispatched and has %d unfinished works", name, n)
		}
	}
}

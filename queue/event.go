package queue

import (
	"github.com/leasehold/leasehold/engine/event"
)

// note records an event about a task. If the event names no actor, it is
// attributed to the actor of the last attempt.
func (t *Task) note(tx *ledger, e event.Event) {
	if e.Path == "" && len(t.Attempts) > 0 {
		a := t.last()
		e.Token, e.Actor, e.Path, e.Party = a.Token, a.Actor, a.Path, a.Party
	}
	e.Queue, e.Key = t.Queue, t.ID.String()
	event.Record(tx, t.line.run(), e)
}

package queue

import (
	"github.com/leasehold/leasehold/engine/event"
)

// note records what happens to a task. An event that names nobody is of whoever
// has, or had, its last attempt.
func (t *Task) note(tx *ledger, e event.Event) {
	if e.Path == "" && len(t.Attempts) > 0 {
		a := t.last()
		e.Token, e.Actor, e.Path, e.Party = a.Token, a.Actor, a.Path, a.Party
	}
	e.Queue, e.Key = t.Queue, t.ID.String()
	event.Record(tx, t.line.run(), e)
}

// noteEnd is note for a task that is finished.
func (t *Task) noteEnd(tx *ledger, state State, cause string) {
	kind := event.TaskCompleted + event.Kind(state-Completed)
	if state == Completed || state == Failed {
		cause = "" // which is the state
	}
	t.note(tx, event.Event{Kind: kind, Cause: cause})
}

package queue

import (
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/registry"
)

// A request is what an idempotent claim was and was given. One that was given
// nothing is not kept: asked again, it looks again.
type request struct {
	Call   uuid.UUID // that it was given to
	Shared bool      // and other calls have been told of it
	Queues []string
	Count  int
	TTL    time.Duration
	Tasks  []grant
}

// keepRequest is how long a request is remembered, and for how much longer at
// a time while a claim it was given stands.
const keepRequest = time.Minute

func getRequest(tx *ledger, session uuid.UUID, id string) (request, bool) {
	if id == "" {
		return request{}, false
	}
	row, ok := tx.Get(claimKey(session, id))
	if !ok {
		return request{}, false
	}
	return decodeJSON[request](row), true
}

func remember(tx *ledger, session uuid.UUID, id string, r request) {
	if id != "" {
		tx.Put(requestRow(tx, session, id, r))
	}
}

func requestRow(tx *ledger, session uuid.UUID, id string, r request) engine.Row {
	return engine.Row{Key: claimKey(session, id), Value: encodeJSON(r), Owner: session, Due: tx.Now().Add(keepRequest)}
}

// repeat answers a request_id that was used before: with what of it is still
// the session's, so that an answer that was lost locks no task.
func (q *Queue) repeat(tx *ledger, call *claimCall, was request) (tasks []Claimed, err error) {
	if !slices.Equal(was.Queues, call.Queues) || was.Count != call.Count || was.TTL != call.TTL {
		return nil, registry.ErrRequestIDReused
	}
	if was.Call != call.id && !was.Shared {
		was.Shared = true
		tx.Touch(requestRow(tx, call.Holder.Session, call.RequestID, was)) // no call outlives a crash
	}
	for _, g := range was.Tasks {
		if c, ok := q.standing(tx, g, call.Holder.Session); ok {
			tasks = append(tasks, c)
		}
	}
	return tasks, nil
}

// tendRequest forgets a request, unless a claim it was given still stands.
func (q *Queue) tendRequest(tx *ledger, row engine.Row) {
	for _, g := range decodeJSON[request](row).Tasks {
		if _, ok := q.standing(tx, g, row.Owner); ok {
			row.Due = tx.Now().Add(keepRequest)
			tx.Touch(row)
			return
		}
	}
	tx.Delete(row.Key)
}

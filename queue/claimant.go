package queue

import (
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/record"
	"github.com/leasehold/leasehold/registry"
)

// MaxClaimants is how many calls may wait at one queue.
const MaxClaimants = 1000

// A claimant waits at the lines it named until it is given a task.
type claimant struct {
	Call      uuid.UUID
	Lines     [][]byte
	Place     uint64
	Holder    holder
	Queues    []string
	Count     int
	TTL       time.Duration
	RequestID string
}

func (c claimant) put(tx *ledger) {
	for _, l := range c.Lines {
		tx.Touch(engine.Row{Key: claimantKeys(line(l)) + record.Fixed(c.Place), Value: encodeJSON(c), Owner: c.Holder.Session})
	}
}

func (c claimant) remove(tx *ledger) {
	for _, l := range c.Lines {
		tx.Delete(claimantKeys(line(l)) + record.Fixed(c.Place))
	}
}

// standInLine gives the call a place in the lines it named.
func (q *Queue) standInLine(tx *ledger, call *claimCall) error {
	for _, l := range call.lines {
		n := 0
		for range tx.Scan(claimantKeys(l)) {
			n++
		}
		if n >= MaxClaimants {
			return &registry.LimitError{Which: "calls that wait at queue " + l.queue(), Max: MaxClaimants}
		}
	}
	call.place = tx.nextPlace()
	c := claimant{
		Call: call.id, Place: call.place, Holder: call.Holder,
		Queues: call.Queues, Count: call.Count, TTL: call.TTL, RequestID: call.RequestID,
	}
	for _, l := range call.lines {
		c.Lines = append(c.Lines, []byte(l))
	}
	c.put(tx)
	return nil
}

func (call *claimCall) stands(tx *ledger) bool {
	if call.place == 0 {
		return false
	}
	_, ok := tx.Get(claimantKeys(call.lines[0]) + record.Fixed(call.place))
	return ok
}

// stepOut gives up the call's places.
func (call *claimCall) stepOut(tx *ledger) {
	if call.place == 0 {
		return
	}
	for _, l := range call.lines {
		tx.Delete(claimantKeys(l) + record.Fixed(call.place))
	}
}

// hand gives a task that becomes ready to the first who waits for one there, if
// there is anybody.
func (q *Queue) hand(tx *ledger, t *Task) bool {
	c := q.nextClaimant(tx, t.line)
	if c == nil {
		return false
	}
	claimed := Claimed{Task: *t}
	q.begin(tx, &claimed, c.Holder, c.TTL)
	tx.Touch(engine.Row{Key: givenKey(c.Call), Value: string(t.ID[:]) + record.Fixed(claimed.Token), Owner: c.Holder.Session})
	remember(tx, c.Holder.Session, c.RequestID, request{
		Call: c.Call, Queues: c.Queues, Count: c.Count, TTL: c.TTL, Tasks: grantsOf(claimed),
	})
	*t = claimed.Task
	return true
}

// nextClaimant takes the first who waits out of a line; nil: nobody does. Who is
// gone is removed on the way, and who has been answered by another call of the
// same request.
func (q *Queue) nextClaimant(tx *ledger, l line) *claimant {
	if !q.core.Asked() {
		return nil // mostly
	}
	for row := range tx.Scan(claimantKeys(l)) {
		c := decodeJSON[claimant](row)
		c.remove(tx)
		if !q.core.Asking(c.Call) || !q.core.Open(tx, c.Holder.Session) {
			continue
		}
		if _, answered := getRequest(tx, c.Holder.Session, c.RequestID); answered {
			tx.Touch(engine.Row{Key: givenKey(c.Call), Owner: c.Holder.Session}) // to look at that answer
			continue
		}
		return &c
	}
	return nil
}

// given takes what was given to a call, if it is still its.
func (q *Queue) given(tx *ledger, call *claimCall) (c Claimed, ok bool) {
	if call.Wait == 0 {
		return Claimed{}, false // it never had a place
	}
	row, ok := tx.Get(givenKey(call.id))
	if !ok {
		return Claimed{}, false
	}
	tx.Delete(row.Key)
	if len(row.Value) != 24 {
		return Claimed{}, false
	}
	return q.standing(tx, grant{idOf(row.Key, row.Value[:16]), record.ReadFixed(row.Value[16:])}, call.Holder.Session)
}

// A grant is one claim of a task.
type grant struct {
	ID    uuid.UUID
	Token uint64
}

func grantsOf(tasks ...Claimed) []grant {
	list := make([]grant, 0, len(tasks))
	for _, t := range tasks {
		list = append(list, grant{t.ID, t.Token})
	}
	return list
}

// standing is the claim that a session was granted, if it is still its.
func (q *Queue) standing(tx *ledger, g grant, session uuid.UUID) (Claimed, bool) {
	lease, ok := q.leases.Get(tx, g.ID.String())
	if !ok || lease.Token != g.Token || lease.Holder.Session != session {
		return Claimed{}, false
	}
	t, ok := getTask(tx, g.ID)
	return Claimed{Task: t, Token: g.Token, Deadline: lease.Deadline}, ok
}

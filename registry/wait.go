package registry

import (
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/record"
)

// stand gives the call a place in line: the one its ticket kept, or a new one
// at the end.
func (c *Core) stand(tx Tx, call *ask) (Grant, error) {
	w, ok := waiterByTicket(tx, call.Holder.Actor, call.Ticket)
	if ok && (w.Scope != call.scope || w.Key != call.Key || w.Holder.Session != call.Holder.Session) {
		return Grant{}, &ArgumentError{"ticket", "must be of an earlier wait of this session for the same lease"}
	}
	if !ok {
		if lineLength(tx, waitKeys(call.scope, call.Key)) >= c.opts.MaxWaitersPerKey {
			return Grant{}, &LimitError{"waiters for one lease", int64(c.opts.MaxWaitersPerKey)}
		}
		if lineLength(tx, ticketKeys(call.Holder.Actor)) >= c.opts.MaxWaitersPerActor {
			return Grant{}, &LimitError{"waits of one actor", int64(c.opts.MaxWaitersPerActor)}
		}
		w = waiter{
			Scope: call.scope, Key: call.Key, Seq: nextPlace(tx),
			Ticket: call.Ticket, Holder: call.Holder, Since: tx.Now(),
		}
	}
	// A call that waited with the ticket before is told nothing any more:
	// its caller asked again.
	w.Call, w.LeaseID = call.id, call.leaseID
	w.TTL, w.RequestID, w.KeepAlive = call.TTL, call.RequestID, call.KeepAlive
	w.put(tx, time.Time{})
	return Grant{}, errWaiting
}

// look says what has become of a call that waits; last means that it answers
// now, whatever it finds.
func (c *Core) look(tx Tx, call *ask, last bool) (Grant, error) {
	if !c.opts.SessionOpen(tx, call.Holder.Session) {
		return Grant{}, ErrSessionEnded
	}
	held, ok := c.current(tx, call.scope, call.Key, call.Holder.Session)
	if ok && held.Holder.Session == call.Holder.Session {
		return Grant{Lease: held, Reentrant: held.ID != call.leaseID}, nil
	}
	if !ok {
		// Free, though nobody overtakes: what this call was granted has been
		// freed since, or the line was dropped. It asks anew.
		return c.acquire(tx, call)
	}
	w, waits := waiterByTicket(tx, call.Holder.Actor, call.Ticket)
	switch {
	case !waits && last:
		return Grant{}, contention(tx, held)
	case !waits:
		return c.stand(tx, call)
	case w.Call != call.id: // asked again with the ticket: that call waits now
	case !last:
		return Grant{}, errWaiting
	default:
		w.Call = uuid.Nil
		w.put(tx, tx.Now().Add(ParkTime))
	}
	return Grant{}, &WaitError{HeldError: *contention(tx, held), Position: position(tx, w), Ticket: call.Ticket}
}

// withdraw takes back the call's place, or what it was granted.
func (c *Core) withdraw(tx Tx, call *ask) {
	if w, ok := waiterByTicket(tx, call.Holder.Actor, call.Ticket); ok && w.Call == call.id {
		w.remove(tx)
	}
	if l, ok := leaseByID(tx, call.leaseID); ok && !l.shared {
		c.free(tx, l, Cancelled)
	}
}

// position counts the places up to w's own.
func position(tx Tx, w waiter) (n int) {
	for row := range tx.Scan(waitKeys(w.Scope, w.Key)) {
		n++
		if row.Key == w.rowKey() {
			break
		}
	}
	return n
}

// nextPlace numbers the places of all lines.
func nextPlace(tx Tx) uint64 {
	n := uint64(1)
	if row, ok := tx.Get(placeKey); ok {
		n = record.ReadFixed(row.Value) + 1
	}
	tx.Touch(engine.Row{Key: placeKey, Value: record.Fixed(n)})
	return n
}

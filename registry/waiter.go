package registry

import (
	"iter"
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/record"
)

// A waiter is one place in the line for a key.
type waiter struct {
	Scope, Key string
	Seq        uint64
	Ticket     uuid.UUID
	Call       uuid.UUID // who is told of a grant; zero while parked
	LeaseID    uuid.UUID // what a grant is to be known by
	Holder     Holder
	TTL        time.Duration
	RequestID  string
	KeepAlive  bool
	Since      time.Time
}

func (w waiter) encode() string {
	r := record.New(128 + len(w.Scope) + len(w.Key) + len(w.Holder.Path) + len(w.RequestID))
	r.Flags(w.KeepAlive)
	for _, id := range []uuid.UUID{w.Ticket, w.Call, w.LeaseID, w.Holder.Session, w.Holder.Actor} {
		r.ID(id)
	}
	r.Uint(w.Seq)
	r.Duration(w.TTL)
	r.Time(w.Since)
	for _, text := range []string{w.Scope, w.Key, w.Holder.Path, w.RequestID} {
		r.Text(text)
	}
	return r.String()
}

func decodeWaiter(value string) (w waiter, ok bool) {
	r := record.Read(value)
	r.Flags(&w.KeepAlive)
	for _, id := range []*uuid.UUID{&w.Ticket, &w.Call, &w.LeaseID, &w.Holder.Session, &w.Holder.Actor} {
		*id = r.ID()
	}
	w.Seq, w.TTL, w.Since = r.Uint(), r.Duration(), r.Time()
	for _, text := range []*string{&w.Scope, &w.Key, &w.Holder.Path, &w.RequestID} {
		*text = r.Text()
	}
	return w, r.Done()
}

func (w waiter) parked() bool { return w.Call == uuid.Nil }

func (w waiter) rowKey() string {
	return waitKeys(w.Scope, w.Key) + record.Fixed(w.Seq)
}

// put writes the place and its ticket; until is when a parked one is given up.
func (w waiter) put(tx Tx, until time.Time) {
	tx.Touch(engine.Row{Key: w.rowKey(), Value: w.encode(), Owner: w.Holder.Session, Due: until})
	tx.Touch(engine.Row{Key: ticketKey(w.Holder.Actor, w.Ticket), Value: w.rowKey(), Owner: w.Holder.Session})
}

func (w waiter) remove(tx Tx) {
	tx.Delete(w.rowKey())
	tx.Delete(ticketKey(w.Holder.Actor, w.Ticket))
}

// waiters yields the line for a key, first in line first.
func waiters(tx Tx, scope, key string) iter.Seq[waiter] {
	return func(yield func(waiter) bool) {
		for row := range tx.Scan(waitKeys(scope, key)) {
			if !yield(must(row, decodeWaiter)) {
				return
			}
		}
	}
}

func waiterByTicket(tx Tx, actor, ticket uuid.UUID) (waiter, bool) {
	ref, ok := tx.Get(ticketKey(actor, ticket))
	if !ok {
		return waiter{}, false
	}
	row, ok := tx.Get(ref.Value)
	if !ok {
		return waiter{}, false
	}
	return must(row, decodeWaiter), true
}

func lineLength(tx Tx, prefix string) (n int) {
	for range tx.Scan(prefix) {
		n++
	}
	return n
}

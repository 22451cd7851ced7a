package registry

import (
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/record"
)

// A request is what an idempotent request was and which lease answered it.
type request struct {
	Scope, Key string
	TTL        time.Duration
	KeepAlive  bool
	Lease      uuid.UUID
}

const requestFormat = 1

func (q request) encode() string {
	w := record.New(40 + len(q.Scope) + len(q.Key))
	w.Byte(requestFormat)
	w.Flags(q.KeepAlive)
	w.ID(q.Lease)
	w.Duration(q.TTL)
	w.Text(q.Scope)
	w.Text(q.Key)
	return w.String()
}

func decodeRequest(value string) (q request, ok bool) {
	r := record.Read(value)
	format := r.Byte()
	r.Flags(&q.KeepAlive)
	q.Lease, q.TTL, q.Scope, q.Key = r.ID(), r.Duration(), r.Text(), r.Text()
	return q, format == requestFormat && r.Done()
}

// repeat answers a request_id that was used before.
func (c *Core) repeat(tx Tx, call *ask) (g Grant, repeated bool, err error) {
	if call.RequestID == "" {
		return Grant{}, false, nil
	}
	row, ok := tx.Get(requestKey(call.Holder.Session, call.RequestID))
	if !ok {
		return Grant{}, false, nil
	}
	was := must(row, decodeRequest)
	if was.Scope != call.scope || was.Key != call.Key || was.TTL != call.TTL || was.KeepAlive != call.KeepAlive {
		return Grant{}, true, ErrRequestIDReused
	}
	l, ok := leaseByID(tx, was.Lease)
	if !ok || l.Holder.Session != call.Holder.Session || l.expired(tx.Now()) && c.awaited(tx, l) {
		return Grant{}, true, c.lost(tx, call.Holder, was.Lease, Lost{Scope: was.Scope, Key: was.Key, LeaseID: was.Lease, Reason: string(Released), At: tx.Now()})
	}
	l.shared = true
	tx.Touch(leaseRow(&l, tx.Now()))
	return Grant{Lease: l}, true, nil
}

// putRequest remembers which lease answered a request; until is when that may
// be forgotten, never while the lease lives.
func putRequest(tx Tx, l Lease, until time.Time) {
	key := requestKey(l.Holder.Session, l.RequestID)
	was := request{Scope: l.Scope, Key: l.Key, TTL: l.TTL, KeepAlive: l.KeepAlive, Lease: l.ID}
	if row, ok := tx.Get(key); ok {
		was = must(row, decodeRequest) // the parameters asked for, whatever the lease has become
	}
	tx.Put(engine.Row{Key: key, Value: was.encode(), Owner: l.Holder.Session, Due: until})
}

func (c *Core) forgetRequest(tx Tx, l Lease) {
	if l.RequestID != "" {
		putRequest(tx, l, tx.Now().Add(keepRequest))
	}
}

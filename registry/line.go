package registry

import (
	"iter"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/call"
	"github.com/leasehold/leasehold/engine/record"
)

// A waiter is a party's place in the line for a key.
type waiter struct {
	Scope, Key string
	Holder     Holder
	Since      time.Time // on the running clock
	seq        uint64
	asker      uuid.UUID // the call that waits; zero while parked
	leaseID    uuid.UUID // what a grant is to be known by
	call       call.Call // whose answer a grant is
	ttl        time.Duration
	requestID  string
	keepAlive  bool
	spent      bool      // the key was reserved for this place once
	until      time.Time // of a parked one: when the place is given up
}

const waiterFormat = 1

func (w *waiter) encode() string {
	r := record.New(128 + len(w.Holder.Path) + len(w.Holder.Party) + len(w.requestID))
	r.Byte(waiterFormat)
	r.Flags(w.keepAlive, w.spent, w.Holder.Local)
	r.ID(w.asker)
	r.ID(w.leaseID)
	r.ID(w.Holder.Actor)
	r.Duration(w.ttl)
	r.Time(w.Since)
	r.Text(w.Holder.Path)
	r.Text(w.Holder.Party)
	r.Text(w.requestID)
	w.call.Append(r)
	return r.String()
}

// read reads a place; scope, key and number are in the row's key, and the session
// is its owner.
func (w *waiter) read(row engine.Row) (ok bool) {
	r := record.Read(row.Value)
	format := r.Byte()
	r.Flags(&w.keepAlive, &w.spent, &w.Holder.Local)
	w.asker, w.leaseID, w.Holder.Actor = r.ID(), r.ID(), r.ID()
	w.ttl, w.Since = r.Duration(), r.Time()
	w.Holder.Path, w.Holder.Party, w.requestID = r.Text(), r.Text(), r.Text()
	w.call = call.Read(&r)
	w.Holder.Session, w.until = row.Owner, row.Due
	name := strings.TrimPrefix(row.Key, waitPrefix)
	if format != waiterFormat || !r.Done() || len(name) < 9 {
		return false
	}
	w.seq = record.ReadFixed(name[len(name)-8:])
	w.Scope, w.Key, ok = strings.Cut(name[:len(name)-9], "\x00")
	return ok
}

func (w *waiter) parked() bool   { return w.asker == uuid.Nil }
func (w *waiter) rowKey() string { return waitKeys(w.Scope, w.Key) + record.Fixed(w.seq) }

// Classes of the places that may be served next, see the key schema.
const (
	asking = "a" // a call waits
	away   = "p" // parked, and the key can still be reserved for it once
)

// class is in which part of the index of those who may be next the place is.
func (w *waiter) class() string {
	switch {
	case !w.parked():
		return asking
	case !w.spent:
		return away
	default:
		return ""
	}
}

// put writes the place by write, which is Put for a new one: its order survives a
// restart. What a call changes about it need not.
func (w *waiter) put(tx Tx, write func(engine.Row)) {
	key := w.rowKey()
	write(engine.Row{Key: key, Value: w.encode(), Owner: w.Holder.Session, Due: w.until})
	for _, class := range []string{asking, away} {
		next := engine.Row{Key: nextKeys(w.Scope, w.Key, class) + record.Fixed(w.seq), Value: key}
		if class == w.class() {
			tx.Touch(next)
		} else {
			tx.Delete(next.Key)
		}
	}
}

// index writes what finds and counts a new place.
func (w *waiter) index(tx Tx) {
	w.find(tx)
	addCount(tx, lineCount(w.Scope, w.Key), 1)
	addCount(tx, waitsCount(w.Holder.Actor), 1)
}

// park keeps the place for a while for a party that is between two calls.
func (w *waiter) park(tx Tx) {
	w.asker, w.until = uuid.Nil, tx.Now().Add(ParkTime)
	w.put(tx, tx.Touch)
	w.find(tx)
}

// find writes the row that finds the place, which wakes the calls that wait there.
func (w *waiter) find(tx Tx) {
	tx.Touch(engine.Row{Key: placeKey(w.Holder, w.Scope, w.Key), Value: w.rowKey()})
}

func (w *waiter) remove(tx Tx) {
	tx.Delete(w.rowKey())
	tx.Delete(placeKey(w.Holder, w.Scope, w.Key))
	for _, class := range []string{asking, away} {
		tx.Delete(nextKeys(w.Scope, w.Key, class) + record.Fixed(w.seq))
	}
	addCount(tx, lineCount(w.Scope, w.Key), -1)
	addCount(tx, waitsCount(w.Holder.Actor), -1)
}

// placeOf finds a party's place in the line for a key.
func placeOf(tx Tx, h Holder, scope, key string) (w waiter, ok bool) {
	ref, ok := tx.Get(placeKey(h, scope, key))
	if !ok {
		return waiter{}, false
	}
	return placeAt(tx, ref.Value)
}

func placeAt(tx Tx, key string) (w waiter, ok bool) {
	row, ok := tx.Get(key)
	if !ok || !w.read(row) {
		return waiter{}, false
	}
	return w, true
}

// ticketOf names a party's place in a line. It tells nothing that the session
// does not know.
func ticketOf(h Holder, scope, key string) uuid.UUID {
	return uuid.NewSHA1(h.Session, []byte(h.Party+"\x00"+scope+"\x00"+key))
}

// wait gives the call its party's place in line: the one that it has, also if an
// older call waits there, or one at the end. The older call goes on waiting, and is
// told of a grant as of a re-entry. When the wait is over, the call that has the
// place parks it.
func (c *Core) wait(tx Tx, a *ask, held Lease, last bool) error {
	w, ok := placeOf(tx, a.Holder, a.scope, a.Key)
	mine := ok && w.asker == a.id
	switch {
	case last && !ok:
		return contention(tx, held)
	case last:
		if mine {
			w.park(tx)
		}
		return &WaitError{HeldError: *contention(tx, held), Position: position(tx, &w), Ticket: ticketOf(a.Holder, a.scope, a.Key)}
	case mine, ok && a.placed && c.asking(w.asker):
		return engine.ErrWait
	}
	write := tx.Touch
	if !ok {
		if err := c.room(tx, a); err != nil {
			return err
		}
		w = waiter{Scope: a.scope, Key: a.Key, Since: tx.Now(), seq: nextPlace(tx)}
		write = tx.Put
	}
	a.placed = true
	w.Holder, w.asker, w.leaseID, w.call = a.Holder, a.id, a.leaseID, a.call
	w.ttl, w.requestID, w.keepAlive, w.until = a.TTL, a.RequestID, a.KeepAlive, time.Time{}
	w.put(tx, write)
	if !ok {
		w.index(tx)
	}
	return engine.ErrWait
}

// room reports which bound a new place would exceed.
func (c *Core) room(tx Tx, a *ask) error {
	if count(tx, lineCount(a.scope, a.Key)) >= uint64(c.opts.MaxWaitersPerKey) {
		return &LimitError{"waiters for one lease", int64(c.opts.MaxWaitersPerKey)}
	}
	if count(tx, waitsCount(a.Holder.Actor)) >= uint64(c.opts.MaxWaitersPerActor) {
		return &LimitError{"waits of one actor", int64(c.opts.MaxWaitersPerActor)}
	}
	if count(tx, actorCount(a.Holder.Actor)) >= uint64(c.opts.MaxLeasesPerActor) {
		return &LimitError{"leases of one actor", int64(c.opts.MaxLeasesPerActor)}
	}
	return nil
}

// leave gives up a place, and what is reserved for it.
func (c *Core) leave(tx Tx, w waiter) {
	w.remove(tx)
	if l, ok := getLease(tx, w.Scope, w.Key); ok && l.Reserved && l.heldAs(w.Holder) {
		c.free(tx, l, Cancelled)
	}
}

// next gives the places that could have the key now: the first whose call waits
// and the first that is parked, for which it would be reserved. A session that
// has ended, or is ending, gets nothing; nor does a call that is gone, which will
// remove or park its place. They are asked in the transaction that grants.
func (c *Core) next(tx Tx, scope, key string, ending uuid.UUID) (now, later *waiter) {
	if count(tx, lineCount(scope, key)) == 0 { // mostly
		return nil, nil
	}
	first := func(class string) *waiter {
		for ref := range tx.Scan(nextKeys(scope, key, class)) {
			w, ok := placeAt(tx, ref.Value)
			if ok && (w.parked() || c.asking(w.asker)) && w.Holder.Session != ending && c.opts.SessionOpen(tx, w.Holder.Session) {
				return &w
			}
		}
		return nil
	}
	return first(asking), first(away)
}

// wanted reports whether somebody who is not ending waits for the key.
func (c *Core) wanted(tx Tx, scope, key string, ending uuid.UUID) bool {
	if _, own := c.freed[scope]; own {
		return true // its owner decides
	}
	now, later := c.next(tx, scope, key, ending)
	return now != nil || later != nil
}

// handOver grants a key just freed to the first in line, and returns its path, or
// reserves it if the first is between two calls. After a reservation that was not
// used, whoever waits comes before those who are away.
func (c *Core) handOver(tx Tx, scope, key string, ending uuid.UUID, unused bool) (path string) {
	now, later := c.next(tx, scope, key, ending)
	switch {
	case now == nil && later == nil:
		return ""
	case now == nil || later != nil && later.seq < now.seq && !unused:
		c.reserve(tx, later)
		return ""
	}
	now.remove(tx)
	c.grant(tx, scope, Request{
		Key: key, Holder: now.Holder, TTL: now.ttl, RequestID: now.requestID, KeepAlive: now.keepAlive,
	}, now.leaseID, now.call)
	return now.Holder.Path
}

// reserve keeps a free key for a party that is between two calls.
func (c *Core) reserve(tx Tx, w *waiter) {
	w.spent = true
	w.put(tx, tx.Touch)
	now := tx.Now()
	l := Lease{
		Scope: w.Scope, Key: w.Key, Holder: w.Holder, Reserved: true,
		Acquired: now, TTL: ReserveTime, Deadline: now.Add(ReserveTime), row: leaseKey(w.Scope, w.Key),
	}
	l.touch(tx)
}

// waiters yields the line for a key, first in line first.
func waiters(tx Tx, scope, key string) iter.Seq[waiter] {
	return func(yield func(waiter) bool) {
		for row := range tx.Scan(waitKeys(scope, key)) {
			var w waiter
			if w.read(row) && !yield(w) {
				return
			}
		}
	}
}

// position counts the places up to w's own. A line is bounded.
func position(tx Tx, w *waiter) (n int) {
	own := w.rowKey()
	for row := range tx.Scan(waitKeys(w.Scope, w.Key)) {
		n++
		if row.Key == own {
			break
		}
	}
	return n
}

// nextPlace numbers the places of all lines.
func nextPlace(tx Tx) uint64 {
	n := count(tx, seqKey) + 1
	setCount(tx, seqKey, n)
	return n
}

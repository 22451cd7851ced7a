package registry

import (
	"cmp"
	"iter"
	"math"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/call"
	"github.com/leasehold/leasehold/engine/event"
	"github.com/leasehold/leasehold/engine/record"
)

// A waiter is a party's place in the line for a key.
type waiter struct {
	Scope, Key string
	Holder     Holder
	Since      time.Time // on the running clock
	seq        uint64
	asker      uuid.UUID // the call that waits; zero while parked
	call       call.Call // whose answer a grant is
	ttl        time.Duration
	requestID  string
	keepAlive  bool
	shared     bool
	reason     string
	spent      bool      // the key was reserved for this place once
	until      time.Time // of a parked one: when the place is given up
}

const waiterFormat = 3

func (w *waiter) encode() string {
	r := record.New(128 + len(w.Holder.Path) + len(w.Holder.Party) + len(w.requestID))
	r.Byte(waiterFormat)
	r.Flags(w.keepAlive, w.spent, w.Holder.Local, w.shared)
	r.ID(w.asker)
	r.ID(w.Holder.Actor)
	r.Duration(w.ttl)
	r.Time(w.Since)
	r.Text(w.Holder.Path)
	r.Text(w.Holder.Party)
	r.Text(w.requestID)
	r.Text(w.reason)
	w.call.Append(r)
	return r.String()
}

// read reads a place; scope, key and number are in the row's key, and the session
// is its owner.
func (w *waiter) read(row engine.Row) (ok bool) {
	r := record.Read(row.Value)
	format := r.Byte()
	r.Flags(&w.keepAlive, &w.spent, &w.Holder.Local, &w.shared)
	w.asker, w.Holder.Actor = r.ID(), r.ID()
	w.ttl, w.Since = r.Duration(), r.Time()
	w.Holder.Path, w.Holder.Party, w.requestID, w.reason = r.Text(), r.Text(), r.Text(), r.Text()
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

// put writes the place by write, which is Put for a new one: its order survives a
// restart. What a call changes about it need not.
func (w *waiter) put(tx Tx, write func(engine.Row)) {
	write(engine.Row{Key: w.rowKey(), Value: w.encode(), Owner: w.Holder.Session, Due: w.until})
}

// park keeps the place for a while for a party that is between two calls.
func (w *waiter) park(tx Tx) {
	w.asker, w.until = uuid.Nil, tx.Now().Add(ParkTime)
	w.put(tx, tx.Touch)
	w.find(tx)
}

// away parks a place. One for which the key was reserved before holds up nobody from
// then on.
func (c *Core) away(tx Tx, w waiter) {
	w.park(tx)
	if w.spent {
		c.handOver(tx, w.Scope, w.Key, false)
	}
}

// find writes the row that finds the place, which wakes the calls that wait there.
func (w *waiter) find(tx Tx) {
	tx.Touch(engine.Row{Key: placeKey(w.Holder, w.Scope, w.Key), Value: w.rowKey()})
}

func (w *waiter) remove(tx Tx) {
	tx.Delete(w.rowKey())
	tx.Delete(placeKey(w.Holder, w.Scope, w.Key))
	addCount(tx, waitsCount(w.Holder.Actor), -1)
}

// placeOf finds a party's place in the line for a key.
func placeOf(tx Tx, h Holder, scope, key string) (w waiter, ok bool) {
	ref, ok := tx.Get(placeKey(h, scope, key))
	if !ok {
		return waiter{}, false
	}
	row, ok := tx.Get(ref.Value)
	return w, ok && w.read(row)
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
			c.away(tx, w)
		}
		return &WaitError{HeldError: *contention(tx, held), Position: inLine(tx, w.Scope, w.Key, w.seq), Ticket: ticketOf(a.Holder, a.scope, a.Key)}
	case mine, ok && a.placed && c.asking(w.asker):
		return engine.ErrWait
	}
	write := tx.Touch
	if !ok {
		if err := c.room(tx, a); err != nil {
			return err
		}
		w = waiter{Scope: a.scope, Key: a.Key, Since: tx.Now(), seq: event.Next(tx)}
		write = tx.Put
	}
	a.placed = true
	w.Holder, w.asker, w.call = a.Holder, a.id, a.call
	w.ttl, w.requestID, w.keepAlive, w.until = a.TTL, a.RequestID, a.KeepAlive, time.Time{}
	w.shared, w.reason = a.Shared, a.Reason
	w.put(tx, write)
	if !ok {
		w.find(tx)
		addCount(tx, waitsCount(w.Holder.Actor), 1)
		c.record(tx, w.Scope, w.Key, w.Holder, event.Event{
			Kind: event.LeaseWaiting, Shared: w.shared, By: held.Holder.Path, Reason: w.reason,
		})
	}
	c.warn(tx, &w)
	return engine.ErrWait
}

// room reports which bound a new place would exceed.
func (c *Core) room(tx Tx, a *ask) error {
	if inLine(tx, a.scope, a.Key, math.MaxUint64) >= c.opts.MaxWaitersPerKey {
		return &LimitError{"waiters for one lease", int64(c.opts.MaxWaitersPerKey)}
	}
	return cmp.Or(
		below(tx, waitsCount(a.Holder.Actor), "waits of one actor", c.opts.MaxWaitersPerActor),
		below(tx, actorCount(a.Holder.Actor), "leases of one actor", c.opts.MaxLeasesPerActor))
}

// leave gives up a place, and what is reserved for it. Those behind it may be next.
func (c *Core) leave(tx Tx, w waiter) {
	w.remove(tx)
	var l Lease
	if row, ok := tx.Get(w.reservation()); ok && l.read(row) && l.Reserved && l.Holder.same(w.Holder) {
		c.free(tx, l, Cancelled)
	} else {
		c.handOver(tx, w.Scope, w.Key, false)
	}
}

// reservation is the row of what may be reserved for the place.
func (w *waiter) reservation() string { return rowOf(w.Scope, w.Key, w.shared, w.seq) }

// live reports whether the place could have the key: its call waits, or it is parked
// and the key was not reserved for it yet. A session that has ended gets nothing; nor
// does a call that is gone, which will remove or park its place. They are asked in
// the transaction that grants.
func (c *Core) live(tx Tx, w *waiter) bool {
	if w.parked() {
		return !w.spent && c.opts.SessionOpen(tx, w.Holder.Session)
	}
	return c.asking(w.asker) && c.opts.SessionOpen(tx, w.Holder.Session)
}

// next gives the first in line. After a reservation that was not used, whoever
// waits comes before those who are away.
func (c *Core) next(tx Tx, scope, key string, unused bool) *waiter {
	var first *waiter
	for w := range waiters(tx, scope, key) {
		if first != nil && w.parked() || !c.live(tx, &w) {
			continue
		}
		if first = &w; !w.parked() || !unused {
			break
		}
	}
	return first
}

// wanted reports whether somebody waits who could have the key if l ended, or has it
// beside l, which had lapsed.
func (c *Core) wanted(tx Tx, l *Lease) bool {
	if _, own := c.freed[l.Scope]; own {
		return true // its owner decides
	}
	for row := range holders(tx, l.Scope, l.Key) {
		var other Lease
		if row.Key != l.row && (!other.read(row) || !other.lapsed && !(l.Shared && other.Shared)) {
			return true
		}
	}
	for w := range waiters(tx, l.Scope, l.Key) {
		if !(l.Shared && w.shared) && c.live(tx, &w) {
			return true
		}
	}
	return false
}

// handOver grants a key to the first in line if nobody holds it any more who keeps
// it from that, or reserves it if the first is between two calls; and so on with the
// next, if both share it. Nobody overtakes. Who has the key then is told of the first
// who is left.
func (c *Core) handOver(tx Tx, scope, key string, unused bool) {
	for {
		w := c.next(tx, scope, key, unused)
		switch {
		case w == nil:
			return
		case !unused && !vacant(tx, w):
			c.warn(tx, w)
			return
		case !vacant(tx, w): // it wants the key alone, and somebody before it may share it
			unused = false
			continue
		}
		if w.parked() {
			c.reserve(tx, w)
		} else {
			c.serve(tx, w)
		}
	}
}

// serve grants the key to a call that waits for it.
func (c *Core) serve(tx Tx, w *waiter) {
	w.remove(tx)
	c.grant(tx, w.Scope, Request{
		Key: w.Key, Holder: w.Holder, TTL: w.ttl, RequestID: w.requestID, KeepAlive: w.keepAlive, Shared: w.shared, Reason: w.reason,
	}, uuid.New(), w.call, event.LeaseHandedOver)
}

// vacant reports whether nobody holds a key, or has it reserved, who keeps it from a
// party in its line.
func vacant(tx Tx, w *waiter) bool {
	for row := range holders(tx, w.Scope, w.Key) {
		var l Lease
		if !l.read(row) || !l.lapsed && !(l.Shared && w.shared) {
			return false
		}
	}
	return true
}

// reserve keeps a free key for a party that is between two calls.
func (c *Core) reserve(tx Tx, w *waiter) {
	w.spent = true
	w.put(tx, tx.Touch)
	now := tx.Now()
	l := Lease{
		Scope: w.Scope, Key: w.Key, Holder: w.Holder, Reserved: true, Shared: w.shared,
		Acquired: now, TTL: ReserveTime, Deadline: now.Add(ReserveTime), row: w.reservation(),
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

// inLine counts the places for a key up to a number. A line is bounded.
func inLine(tx Tx, scope, key string, last uint64) (n int) {
	for row := range tx.Scan(waitKeys(scope, key)) {
		if row.Key > waitKeys(scope, key)+record.Fixed(last) {
			break
		}
		n++
	}
	return n
}

package registry

import (
	"cmp"
	"iter"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/call"
	"github.com/leasehold/leasehold/engine/event"
	"github.com/leasehold/leasehold/engine/record"
)

// A waiter is a party's place in line: its number in the lines of all keys that it
// waits for. Each of them has a row of it.
type waiter struct {
	Want      // in whose line the row is
	Holder    Holder
	Since     time.Time // on the running clock
	wants     []Want    // in the order of their keys
	seq       uint64
	asker     uuid.UUID // the call that waits; zero while parked
	call      call.Call // whose answer a grant is
	ttl       time.Duration
	requestID string
	keepAlive bool
	reason    string
	spent     bool      // the keys were reserved for this place once
	until     time.Time // of a parked one: when the place is given up
}

const waiterFormat = 3

func (w *waiter) encode() string {
	r := record.New(128 + len(w.Holder.Path) + len(w.Holder.Party) + len(w.requestID))
	r.Byte(waiterFormat)
	r.Flags(w.keepAlive, w.spent, w.Holder.Local, w.Shared, len(w.wants) > 1)
	r.ID(w.asker)
	r.ID(w.Holder.Actor)
	r.Duration(w.ttl)
	r.Time(w.Since)
	r.Text(w.Holder.Path)
	r.Text(w.Holder.Party)
	r.Text(w.requestID)
	r.Text(w.reason)
	w.call.Append(r)
	if len(w.wants) > 1 {
		for _, want := range w.wants {
			r.Flags(want.Shared)
			r.Text(want.Scope)
			r.Text(want.Key)
		}
	}
	return r.String()
}

// read reads a place; scope, key and number are in the row's key, and the session
// is its owner.
func (w *waiter) read(row engine.Row) (ok bool) {
	var several bool
	r := record.Read(row.Value)
	format := r.Byte()
	r.Flags(&w.keepAlive, &w.spent, &w.Holder.Local, &w.Shared, &several)
	w.asker, w.Holder.Actor = r.ID(), r.ID()
	w.ttl, w.Since = r.Duration(), r.Time()
	w.Holder.Path, w.Holder.Party, w.requestID, w.reason = r.Text(), r.Text(), r.Text(), r.Text()
	w.call = call.Read(&r)
	w.Holder.Session, w.until = row.Owner, row.Due
	name := strings.TrimPrefix(row.Key, waitPrefix)
	if format != waiterFormat || len(name) < 9 {
		return false
	}
	w.seq = record.ReadFixed(name[len(name)-8:])
	w.Scope, w.Key, ok = strings.Cut(name[:len(name)-9], "\x00")
	if !several {
		w.wants = []Want{w.Want}
		return ok && r.Done()
	}
	for len(w.wants) < MaxWants && !r.Done() {
		var want Want
		r.Flags(&want.Shared)
		want.Scope, want.Key = r.Text(), r.Text()
		w.wants = append(w.wants, want)
	}
	return ok && r.Done() && slices.Contains(w.wants, w.Want)
}

func (w *waiter) parked() bool { return w.asker == uuid.Nil }

// rowKey is that of the place in the line for one of its keys.
func (w *waiter) rowKey(want Want) string {
	return waitKeys(want.Scope, want.Key) + record.Fixed(w.seq)
}

// first reports whether the row that was read is that of the first of the place's
// keys. Whatever is done once for a place goes by it.
func (w *waiter) first() bool { return w.Want == w.wants[0] }

// put writes the place by write, which is Put for a new one: its order survives a
// restart. What a call changes about it need not.
func (w waiter) put(tx Tx, write func(engine.Row)) {
	for _, w.Want = range w.wants {
		write(engine.Row{Key: w.rowKey(w.Want), Value: w.encode(), Owner: w.Holder.Session, Due: w.until})
	}
}

// park keeps the place for a while for a party that is between two calls.
func (w *waiter) park(tx Tx) {
	w.asker, w.until = uuid.Nil, tx.Now().Add(ParkTime)
	w.put(tx, tx.Touch)
	w.find(tx)
}

// away parks a place. One for which the keys were reserved before holds up nobody from
// then on; another was passed over from when its call was gone, and may be next now.
func (c *Core) away(tx Tx, w waiter) {
	w.park(tx)
	c.handOver(tx, w.wants...)
}

// find writes the row that finds the place, which wakes the calls that wait there.
func (w *waiter) find(tx Tx) {
	tx.Touch(engine.Row{Key: placeKey(w.Holder, w.wants), Value: w.rowKey(w.wants[0])})
}

// remove removes the place, and what is reserved for it.
func (w *waiter) remove(tx Tx) {
	w.unreserve(tx)
	for _, want := range w.wants {
		tx.Delete(w.rowKey(want))
	}
	tx.Delete(placeKey(w.Holder, w.wants))
	addCount(tx, waitsCount(w.Holder.Actor), -len(w.wants))
}

// unreserve removes what is reserved for the place.
func (w *waiter) unreserve(tx Tx) {
	for _, want := range w.wants {
		if !w.spent {
			return
		}
		if row, ok := tx.Get(rowOf(want, w.seq)); ok {
			if l := (Lease{}); l.read(row) && l.Reserved && l.Holder.same(w.Holder) {
				tx.Delete(row.Key)
			}
		}
	}
}

// placeOf finds a party's place in the lines for some keys.
func placeOf(tx Tx, h Holder, wants []Want) (w waiter, ok bool) {
	ref, ok := tx.Get(placeKey(h, wants))
	if !ok {
		return waiter{}, false
	}
	row, ok := tx.Get(ref.Value)
	return w, ok && w.read(row)
}

// ticketOf names a party's place in line. It tells nothing that the session does not
// know.
func ticketOf(h Holder, wants []Want) uuid.UUID {
	var name strings.Builder
	name.WriteString(h.Party)
	for _, w := range wants {
		name.WriteString("\x00" + w.Scope + "\x00" + w.Key)
	}
	return uuid.NewSHA1(h.Session, []byte(name.String()))
}

// wait gives the call its party's place in line: the one that it has, also if an
// older call waits there, or one at the end. The older call goes on waiting, and is
// told of a grant as of a re-entry. When the wait is over, the call that has the
// place parks it.
func (c *Core) wait(tx Tx, a *ask, held *HeldError, w waiter, placed, last bool) error {
	mine := placed && w.asker == a.id
	switch {
	case last && !placed:
		return held
	case last:
		if mine {
			c.away(tx, w)
		}
		return &WaitError{HeldError: *held, Position: w.position(tx), Ticket: ticketOf(a.Holder, a.wants)}
	case mine, placed && a.placed && c.asking(w.asker):
		return engine.ErrWait
	}
	if refusal := c.deadlock(tx, a, w.seq); refusal != nil {
		if placed && !c.asking(w.asker) {
			c.leave(tx, w)
		}
		c.recordDeadlock(tx, refusal, a.Reason)
		return refusal
	}
	write := tx.Touch
	if !placed {
		if err := c.room(tx, a); err != nil {
			return err
		}
		w = waiter{Since: tx.Now(), seq: event.Next(tx)}
		write = tx.Put
	}
	a.placed = true
	before := w.wants
	if !slices.Equal(before, a.wants) {
		w.unreserve(tx) // the rows go by the mode
	}
	w.wants, w.Holder, w.asker, w.call = a.wants, a.Holder, a.id, a.call
	w.ttl, w.requestID, w.keepAlive, w.reason, w.until = a.TTL, a.RequestID, a.KeepAlive, a.Reason, time.Time{}
	w.put(tx, write)
	switch {
	case !placed:
		w.find(tx)
		addCount(tx, waitsCount(w.Holder.Actor), len(w.wants))
		for _, want := range w.wants {
			c.record(tx, want.Scope, want.Key, w.Holder, event.Event{
				Kind: event.LeaseWaiting, Shared: want.Shared, By: held.Holder.Path, Reason: w.reason,
			})
		}
	case !slices.Equal(before, w.wants):
		c.handOver(tx, w.wants...) // it may share now what it wanted alone
	}
	c.warn(tx, &w)
	return engine.ErrWait
}

// position is how far behind the place is in the longest of its lines.
func (w *waiter) position(tx Tx) (n int) {
	for _, want := range w.wants {
		n = max(n, inLine(tx, want.Scope, want.Key, w.seq))
	}
	return n
}

// room reports which bound a new place would exceed.
func (c *Core) room(tx Tx, a *ask) error {
	for _, want := range a.wants {
		if inLine(tx, want.Scope, want.Key, math.MaxUint64) >= c.opts.MaxWaitersPerKey {
			return &LimitError{"waiters for one lease", int64(c.opts.MaxWaitersPerKey)}
		}
	}
	return cmp.Or(
		below(tx, waitsCount(a.Holder.Actor), "waits of one actor", c.opts.MaxWaitersPerActor),
		below(tx, actorCount(a.Holder.Actor), "leases of one actor", c.opts.MaxLeasesPerActor))
}

// leave gives up a place, and what is reserved for it. Those behind it may be next.
func (c *Core) leave(tx Tx, w waiter) {
	w.remove(tx)
	for _, want := range w.wants {
		c.record(tx, want.Scope, want.Key, w.Holder, event.Event{Kind: event.LeaseWaitEnded, Shared: want.Shared})
	}
	c.handOver(tx, w.wants...)
}

// live reports whether the place could have its keys: its call waits, or it is parked
// and they were not reserved for it yet. A session that has ended gets nothing; nor
// does a call that is gone, which will remove or park its place. They are asked in
// the transaction that grants.
func (c *Core) live(tx Tx, w *waiter) bool {
	if w.parked() {
		return !w.spent && c.opts.SessionOpen(tx, w.Holder.Session)
	}
	return c.asks(tx, w)
}

// asks reports whether a call waits in the place.
func (c *Core) asks(tx Tx, w *waiter) bool {
	return c.asking(w.asker) && c.opts.SessionOpen(tx, w.Holder.Session)
}

// A turn says whether a place keeps its turn, or is passed over.
type turn func(Tx, *waiter) bool

// placesBefore yields the places with a number of at most last that a party has to wait
// behind for a key: those that keep their turn, and want what overlaps with it, unless both share.
func (c *Core) placesBefore(tx Tx, h Holder, want Want, last uint64, keeps turn) iter.Seq[*waiter] {
	return func(yield func(*waiter) bool) {
		alone := !isPath(want.Key)
		for row := range near(tx, waitPrefix, want.Scope, want.Key) {
			var p waiter
			switch after := record.ReadFixed(row.Key[len(row.Key)-8:]) > last; {
			case after && alone:
				return // so are the others in its line
			case after, !p.read(row), p.Shared && want.Shared, p.Holder.same(h), !keeps(tx, &p):
			case !yield(&p):
				return
			}
		}
	}
}

// firstBefore gives the first of [Core.placesBefore] that is live, or nil.
func (c *Core) firstBefore(tx Tx, h Holder, want Want, last uint64) *waiter {
	for p := range c.placesBefore(tx, h, want, last, c.live) {
		return p
	}
	return nil
}

// A keeper keeps a place from one of its keys: it is the lease or reservation of another
// party, or a place before it.
type keeper struct {
	want  Want
	lease *Lease // nil: it is a place
	place *waiter
}

// keepers yields what keeps a place waiting, the leases first. What its party has it
// need not wait for, whoever else does; nor does a call for what its actor is offered.
func (c *Core) keepers(tx Tx, w *waiter, keeps turn) iter.Seq[keeper] {
	return func(yield func(keeper) bool) {
		var own []Want // or offered
		for _, want := range w.wants {
			for row := range near(tx, leasePrefix, want.Scope, want.Key) {
				var l Lease
				switch ok := l.read(row); {
				case ok && !w.parked() && l.gives(w.Holder, want, tx.Now()):
					own = append(own, want)
				case !ok || l.keepsOut(w.Holder, want): // nobody knows whose it is that cannot be read
					if !yield(keeper{want: want, lease: &l}) {
						return
					}
				case l.Holder.same(w.Holder) && l.Key == want.Key && !l.Reserved && !l.lapsed:
					own = append(own, want)
				}
			}
		}
		for _, want := range w.wants {
			if slices.Contains(own, want) {
				continue
			}
			for p := range c.placesBefore(tx, w.Holder, want, w.seq-1, keeps) {
				if !yield(keeper{want: want, place: p}) {
					return
				}
			}
		}
	}
}

// clear reports whether nothing keeps the place from its keys.
func (c *Core) clear(tx Tx, w *waiter, keeps turn) bool {
	for range c.keepers(tx, w, keeps) {
		return false
	}
	return true
}

// wanted reports whether somebody waits who could have the key if l ended, or has it
// beside l, which had lapsed.
func (c *Core) wanted(tx Tx, l *Lease) bool {
	if _, own := c.freed[l.Scope]; own {
		return true // its owner decides
	}
	want := Want{l.Scope, l.Key, l.Shared}
	for row := range near(tx, leasePrefix, l.Scope, l.Key) {
		var other Lease
		if row.Key == l.row {
			continue
		}
		if !other.read(row) || other.keepsOut(l.Holder, want) || other.Key == l.Key && !other.lapsed && !(l.Shared && other.Shared) {
			return true // of one key a party has one lease
		}
	}
	for range c.placesBefore(tx, l.Holder, want, math.MaxUint64, c.live) {
		return true
	}
	return false
}

// waiters yields the places in the lines for a key and for what overlaps with it, first
// in line first.
func waiters(tx Tx, scope, key string) iter.Seq[waiter] {
	return func(yield func(waiter) bool) {
		if !isPath(key) {
			line := waitKeys(scope, key)
			for row, ok := tx.First(line, line); ok; row, ok = next(tx, line, row) {
				var w waiter
				if w.read(row) && !yield(w) {
					return
				}
			}
			return
		}
		var keys []string
		for row := range near(tx, waitPrefix, scope, key) {
			keys = append(keys, row.Key)
		}
		number := func(row string) uint64 { return record.ReadFixed(row[len(row)-8:]) }
		slices.SortFunc(keys, func(a, b string) int { return cmp.Compare(number(a), number(b)) })
		for _, key := range keys {
			var w waiter
			// A place may be in several of the lines, and served by now.
			if row, ok := tx.Get(key); ok && w.read(row) && !yield(w) {
				return
			}
		}
	}
}

// inLine counts the places up to a number in the lines for a key and for what overlaps
// with it.
func inLine(tx Tx, scope, key string, last uint64) (n int) {
	several := make(map[uint64]bool) // a place may be in several lines
	for row := range near(tx, waitPrefix, scope, key) {
		seq := record.ReadFixed(row.Key[len(row.Key)-8:])
		if seq > last || several[seq] {
			continue
		}
		if n++; isPath(key) {
			several[seq] = true
		}
	}
	return n
}

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

// A waiter is a party's request with its place in line. A place has one number,
// and one row in the line of each key that it waits for.
type waiter struct {
	Request           // Key and Shared are of the line in which this row is
	Scope   string    // of that line
	wants   []Want    // in the order of their keys
	asker   uuid.UUID // the call that waits; zero while parked
	call    call.Call // the call that a grant answers

	seq   uint64    // 0: it is in no line
	Since time.Time // on the running clock; zero: it is in no line
	until time.Time // when a parked place is given up

	// The keys of a place are reserved for it once: while it is parked, until
	// reservedTo. Then its turn is spent.
	reservedTo time.Time
	spent      bool
}

const waiterFormat = 3

func (w *waiter) encode() string {
	r := record.New(128 + len(w.Holder.Path) + len(w.Holder.Party) + len(w.RequestID))
	r.Byte(waiterFormat)
	r.Flags(w.KeepAlive, w.spent, w.Holder.Local, w.Shared, len(w.wants) > 1, w.reserved())
	if w.reserved() {
		r.Time(w.until)
	}
	r.ID(w.asker)
	r.ID(w.Holder.Actor)
	r.Duration(w.TTL)
	r.Time(w.Since)
	r.Texts(w.Holder.Path, w.Holder.Party, w.RequestID, w.Reason)
	w.call.Append(r)
	if len(w.wants) > 1 {
		for _, want := range w.wants {
			r.Flags(want.Shared)
			r.Texts(want.Scope, want.Key)
		}
	}
	return r.String()
}

// read reads a place. The row's key holds the scope, key and number, and its
// owner is the session.
func (w *waiter) read(row engine.Row) (ok bool) {
	var several, reserved bool
	r := record.Read(row.Value)
	format := r.Byte()
	r.Flags(&w.KeepAlive, &w.spent, &w.Holder.Local, &w.Shared, &several, &reserved)
	if w.until = row.Due; reserved {
		w.reservedTo, w.until = row.Due, r.Time()
	}
	w.asker, w.Holder.Actor = r.ID(), r.ID()
	w.TTL, w.Since = r.Duration(), r.Time()
	w.Holder.Path, w.Holder.Party, w.RequestID, w.Reason = r.Text(), r.Text(), r.Text(), r.Text()
	w.call = call.Read(&r)
	w.Holder.Session = row.Owner
	name := strings.TrimPrefix(row.Key, waitPrefix)
	if format != waiterFormat || len(name) < 9 {
		return false
	}
	w.seq = numberOf(name)
	w.Scope, w.Key, ok = strings.Cut(name[:len(name)-9], "\x00")
	if !several {
		w.wants = []Want{w.line()}
		return ok && r.Done()
	}
	for len(w.wants) < MaxWants && !r.Done() {
		var want Want
		r.Flags(&want.Shared)
		want.Scope, want.Key = r.Text(), r.Text()
		w.wants = append(w.wants, want)
	}
	return ok && r.Done() && slices.Contains(w.wants, w.line())
}

func (w *waiter) parked() bool { return w.asker == uuid.Nil }

func (w *waiter) reserved() bool { return !w.reservedTo.IsZero() }

// due returns when a parked place, or the reservation for it, is given up.
func (w *waiter) due() time.Time {
	if w.reserved() {
		return w.reservedTo
	}
	return w.until
}

// line returns the key in whose line this row is.
func (w *waiter) line() Want { return Want{w.Scope, w.Key, w.Shared} }

// rowKey returns the key of the place's row in the line for want.
func (w *waiter) rowKey(want Want) string {
	return waitKeys(want.Scope, want.Key) + record.Fixed(w.seq)
}

// first reports whether this row is that of the place's first key. What must
// happen once for each place is done at that row.
func (w *waiter) first() bool { return w.line() == w.wants[0] }

// put writes the rows of the place with write. For a new place, and for one that
// another call takes over, that is Put, so that the order of the line and the call
// survive a restart. Other changes need not survive it.
func (w waiter) put(write func(engine.Row)) {
	for _, want := range w.wants {
		w.Scope, w.Key, w.Shared = want.Scope, want.Key, want.Shared
		write(engine.Row{Key: w.rowKey(want), Value: w.encode(), Owner: w.Holder.Session, Due: w.due()})
	}
}

// park keeps the place for [ParkTime], for a party that is between two calls.
func (w *waiter) park(tx Tx) {
	w.asker, w.until = uuid.Nil, tx.Now().Add(ParkTime)
	w.put(tx.Touch)
	w.find(tx)
}

// away parks a place and hands its keys over: a place whose turn is spent no
// longer holds up others, and any other was skipped since its call ended and may
// be next now.
func (c *Core) away(tx Tx, w waiter) {
	w.park(tx)
	c.handOver(tx, w.wants...)
}

// find writes the row by which the place is found. Writing it wakes the calls
// that wait there.
func (w *waiter) find(tx Tx) {
	tx.Touch(engine.Row{Key: placeKey(w.Holder, w.wants), Value: w.rowKey(w.wants[0])})
}

func (w *waiter) remove(tx Tx) {
	for _, want := range w.wants {
		tx.Delete(w.rowKey(want))
	}
	tx.Delete(placeKey(w.Holder, w.wants))
	w.count(tx, -1)
}

// count adds n to the counts of the place's actor and of its lines: 1 for a new place,
// -1 for one that goes. A line counts parties.
func (w *waiter) count(tx Tx, n int) {
	addCount(tx, waitsCount(w.Holder.Actor), n*len(w.wants))
	again := w.again(tx)
	for _, want := range w.wants {
		if line := lineCount(want.Scope, want.Key); !again[line] {
			addCount(tx, line, n)
		}
	}
}

// again returns the counts of the lines in which the place's party may have another
// place: for one of the place's keys alone, or for several keys.
func (w *waiter) again(tx Tx) (lines map[string]bool) {
	its := w.rowKey(w.wants[0])
	add := func(ref engine.Row) {
		if ref.Value == its {
			return
		}
		var p waiter
		if row, ok := tx.Get(ref.Value); ok && p.read(row) {
			if lines == nil { // mostly a party has one place
				lines = make(map[string]bool)
			}
			for _, want := range p.wants {
				lines[lineCount(want.Scope, want.Key)] = true
			}
		}
	}
	for _, want := range w.wants {
		if ref, ok := tx.Get(placeKey(w.Holder, []Want{want})); ok {
			add(ref)
		}
	}
	for ref := range tx.Scan(placesOfSeveral(w.Holder)) {
		add(ref)
	}
	return lines
}

// placeOf finds a party's place in the lines for some keys.
func placeOf(tx Tx, h Holder, wants []Want) (w waiter, ok bool) {
	if ref, ok := tx.Get(placeKey(h, wants)); ok {
		if row, ok := tx.Get(ref.Value); ok && w.read(row) {
			return w, true
		}
	}
	return waiter{}, false
}

// ticketOf returns the name of a party's place in line. It reveals nothing that
// the session does not know.
func ticketOf(h Holder, wants []Want) uuid.UUID {
	var name strings.Builder
	name.WriteString(h.Party)
	for _, w := range wants {
		name.WriteString("\x00" + w.Scope + "\x00" + w.Key)
	}
	return uuid.NewSHA1(h.Session, []byte(name.String()))
}

// wait gives the call its party's place in line: the existing one, even if an
// older call waits there, or a new one at the end. An older call goes on
// waiting, and is answered as a re-entry once there is a grant. When the wait
// is over, the call that has the place parks it; if it is parked, a call with its
// ticket keeps it, though it does not wait.
func (c *Core) wait(tx Tx, a *ask, held *HeldError, place waiter, last bool) error {
	placed, mine := place.seq > 0, place.asker == a.asker
	switch {
	case last && !placed:
		return held
	case last:
		if mine || place.parked() {
			c.away(tx, place)
		}
		return &WaitError{HeldError: *held, Position: place.position(tx), Ticket: ticketOf(a.Holder, a.wants)}
	case mine, placed && a.placed && c.asking(place.asker):
		if a.ended == 0 {
			tx.NoWait()
		}
		return engine.ErrWait
	}
	if refusal := c.deadlock(tx, a); refusal != nil {
		if placed && !c.asking(place.asker) {
			c.leave(tx, place)
		}
		c.recordDeadlock(tx, refusal, a.Reason)
		return refusal
	}
	if placed {
		write := tx.Touch
		if !place.call.Same(a.call) { // after a restart, a cancel of the earlier call must not take the place
			write = tx.Put
		}
		a.put(write)
		if !slices.Equal(place.wants, a.wants) {
			c.handOver(tx, a.wants...) // the party may share now what it wanted exclusively
		}
	} else {
		if err := c.room(tx, a); err != nil {
			return err
		}
		a.Since, a.seq = tx.Now(), event.Next(tx)
		a.put(tx.Put)
		a.find(tx)
		a.count(tx, 1)
		for _, want := range a.wants {
			c.record(tx, want.Scope, want.Key, a.Holder, event.Event{
				Kind: event.LeaseWaiting, Shared: want.Shared, By: held.Holder.Path, Reason: a.Reason,
			})
		}
	}
	a.placed = true
	c.warn(tx, &a.waiter)
	// The place need not be durable before the call waits in it: nobody is told
	// of it before that, and whatever is done to it comes later in the log.
	if a.ended == 0 && (!placed || slices.Equal(place.wants, a.wants)) {
		tx.NoWait()
	}
	return engine.ErrWait
}

// position is the place's position in the longest of its lines.
func (w *waiter) position(tx Tx) (n int) {
	for _, want := range w.wants {
		n = max(n, inLine(tx, want.Scope, want.Key, w.seq))
	}
	return n
}

// room refuses a new place that would exceed a limit.
func (c *Core) room(tx Tx, a *ask) error {
	for _, want := range a.wants {
		n := inLine(tx, want.Scope, want.Key, math.MaxUint64)
		if a.passed += n; n >= c.opts.MaxWaitersPerKey {
			return &LimitError{Which: "waiters for one lease", Max: int64(c.opts.MaxWaitersPerKey)}
		}
	}
	return cmp.Or(
		below(tx, waitsCount(a.Holder.Actor), "waits of one actor", 1, c.opts.MaxWaitersPerActor),
		below(tx, actorCount(a.Holder.Actor), "leases of one actor", 1, c.opts.MaxLeasesPerActor))
}

// leave gives up a place, and serves those behind it.
func (c *Core) leave(tx Tx, w waiter) {
	w.remove(tx)
	for _, want := range w.wants {
		c.record(tx, want.Scope, want.Key, w.Holder, event.Event{Kind: event.LeaseWaitEnded, Shared: want.Shared})
	}
	c.handOver(tx, w.wants...)
}

// live reports whether the place may be given its keys: its call waits, or it
// is parked and its turn is not spent. A session that has ended
// gets nothing. A call that is gone gets nothing either, and will remove or
// park its place. This is checked in the transaction that grants.
func (c *Core) live(tx Tx, w *waiter) bool {
	if w.parked() {
		return !w.spent && !(w.reserved() && tx.Now().After(w.reservedTo)) && c.opts.SessionOpen(tx, w.Holder.Session)
	}
	return c.asks(tx, w)
}

// asks reports whether a call is waiting in the place.
func (c *Core) asks(tx Tx, w *waiter) bool {
	return c.asking(w.asker) && c.opts.SessionOpen(tx, w.Holder.Session)
}

// A turn reports whether a place keeps its turn; otherwise it is skipped.
type turn func(Tx, *waiter) bool

// placesBefore yields the places with a number up to last that a party must
// wait behind for a key. They keep their turn and want a key that overlaps with
// it, and not both sides want to share.
func (c *Core) placesBefore(tx Tx, h Holder, want Want, last uint64, keeps turn) iter.Seq[*waiter] {
	return func(yield func(*waiter) bool) {
		for line := range lines(tx, want.Scope, want.Key) {
			for p := range placesIn(tx, line, last) {
				if !(p.Shared && want.Shared) && !p.Holder.same(h) && keeps(tx, &p) && !yield(&p) {
					return
				}
			}
		}
	}
}

// lines yields the lines for a key and for keys that overlap with it: what the keys of the
// rows of their places begin with, and how many parties have one.
func lines(tx Tx, scope, key string) iter.Seq2[string, uint64] {
	return func(yield func(line string, parties uint64) bool) {
		for row := range near(tx, linePrefix, scope, key) {
			if !yield(waitPrefix+row.Key[len(linePrefix):], record.ReadFixed(row.Value)) {
				return
			}
		}
	}
}

// placesIn yields the places of a line with a number up to last, in the order of their
// numbers.
func placesIn(tx Tx, line string, last uint64) iter.Seq[waiter] {
	return func(yield func(waiter) bool) {
		rowsOn(tx, line, func(row engine.Row) bool {
			var w waiter
			return numberOf(row.Key) <= last && (!w.read(row) || yield(w))
		})
	}
}

// numberOf returns the number of a place from the key of its row.
func numberOf(row string) uint64 { return record.ReadFixed(row[len(row)-8:]) }

// wanted reports whether a waiter could get the key if l ended. Nobody else has
// it: whoever takes the key of a lapsed lease ends that.
func (c *Core) wanted(tx Tx, l *Lease) bool {
	if _, own := c.freed[l.Scope]; own {
		return true // the owner of the scope decides
	}
	for range c.placesBefore(tx, l.Holder, Want{l.Scope, l.Key, l.Shared}, math.MaxUint64, c.live) {
		return true
	}
	return false
}

// waiters yields the places in the lines for a key and for keys that overlap
// with it, in the order of their numbers.
func waiters(tx Tx, scope, key string) iter.Seq[waiter] {
	return func(yield func(waiter) bool) {
		var several []string
		for line := range lines(tx, scope, key) {
			several = append(several, line)
		}
		if len(several) == 1 {
			placesIn(tx, several[0], math.MaxUint64)(yield)
			return
		}
		var keys []string
		for _, line := range several {
			rowsOn(tx, line, func(row engine.Row) bool { keys = append(keys, row.Key); return true })
		}
		slices.SortFunc(keys, func(a, b string) int { return cmp.Compare(numberOf(a), numberOf(b)) })
		for _, key := range keys {
			var w waiter
			// A place may be in several of the lines, and may already have been
			// served.
			if row, ok := tx.Get(key); ok && w.read(row) && !yield(w) {
				return
			}
		}
	}
}

// inLine counts the parties with places up to a number in the lines for a key and for
// keys that overlap with it.
func inLine(tx Tx, scope, key string, last uint64) int {
	if last == math.MaxUint64 {
		several, all := 0, uint64(0)
		for _, n := range lines(tx, scope, key) {
			if several++; several > 1 {
				break // a party may be in each
			}
			all = n
		}
		if several < 2 {
			return int(all)
		}
	}
	parties := make(map[Holder]bool) // one may have several places
	for line := range lines(tx, scope, key) {
		for w := range placesIn(tx, line, last) {
			parties[partyOf(w.Holder)] = true
		}
	}
	return len(parties)
}

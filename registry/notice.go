package registry

import (
	"iter"
	"math"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/record"
)

// A NoticeKind says what a notice is about.
type NoticeKind int

const (
	Loss    NoticeKind = iota // the actor has lost a lease that it did not release
	Wanted                    // somebody waits for a lease that the session holds
	Offered                   // a lease is offered to the actor
)

// A Notice is what the next answer tells a session about a lease.
type Notice struct {
	Kind       NoticeKind
	Scope, Key string
	LeaseID    uuid.UUID
	Token      uint64
	Session    uuid.UUID // the session that is told; zero: any of the actor's
	Party      string    // the party of the session that lost or holds the lease
	Reason     string    // of a loss its Cause, otherwise why From wants the lease
	At         time.Time // on the wall clock

	SupersededBy string // of a loss: path of the actor that holds the lease now; "" if nobody does
	NowWith      string // of a loss: name of the party that holds it now, for readers; "" if nobody does
	Regained     uint64 // of a loss, instead: token of the lease, which the loser has acquired again
	From         Holder // the first that waits, or the one that offers the lease
	Waiters      int    // how many wait

	at    time.Time // on the running clock
	told  bool
	sure  bool   // that it was told is stored; see [tendNotice]
	place string // key of the waiter's row in the line
}

// MaxUntold is how many untold notices are kept for an actor. Further losses
// are only counted.
const MaxUntold = 1000

const noticeFormat = 4

func (n *Notice) encode() string {
	w := record.New(80 + len(n.Scope) + len(n.Key) + len(n.Party) + len(n.Reason))
	w.Byte(noticeFormat)
	w.Flags(n.told, n.Kind == Wanted, n.Kind == Offered, n.sure)
	w.ID(n.LeaseID)
	w.Uint(n.Token)
	w.Time(n.at)
	w.Texts(n.Scope, n.Key, n.Party, n.Reason, n.place)
	return w.String()
}

func (n *Notice) read(row engine.Row) (ok bool) {
	var wanted, offered bool
	r := record.Read(row.Value)
	format := r.Byte()
	r.Flags(&n.told, &wanted, &offered, &n.sure)
	switch {
	case wanted:
		n.Kind = Wanted
	case offered:
		n.Kind = Offered
	}
	n.LeaseID, n.Session, n.Token, n.at = r.ID(), row.Owner, r.Uint(), r.Time()
	n.Scope, n.Key, n.Party, n.Reason, n.place = r.Text(), r.Text(), r.Text(), r.Text(), r.Text()
	return format == noticeFormat && r.Done()
}

// isFor reports whether a session is told of the notice.
func (n *Notice) isFor(session uuid.UUID) bool {
	return n.Session == session || n.Session == uuid.Nil
}

// now returns the notice with what can change, such as the current holder of
// the key. It reports false if there is nothing left to tell: nobody waits, or
// the offer is void.
func (n Notice) now(tx Tx, actor uuid.UUID) (Notice, bool) {
	n.At = tx.WallAt(n.at)
	switch n.Kind {
	case Wanted:
		w, ok := n.waiter(tx)
		n.From, n.Reason, n.Waiters = w.Holder, w.Reason, inLine(tx, n.Scope, n.Key, math.MaxUint64)
		return n, ok
	case Offered:
		l, ok := leaseByID(tx, n.LeaseID)
		n.From, n.Reason = l.Holder, l.Reason
		return n, ok && l.offeredTo(actor, tx.Now())
	default:
		n.successor(tx, actor)
		return n, true
	}
}

// successor finds who holds what was lost: the key, or a path that overlaps with it.
// It looks at few leases, because an answer may report many losses.
func (n *Notice) successor(tx Tx, actor uuid.UUID) {
	looked := 0
	for row := range near(tx, leasePrefix, n.Scope, n.Key) {
		if looked++; looked > maxLooked {
			return
		}
		var l Lease
		if !l.read(row) || !l.held() || l.Token <= n.Token {
			continue
		}
		h := l.Holder
		mine := h.Actor == actor && h.Party == n.Party && (h.Session == n.Session || n.Session == uuid.Nil)
		switch {
		case mine && l.Key == n.Key:
			n.Regained, n.SupersededBy, n.NowWith = l.Token, "", ""
			return
		case mine:
			continue
		}
		if n.SupersededBy == "" {
			n.SupersededBy, n.NowWith = h.Path, h.name()
		}
		if !l.Shared { // else the loser may share it again
			return
		}
	}
}

// row returns the row of the notice to an actor.
func (n *Notice) row(actor uuid.UUID) engine.Row {
	key := lostKey(actor, n.LeaseID)
	switch {
	case n.Kind == Wanted:
		key = wantedKey(actor, n.LeaseID)
	case n.Kind == Offered:
		key = offerKey(actor, n.LeaseID)
	case n.LeaseID == uuid.Nil: // nobody can ask by this id, and other leases have no id either
		key += record.Fixed(n.Token)
	}
	return engine.Row{Key: key, Value: n.encode(), Owner: n.Session, Due: n.at.Add(keepLost)}
}

// raise writes a notice with write. It replaces the last one of its kind about
// the lease. It reports false if there is no room: a loss is then counted, and
// any other notice is dropped.
func (n *Notice) raise(tx Tx, actor uuid.UUID, write func(engine.Row)) (kept bool) {
	row := n.row(actor)
	row.Due = tx.Now().Add(keepLost) // a loss that is passed on may be older than that
	forgetNotice(tx, row.Key)
	count := newsOf(tx, actor)
	if kept = count.untold < MaxUntold; kept {
		write(row)
		markUntold(tx, row.Key)
	} else if n.Kind == Loss {
		count.dropped++
		count.put(tx, actor)
	}
	return kept
}

// putLost records the loss of a lease, so that its holder can be told.
func putLost(tx Tx, l *Lease, cause Cause) {
	n := Notice{
		Scope: l.Scope, Key: l.Key, LeaseID: l.ID, Token: l.Token,
		Session: l.Holder.Session, Party: l.Holder.Party, Reason: string(cause), at: tx.Now(),
	}
	if cause == SessionEnded {
		n.Session = uuid.Nil
	}
	n.raise(tx, l.Holder.Actor, tx.Put)
}

// Forgot raises a notice that the actor may have lost leases of which the state knows
// nothing. The cause says why, and what to do.
func (c *Core) Forgot(tx Tx, actor uuid.UUID, cause Cause) {
	n := Notice{Reason: string(cause), at: tx.Now()}
	n.raise(tx, actor, tx.Put)
}

// markUntold marks a notice as one that was not told, and counts it.
func markUntold(tx Tx, notice string) {
	tx.Touch(engine.Row{Key: untoldKey(notice), Value: record.Fixed(1)})
	count := newsOf(tx, lostActor(notice))
	count.untold++
	count.put(tx, lostActor(notice))
}

// untoldRows yields the rows of the notices that an actor has not been told of.
func untoldRows(tx Tx, actor uuid.UUID) iter.Seq[engine.Row] {
	return func(yield func(engine.Row) bool) {
		for mark := range tx.Scan(untoldPrefix + string(actor[:])) {
			if row, ok := tx.Get(lostPrefix + mark.Key[len(untoldPrefix):]); ok && !yield(row) {
				return
			}
		}
	}
}

func forgetNotice(tx Tx, key string) {
	row, ok := tx.Get(key)
	if !ok {
		return
	}
	tx.Delete(key)
	if n := (Notice{}); n.read(row) && !n.told {
		tx.Delete(untoldKey(key))
		count := newsOf(tx, lostActor(key))
		count.untold--
		count.put(tx, lostActor(key))
	}
}

// A news counts the notices that an actor has not been told of.
type news struct{ untold, dropped uint64 } // kept notices, and losses that were only counted

func newsOf(tx Tx, actor uuid.UUID) (n news) {
	if row, ok := tx.Get(NewsKey(actor)); ok {
		n.untold, n.dropped = record.ReadFixed(row.Value), record.ReadFixed(row.Value[8:])
	}
	return n
}

// put writes the counts. When no untold notice is kept, the counted losses are
// forgotten too.
func (n news) put(tx Tx, actor uuid.UUID) {
	if n.untold == 0 {
		tx.Delete(NewsKey(actor))
		return
	}
	tx.Touch(engine.Row{Key: NewsKey(actor), Value: record.Fixed(n.untold) + record.Fixed(n.dropped)})
}

// NewsKey returns the key of a row that changes whenever the actor gets a
// notice.
func NewsKey(actor uuid.UUID) string { return countPrefix + "lost/" + string(actor[:]) }

// lost returns the refusal for an id that is not held: a LostError if the actor
// held it; a LostError of otherwise, if that has a reason; ErrNotHolder in all
// other cases.
func (c *Core) lost(tx Tx, caller Holder, id uuid.UUID, otherwise Notice) error {
	var n Notice
	if row, ok := tx.Get(lostKey(caller.Actor, id)); !ok || !n.read(row) {
		if otherwise.Reason == "" {
			return ErrNotHolder
		}
		n = otherwise
		n.LeaseID, n.Session, n.Party, n.at = id, caller.Session, caller.Party, tx.Now()
	}
	n, _ = n.now(tx, caller.Actor)
	return &LostError{Notice: n}
}

// untold reports whether the caller has lost a lease and has not been told yet.
func untold(tx Tx, caller Holder, id uuid.UUID) bool {
	var n Notice
	row, ok := tx.Get(lostKey(caller.Actor, id))
	return ok && n.read(row) && !n.told && n.Session == caller.Session && n.Party == caller.Party
}

// untoldOf yields the notices that a session has not been told of, as they were
// when they were raised.
func untoldOf(tx Tx, h Holder) iter.Seq[Notice] {
	return func(yield func(Notice) bool) {
		for row := range untoldRows(tx, h.Actor) {
			var n Notice
			if n.read(row) && n.isFor(h.Session) && !yield(n) {
				return
			}
		}
	}
}

// CountUntold counts the notices that the holder's session has not been told of:
// those for which tells reports true, with the losses that were only
// counted, and the others.
func (c *Core) CountUntold(tx Tx, h Holder, tells func(Notice) bool) (mine, others int) {
	count := newsOf(tx, h.Actor)
	if count == (news{}) {
		return 0, 0
	}
	for n := range untoldOf(tx, h) {
		if n.Kind != Loss {
			if _, ok := n.now(tx, h.Actor); !ok {
				continue
			}
		}
		if tells(n) {
			mine++
		} else {
			others++
		}
	}
	return mine + int(count.dropped), others
}

// NewUntold returns the notices that the holder's session has not been told of,
// except those that known has, and what known is next time.
func (c *Core) NewUntold(tx Tx, h Holder, known map[string]string) (list []Notice, next map[string]string) {
	next = make(map[string]string)
	for row := range untoldRows(tx, h.Actor) {
		if known[row.Key] != row.Value {
			var n Notice
			if !n.read(row) || !n.isFor(h.Session) {
				continue
			}
			n, ok := n.now(tx, h.Actor)
			if !ok {
				continue // it may come back
			}
			list = append(list, n)
		}
		next[row.Key] = row.Value
	}
	return list, next
}

// TakeUntold returns at most limit notices that the holder's session has not been
// told of, those that came about first, and how many more there are. It leaves out
// those for which tells reports false. It marks the notices in list
// as told; a restart within [Retold] loses these marks, and then they are told again.
// The remaining notices come with later answers, except losses that were only
// counted: more reports them once. If there are no notices, which is the usual case,
// it costs one look-up.
func (c *Core) TakeUntold(tx Tx, h Holder, limit int, tells func(Notice) bool) (list []Notice, more int) {
	count := newsOf(tx, h.Actor)
	if count == (news{}) {
		return nil, 0
	}
	var stale []Notice // they have become void
	inOrder := func(a, b Notice) int { return a.at.Compare(b.at) }
	for _, n := range slices.SortedStableFunc(untoldOf(tx, h), inOrder) {
		full := len(list) >= limit
		if n.Kind == Loss && full { // it never becomes void, and there may be many
			if tells(n) {
				more++
			}
			continue
		}
		n, ok := n.now(tx, h.Actor)
		switch {
		case !ok:
			stale = append(stale, n)
		case !tells(n):
		case full:
			more++
		default:
			list = append(list, n)
		}
	}
	for _, n := range stale {
		forgetNotice(tx, n.row(h.Actor).Key)
		if l, ok := leaseByID(tx, n.LeaseID); ok && l.awaited && n.Kind == Wanted {
			l.awaited = false // so that its holder is told of the next waiter
			l.touch(tx)
		}
	}
	for _, n := range list {
		n.told = true
		row := n.row(h.Actor)
		row.Due = tx.Now().Add(Retold)
		tx.Touch(row)
		tx.Delete(untoldKey(row.Key))
	}
	news{untold: newsOf(tx, h.Actor).untold - uint64(len(list))}.put(tx, h.Actor)
	return list, more + int(count.dropped)
}

// tendNotice stores that a loss was told, once it cannot be told again any more, so that
// it is not told after a restart. A notice that was not told is kept as long as the session
// that is to be told: its agent may have been quiet for days. Other notices are forgotten,
// and losses in the end: nobody asks by the id of a lease for longer, and other leases have
// no id.
func (c *Core) tendNotice(tx Tx, row engine.Row) {
	var n Notice
	readable := n.read(row)
	if readable && !n.told && n.Session != uuid.Nil && c.opts.SessionOpen(tx, n.Session) {
		row.Due = tx.Now().Add(keepLost)
		tx.Touch(row)
		return
	}
	if !readable || !n.told || n.sure || n.Kind != Loss || n.LeaseID == uuid.Nil {
		forgetNotice(tx, row.Key)
		return
	}
	n.sure = true
	row.Value, row.Due = n.encode(), tx.Now().Add(keepLost)
	tx.Put(row)
}

// Retold is how long after a notice was told it may be told again, because the
// answer that told it may not have been read.
const Retold = time.Minute

// again returns the row of a notice as that of one to be told again if it was
// told within the last [Retold], and reports whether it was.
func (n *Notice) again(tx Tx, row engine.Row) (engine.Row, bool) {
	if !n.told || n.sure || !tx.Now().Before(row.Due) {
		return row, false
	}
	n.told = false
	markUntold(tx, row.Key)
	row.Value, row.Due = n.encode(), tx.Now().Add(keepLost)
	return row, true
}

// Retell marks the notices to be told again, because the answer that told them within
// [Retold] will not be read.
func (c *Core) Retell(tx Tx, h Holder, told []Notice) {
	for _, n := range told {
		row, ok := tx.Get(n.row(h.Actor).Key)
		if !ok || !n.read(row) || !n.isFor(h.Session) {
			continue
		}
		if row, ok := n.again(tx, row); ok {
			tx.Touch(row)
		}
	}
}

// leaveNotice passes a notice of a session that ends on to the next session of
// its actor. A loss that was told just before is told again, because the answer
// may have been lost with the connection. The notices that somebody waits went
// with the leases of the session.
func (c *Core) leaveNotice(tx Tx, row engine.Row) {
	var n Notice
	readable := n.read(row)
	row.Owner = uuid.Nil
	if readable {
		row, _ = n.again(tx, row)
	}
	if !n.told {
		row.Due = tx.Now().Add(keepLost)
	}
	tx.Put(row)
	if !n.told { // the actor's other sessions can tell it from now on, and look only after a change
		newsOf(tx, lostActor(row.Key)).put(tx, lostActor(row.Key))
	}
}

// PassOn passes the losses that an actor was not told of on to another actor.
func (c *Core) PassOn(tx Tx, from, to uuid.UUID) {
	for row := range untoldRows(tx, from) {
		if n := (Notice{}); n.read(row) && n.Kind == Loss {
			forgetNotice(tx, row.Key)
			n.Session = uuid.Nil
			n.raise(tx, to, tx.Put)
		}
	}
}

// LostBy yields leases that an actor has lost in the last hour, or has not been told of
// yet, except those that ended with their session. It looks at no more than [MaxUntold] of all that it has lost.
func (c *Core) LostBy(tx Tx, actor uuid.UUID) iter.Seq[Notice] {
	return func(yield func(Notice) bool) {
		looked := 0
		for row := range tx.Scan(lostKeys(actor)) {
			if looked++; looked > MaxUntold {
				return
			}
			if n := (Notice{}); n.read(row) && n.Kind == Loss && n.Reason != string(SessionEnded) && !yield(n) {
				return
			}
		}
	}
}

package registry

import (
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/record"
)

// A Lost says what became of a lease that its holder did not release.
type Lost struct {
	Scope, Key   string
	LeaseID      uuid.UUID
	Token        uint64
	Session      uuid.UUID // that is told; zero: the next one of the actor
	Party        string    // that held it
	Reason       string    // a Cause
	At           time.Time // on the wall clock
	SupersededBy string    // path of who holds it now; "" if nobody does

	at   time.Time // on the running clock
	told bool
}

// MaxUntold is how many losses are kept for an actor whose sessions ask for
// nothing. The others are counted.
const MaxUntold = 1000

const lostFormat = 2

func (l *Lost) encode() string {
	w := record.New(80 + len(l.Scope) + len(l.Key) + len(l.Party) + len(l.Reason))
	w.Byte(lostFormat)
	w.Flags(l.told)
	w.ID(l.LeaseID)
	w.ID(l.Session)
	w.Uint(l.Token)
	w.Time(l.at)
	w.Text(l.Scope)
	w.Text(l.Key)
	w.Text(l.Party)
	w.Text(l.Reason)
	return w.String()
}

func (l *Lost) read(row engine.Row) (ok bool) {
	r := record.Read(row.Value)
	format := r.Byte()
	r.Flags(&l.told)
	l.LeaseID, l.Session, l.Token, l.at = r.ID(), r.ID(), r.Uint(), r.Time()
	l.Scope, l.Key, l.Party, l.Reason = r.Text(), r.Text(), r.Text(), r.Text()
	return format == lostFormat && r.Done()
}

// now is the loss with what changes: when it was, by the wall clock, and who holds
// the key now.
func (l Lost) now(tx Tx) Lost {
	l.At = tx.Wall().Add(-tx.Now().Sub(l.at))
	if h, ok := getLease(tx, l.Scope, l.Key); ok && !h.lapsed && !h.Reserved {
		l.SupersededBy = h.Holder.Path
	}
	return l
}

// listener is whose next answer tells of the loss: a session, or the actor.
func (l *Lost) listener(actor uuid.UUID) uuid.UUID {
	if l.Session == uuid.Nil {
		return actor
	}
	return l.Session
}

// putLost writes that a lease is lost, so that its holder can be told. It reports
// false if there is no room: then it is only counted.
func putLost(tx Tx, l *Lease, cause Cause) (kept bool) {
	actor := l.Holder.Actor
	lost := Lost{
		Scope: l.Scope, Key: l.Key, LeaseID: l.ID, Token: l.Token,
		Session: l.Holder.Session, Party: l.Holder.Party, Reason: string(cause), at: tx.Now(),
	}
	if cause == SessionEnded {
		lost.Session = uuid.Nil
	}
	key := lostKey(actor, l.ID)
	if l.ID == uuid.Nil { // nobody can ask for it by its id, and there are others without
		key += record.Fixed(l.Token)
	}
	forgetLoss(tx, key)
	n := newsOf(tx, lost.listener(actor))
	n.actor, n.last = actor, l.Token
	if kept = count(tx, lossCount(actor)) < MaxUntold; kept {
		tx.Put(engine.Row{Key: key, Value: lost.encode(), Due: lost.at.Add(keepLost)})
		addCount(tx, lossCount(actor), 1)
	} else {
		n.dropped++
	}
	n.put(tx, lost.listener(actor))
	return kept
}

// forgetLoss removes a loss.
func forgetLoss(tx Tx, key string) {
	row, ok := tx.Get(key)
	if !ok {
		return
	}
	tx.Delete(key)
	if l := (Lost{}); l.read(row) && !l.told {
		addCount(tx, lossCount(lostActor(key)), -1)
	}
}

// A news says that there may be losses to tell. It changes with each.
type news struct {
	actor   uuid.UUID
	last    uint64 // token
	dropped uint64 // losses that are not kept
}

func newsOf(tx Tx, listener uuid.UUID) (n news) {
	row, ok := tx.Get(newsKey(listener))
	if !ok {
		return news{}
	}
	r := record.Read(row.Value)
	n.actor, n.last, n.dropped = r.ID(), r.Uint(), r.Uint()
	return n
}

func (n news) put(tx Tx, listener uuid.UUID) {
	w := record.New(24)
	w.ID(n.actor)
	w.Uint(n.last)
	w.Uint(n.dropped)
	tx.Touch(engine.Row{Key: newsKey(listener), Value: w.String(), Due: tx.Now().Add(keepLost)})
}

// lost is the refusal of an id that is not held: a LostError if the actor held
// it, else otherwise if that says anything, else ErrNotHolder.
func (c *Core) lost(tx Tx, caller Holder, id uuid.UUID, otherwise Lost) error {
	row, ok := tx.Get(lostKey(caller.Actor, id))
	if l := (Lost{}); ok && l.read(row) {
		return &LostError{l.now(tx)}
	}
	if otherwise.Reason != "" {
		return &LostError{otherwise}
	}
	return ErrNotHolder
}

// Untold returns at most limit losses that the holder's session has not been told
// of, and how many more there are. It costs two look-ups where there are none,
// which is nearly always.
func (c *Core) Untold(tx Tx, h Holder, limit int) (list []Lost, more int) {
	rows, more := untold(tx, h, limit)
	for _, row := range rows {
		var l Lost
		l.read(row)
		list = append(list, l.now(tx))
	}
	return list, more
}

// TakeUntold is Untold, and counts the losses in list as told. A crash may forget
// that: then they are told again. What more there is comes with the next answers,
// but losses that are not kept are only counted, once.
func (c *Core) TakeUntold(tx Tx, h Holder, limit int) (list []Lost, more int) {
	rows, more := untold(tx, h, limit)
	dropped := newsOf(tx, h.Session).dropped + newsOf(tx, h.Actor).dropped
	for _, row := range rows {
		var l Lost
		l.read(row)
		list = append(list, l.now(tx))
		l.told = true
		row.Value = l.encode()
		if l.LeaseID == uuid.Nil {
			row.Due = tx.Now().Add(time.Minute) // nobody can ask for it
		}
		tx.Touch(row)
		addCount(tx, lossCount(h.Actor), -1)
	}
	for _, listener := range []uuid.UUID{h.Session, h.Actor} {
		switch n := newsOf(tx, listener); {
		case n == (news{}):
		case more == int(dropped):
			tx.Delete(newsKey(listener))
		default:
			n.dropped = 0
			n.put(tx, listener)
		}
	}
	return list, more
}

func untold(tx Tx, h Holder, limit int) (rows []engine.Row, more int) {
	own, actors := newsOf(tx, h.Session), newsOf(tx, h.Actor)
	if own == (news{}) && actors == (news{}) {
		return nil, 0
	}
	for row := range tx.Scan(lostKeys(h.Actor)) {
		var l Lost
		switch {
		case !l.read(row) || l.told || l.Session != h.Session && l.Session != uuid.Nil:
		case len(rows) < limit:
			rows = append(rows, row)
		default:
			more++
		}
	}
	return rows, more + int(own.dropped+actors.dropped)
}

// bequeath leaves what a session that ends was not told of to the next one of its
// actor.
func bequeath(tx Tx, session uuid.UUID) {
	n := newsOf(tx, session)
	if n == (news{}) {
		return
	}
	for row := range tx.Scan(lostKeys(n.actor)) {
		if l := (Lost{}); l.read(row) && l.Session == session && !l.told {
			l.Session = uuid.Nil
			row.Value = l.encode()
			tx.Put(row)
		}
	}
	heir := newsOf(tx, n.actor)
	heir.actor, heir.last, heir.dropped = n.actor, n.last, heir.dropped+n.dropped
	heir.put(tx, n.actor)
	tx.Delete(newsKey(session))
}

// LostBy returns what an actor has lost in the last hour otherwise than by the end
// of the session that held it.
func (c *Core) LostBy(tx Tx, actor uuid.UUID) (list []Lost) {
	for row := range tx.Scan(lostKeys(actor)) {
		if l := (Lost{}); l.read(row) && l.Reason != string(SessionEnded) {
			list = append(list, l.now(tx))
		}
	}
	return list
}

// NewsKey is the key of a row that changes when the session loses a lease.
func NewsKey(session uuid.UUID) string { return newsKey(session) }

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
	Session      uuid.UUID // that is told; zero: any of the actor
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

const lostFormat = 3

func (l *Lost) encode() string {
	w := record.New(80 + len(l.Scope) + len(l.Key) + len(l.Party) + len(l.Reason))
	w.Byte(lostFormat)
	w.Flags(l.told)
	w.ID(l.LeaseID)
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
	l.LeaseID, l.Session, l.Token, l.at = r.ID(), row.Owner, r.Uint(), r.Time()
	l.Scope, l.Key, l.Party, l.Reason = r.Text(), r.Text(), r.Text(), r.Text()
	return format == lostFormat && r.Done()
}

// now is the loss with what changes: when it was, by the wall clock, and who holds
// the key now.
func (l Lost) now(tx Tx) Lost {
	l.At = tx.Wall().Add(-tx.Now().Sub(l.at))
	if h, ok := getLease(tx, l.Scope, l.Key); ok && h.Token > l.Token {
		l.SupersededBy = h.Holder.Path
	}
	return l
}

// row is the loss of an actor as a row.
func (l *Lost) row(actor uuid.UUID) engine.Row {
	key := lostKey(actor, l.LeaseID)
	if l.LeaseID == uuid.Nil { // nobody can ask for it by its id, and there are others without
		key += record.Fixed(l.Token)
	}
	return engine.Row{Key: key, Value: l.encode(), Owner: l.Session, Due: l.at.Add(keepLost)}
}

// putLost writes that a lease is lost, so that its holder can be told. It reports
// false if there is no room: then it is only counted.
func putLost(tx Tx, l *Lease, cause Cause) (kept bool) {
	lost := Lost{
		Scope: l.Scope, Key: l.Key, LeaseID: l.ID, Token: l.Token,
		Session: l.Holder.Session, Party: l.Holder.Party, Reason: string(cause), at: tx.Now(),
	}
	if cause == SessionEnded {
		lost.Session = uuid.Nil
	}
	row := lost.row(l.Holder.Actor)
	forgetLoss(tx, row.Key)
	n := newsOf(tx, l.Holder.Actor)
	if kept = n.untold < MaxUntold; kept {
		tx.Put(row)
		n.untold++
	} else {
		n.dropped++
	}
	n.put(tx, l.Holder.Actor)
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
		n := newsOf(tx, lostActor(key))
		n.untold--
		n.put(tx, lostActor(key))
	}
}

// A news counts the losses that an actor has not been told of. It changes with each.
type news struct{ untold, dropped uint64 } // those that are kept, and those that are not

func newsOf(tx Tx, actor uuid.UUID) (n news) {
	if row, ok := tx.Get(NewsKey(actor)); ok {
		n.untold, n.dropped = record.ReadFixed(row.Value), record.ReadFixed(row.Value[8:])
	}
	return n
}

// put writes the news. Where all that is kept is told or forgotten, so is the rest.
func (n news) put(tx Tx, actor uuid.UUID) {
	if n.untold == 0 {
		tx.Delete(NewsKey(actor))
		return
	}
	tx.Touch(engine.Row{Key: NewsKey(actor), Value: record.Fixed(n.untold) + record.Fixed(n.dropped)})
}

// NewsKey is the key of a row that changes when a session of the actor loses a lease.
func NewsKey(actor uuid.UUID) string { return countPrefix + "lost/" + string(actor[:]) }

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
// of, and how many more there are. It costs one look-up where there are none, which
// is nearly always.
func (c *Core) Untold(tx Tx, h Holder, limit int) (list []Lost, more int) {
	n := newsOf(tx, h.Actor)
	if n == (news{}) {
		return nil, 0
	}
	for row := range tx.Scan(lostKeys(h.Actor)) {
		var l Lost
		switch {
		case !l.read(row) || l.told || l.Session != h.Session && l.Session != uuid.Nil:
		case len(list) < limit:
			list = append(list, l.now(tx))
		default:
			more++
		}
	}
	return list, more + int(n.dropped)
}

// TakeUntold is Untold, and counts the losses in list as told. A crash may forget
// that: then they are told again. What more there is comes with the next answers,
// but losses that are not kept are only counted, once.
func (c *Core) TakeUntold(tx Tx, h Holder, limit int) (list []Lost, more int) {
	list, more = c.Untold(tx, h, limit)
	for _, l := range list {
		l.told = true
		row := l.row(h.Actor)
		row.Due = tx.Now().Add(l.keepTold())
		tx.Touch(row)
	}
	news{untold: newsOf(tx, h.Actor).untold - uint64(len(list))}.put(tx, h.Actor)
	return list, more
}

// keepTold is how long a loss is kept from when it was told.
func (l *Lost) keepTold() time.Duration {
	if l.LeaseID == uuid.Nil {
		return retold // nobody can ask for it
	}
	return keepLost
}

// retold is how long a loss may have been told that is told again: the answer that
// told it may not have been read.
const retold = time.Minute

// untold makes a loss that was told of late one to tell again, and reports whether
// it is that.
func (l *Lost) untold(tx Tx, actor uuid.UUID, due time.Time) bool {
	if !l.told || tx.Now().Sub(due.Add(-l.keepTold())) >= retold {
		return false
	}
	l.told = false
	n := newsOf(tx, actor)
	n.untold++
	n.put(tx, actor)
	return true
}

// Retell lets the holder's session be told again what it was told in the last
// minute: an answer of that time will not be read.
func (c *Core) Retell(tx Tx, h Holder) {
	var again []Lost
	for row := range tx.Scan(lostKeys(h.Actor)) {
		var l Lost
		if l.read(row) && (l.Session == h.Session || l.Session == uuid.Nil) && l.untold(tx, h.Actor, row.Due) {
			again = append(again, l)
		}
	}
	for _, l := range again {
		row := l.row(h.Actor)
		row.Due = tx.Now().Add(keepLost)
		tx.Touch(row)
	}
}

// leaveLoss leaves a loss of a session that ends to the next one of its actor, also
// if the connection may have been lost with the answer that told it.
func (c *Core) leaveLoss(tx Tx, row engine.Row) {
	row.Owner = uuid.Nil
	actor := lostActor(row.Key)
	if l := (Lost{}); l.read(row) && l.untold(tx, actor, row.Due) {
		row = l.row(actor)
		row.Due = tx.Now().Add(keepLost)
	}
	tx.Put(row)
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

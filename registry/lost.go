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
	Session      uuid.UUID // that held it
	Reason       string    // a Cause
	At           time.Time
	SupersededBy string // path of who holds it now; "" if nobody did then
	Told         bool
}

func (l Lost) put(tx Tx, actor uuid.UUID) {
	tx.Put(engine.Row{Key: l.rowKey(actor), Value: l.encode(), Due: l.At.Add(keepLost)})
}

func (l Lost) rowKey(actor uuid.UUID) string {
	key := lostKey(actor, l.LeaseID)
	if l.LeaseID == uuid.Nil { // nobody can ask for it by its id, and there are others without
		key += record.Fixed(l.Token)
	}
	return key
}

const lostFormat = 1

func (l Lost) encode() string {
	w := record.New(64 + len(l.Scope) + len(l.Key) + len(l.Reason) + len(l.SupersededBy))
	w.Byte(lostFormat)
	w.Flags(l.Told)
	w.ID(l.LeaseID)
	w.ID(l.Session)
	w.Uint(l.Token)
	w.Time(l.At)
	w.Text(l.Scope)
	w.Text(l.Key)
	w.Text(l.Reason)
	w.Text(l.SupersededBy)
	return w.String()
}

func decodeLost(value string) (l Lost, ok bool) {
	r := record.Read(value)
	format := r.Byte()
	r.Flags(&l.Told)
	l.LeaseID, l.Session, l.Token, l.At = r.ID(), r.ID(), r.Uint(), r.Time()
	l.Scope, l.Key, l.Reason, l.SupersededBy = r.Text(), r.Text(), r.Text(), r.Text()
	return l, format == lostFormat && r.Done()
}

// lost is the refusal of an id that is not held: a LostError if the actor held
// it, else otherwise if that says anything, else ErrNotHolder.
func (c *Core) lost(tx Tx, caller Holder, id uuid.UUID, otherwise Lost) error {
	if row, ok := tx.Get(lostKey(caller.Actor, id)); ok {
		return &LostError{must(row, decodeLost)}
	}
	if otherwise.Reason != "" {
		return &LostError{otherwise}
	}
	return ErrNotHolder
}

// MaxUntold is how many losses of leases without an id are kept for a session
// that asks for nothing. Of more it learns when it uses one.
const MaxUntold = 100

func putLost(tx Tx, l Lease, cause Cause, next string) {
	lost := Lost{
		Scope: l.Scope, Key: l.Key, LeaseID: l.ID, Token: l.Token, Session: l.Holder.Session,
		Reason: string(cause), At: tx.Now(), SupersededBy: next,
		Told: cause == SessionEnded, // there is nobody to tell; another session learns by its lease_id
	}
	if lost.Told {
		if l.ID != uuid.Nil {
			lost.put(tx, l.Holder.Actor)
		}
		return
	}
	n, stands := untold(tx, lost.Session)
	switch {
	case l.ID != uuid.Nil:
		lost.put(tx, l.Holder.Actor)
	case n < MaxUntold:
		lost.put(tx, l.Holder.Actor)
		n++
	}
	// The row changes with each loss, for those who watch it, and is written
	// down with the first: it is there that counts.
	if news := newsRow(lost.Session, lost.Token, n); stands {
		tx.Touch(news)
	} else {
		tx.Put(news)
	}
}

// forgetLost removes the row of a loss that is long past.
func forgetLost(tx Tx, row engine.Row) {
	tx.Delete(row.Key)
	l := must(row, decodeLost)
	if n, stands := untold(tx, l.Session); stands && n > 0 && l.LeaseID == uuid.Nil {
		tx.Touch(newsRow(l.Session, l.Token, n-1))
	}
}

// newsRow says that a session has losses to be told of, the last of which had
// token, and that n of those without an id are kept.
func newsRow(session uuid.UUID, token, n uint64) engine.Row {
	return engine.Row{Key: newsKey(session), Value: record.Fixed(token) + record.Fixed(n), Owner: session}
}

// untold gives the n of a session's row, if there is one.
func untold(tx Tx, session uuid.UUID) (n uint64, stands bool) {
	row, ok := tx.Get(newsKey(session))
	if ok && len(row.Value) == 16 {
		n = record.ReadFixed(row.Value[8:])
	}
	return n, ok
}

// Untold returns the losses that the session has not been told of. It costs one
// look-up where there are none, which is nearly always.
func (c *Core) Untold(tx Tx, holder Holder) (news []Lost) {
	if _, ok := tx.Get(newsKey(holder.Session)); !ok {
		return nil
	}
	for row := range tx.Scan(lostKeys(holder.Actor)) {
		if l := must(row, decodeLost); l.Session == holder.Session && !l.Told {
			news = append(news, l)
		}
	}
	return news
}

// MarkTold notes that the session has been told of losses. What nobody can ask
// for by its id is forgotten.
func (c *Core) MarkTold(tx Tx, holder Holder, news []Lost) {
	for _, l := range news {
		if l.LeaseID == uuid.Nil {
			tx.Delete(l.rowKey(holder.Actor))
			continue
		}
		l.Told = true
		l.put(tx, holder.Actor)
	}
	left := c.Untold(tx, holder) // what was lost since
	if len(left) == 0 {
		tx.Delete(newsKey(holder.Session))
		return
	}
	n := uint64(0)
	for _, l := range left {
		if l.LeaseID == uuid.Nil {
			n++
		}
	}
	tx.Touch(newsRow(holder.Session, left[len(left)-1].Token, n))
}

// NewsKey is the key of a row that changes when the session loses a lease.
func NewsKey(session uuid.UUID) string { return newsKey(session) }

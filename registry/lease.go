package registry

import (
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/record"
)

// A Holder is the party to a lease: one session of an actor, and within it one
// of the sub-agents that share the session, if they say which they are. Session
// and Party decide; actor and path are for those who read.
type Holder struct {
	Session uuid.UUID
	Party   string // "" if the session is one
	Actor   uuid.UUID
	Path    string // names below the root joined by →; "root" for the root
	Local   bool   // the session's process runs on this machine, see engine.Local
}

// same reports whether two holders are one party.
func (h Holder) same(other Holder) bool { return h.Session == other.Session && h.Party == other.Party }

// A Lease is one grant.
type Lease struct {
	Scope     string
	Key       string
	ID        uuid.UUID // secret: needed to renew or release
	Token     uint64    // fencing token, below 2^53
	Holder    Holder
	TTL       time.Duration
	Shared    bool      // others may hold the key shared beside it
	Reason    string    // why its holder wants it, for those who are refused; ""
	KeepAlive bool      // extended by the server while the session is present
	RequestID string    // the request it answered, or ""
	Acquired  time.Time // of the grant, on the engine's running clock; renewal and re-entry keep it
	Deadline  time.Time // on the running clock; may be taken only after this instant
	Reserved  bool      // nobody holds the key; until Deadline it is kept for the first in line, who is Holder
	Offer     Holder    // the actor whom the lease is offered to; the zero Holder: nobody

	Times

	stored time.Time // of a long lease: the deadline that a restart finds
	told   bool      // more than one call was answered with this grant, so none can be undone
	lapsed bool      // past its deadline and counted as free, but its holder may renew it
	graced bool      // of a long lease: a restart has prolonged it since its last renewal
	row    string    // key of the lease's row
	due    time.Time // of the row that was read

	awaited bool // its holder was or will be told that somebody waits for it
}

// Times are those of a lease for an answer, by the clocks of the transaction that
// answers. [Lease.Told] fills them in.
type Times struct {
	HeldFor    time.Duration
	ExpiresIn  time.Duration // never negative
	AcquiredAt time.Time     // on the wall clock
	ExpiresAt  time.Time     // on the wall clock
}

// Told is the lease with its Times.
func (l Lease) Told(tx Tx) Lease {
	now, wall := tx.Now(), tx.Wall()
	l.HeldFor, l.ExpiresIn = now.Sub(l.Acquired), max(0, l.Deadline.Sub(now))
	l.AcquiredAt, l.ExpiresAt = wall.Add(-l.HeldFor), wall.Add(l.ExpiresIn)
	return l
}

// expired is the one boundary: at the deadline itself the lease is still held.
func (l *Lease) expired(now time.Time) bool { return now.After(l.Deadline) }

// conflicts reports whether another party cannot have a key as it wants while the
// lease is there.
func (l *Lease) conflicts(h Holder, want Want) bool {
	return !l.Holder.same(h) && !(l.Shared && want.Shared)
}

// keepsOut reports whether the lease, or the reservation, keeps a party from a key that
// overlaps with its own. A lapsed one keeps out nobody. A party's own does not, unless
// it shares a key that it now wants alone.
func (l *Lease) keepsOut(h Holder, want Want) bool {
	if l.lapsed {
		return false
	}
	mine := l.Holder.same(h) && l.Key == want.Key && l.Shared && !l.Reserved && !want.Shared
	return mine || l.conflicts(h, want)
}

// Mode is how the lease is held, in a word.
func (l *Lease) Mode() string {
	if l.Shared {
		return "shared"
	}
	return "exclusive"
}

// long reports whether a restart must not grant the full ttl anew.
func (l *Lease) long() bool { return l.TTL > longTTL }

// counted reports whether the lease counts for the bounds. Leases without an id
// are counted by their scope's owner.
func (l *Lease) counted() bool { return l.ID != uuid.Nil && !l.lapsed }

const leaseFormat = 6

// encode gives the value of the lease's row. Scope and key are in the row's key,
// the session is its owner, and the deadline is the row's due time or, if `late`,
// a known time after it.
func (l *Lease) encode(due time.Time) string {
	w := record.New(80 + len(l.Holder.Path) + len(l.Holder.Party) + len(l.RequestID) + len(l.Reason))
	w.Byte(leaseFormat)
	late := l.Deadline.After(due)
	w.Flags(l.KeepAlive, l.told, l.ID != uuid.Nil, late, l.lapsed, l.graced, l.Reserved, l.awaited)
	if l.ID != uuid.Nil {
		w.ID(l.ID)
	}
	if late {
		w.Duration(l.Deadline.Sub(due))
	}
	w.ID(l.Holder.Actor)
	w.Uint(l.Token)
	w.Time(l.Acquired)
	w.Uint(uint64(l.TTL))
	if l.long() {
		w.Time(l.stored)
	}
	w.Text(l.Holder.Path)
	w.Text(l.Holder.Party)
	w.Text(l.RequestID)
	w.Text(l.Reason)
	if l.offered() {
		w.ID(l.Offer.Actor)
		w.Text(l.Offer.Path)
	}
	return w.String()
}

// decode reads what encode wrote; scope, key and session are the row's.
func (l *Lease) decode(value string, due time.Time) (ok bool) {
	var known, late bool
	r := record.Read(value)
	format := r.Byte()
	r.Flags(&l.KeepAlive, &l.told, &known, &late, &l.lapsed, &l.graced, &l.Reserved, &l.awaited)
	if known {
		l.ID = r.ID()
	}
	switch {
	case late:
		l.Deadline = due.Add(r.Duration())
	case l.lapsed:
		l.Deadline = due.Add(-keepLost)
	default:
		l.Deadline = due
	}
	l.Holder.Actor, l.Token, l.Acquired, l.TTL = r.ID(), r.Uint(), r.Time(), time.Duration(r.Uint())
	if l.long() {
		l.stored = r.Time()
	}
	l.Holder.Path, l.Holder.Party, l.RequestID, l.Reason = r.Text(), r.Text(), r.Text(), r.Text()
	if !r.Done() {
		l.Offer.Actor, l.Offer.Path = r.ID(), r.Text()
	}
	return format == leaseFormat && r.Done()
}

// put writes a lease to the store.
func (l *Lease) put(tx Tx) {
	if l.long() {
		l.stored = l.Deadline
	}
	tx.Put(leaseRow(l, tx.Now()))
}

// touch writes a lease for as long as this process lives.
func (l *Lease) touch(tx Tx) { tx.Touch(leaseRow(l, tx.Now())) }

func leaseRow(l *Lease, now time.Time) engine.Row {
	due := l.Deadline
	switch {
	case l.lapsed:
		due = due.Add(keepLost) // then it is forgotten
	case l.KeepAlive && now.Add(l.TTL/2).Before(due):
		due = now.Add(l.TTL / 2) // then it is extended
	case l.due.After(now) && l.due.Before(due):
		due = l.due // a row that is due too early costs less than to sort it in at each renewal
	}
	return engine.Row{Key: l.row, Value: l.encode(due), Owner: l.Holder.Session, Due: due}
}

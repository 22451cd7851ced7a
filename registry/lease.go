package registry

import (
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/event"
	"github.com/leasehold/leasehold/engine/record"
)

// A Holder is the party that holds a lease: a session of an actor, or one of
// the sub-agents that share the session and name themselves. Session and Party
// identify it; Actor and Path are information for readers.
type Holder struct {
	Session uuid.UUID
	Party   string // "" for the session itself
	Actor   uuid.UUID
	Path    string // names below the root joined by →; "root" for the root
	Local   bool   // the session's process runs on this machine, see engine.Local
}

// same reports whether two holders are the same party.
func (h Holder) same(other Holder) bool { return h.Session == other.Session && h.Party == other.Party }

// name returns the name of the party for readers.
func (h Holder) name() string { return event.Who(h.Path, h.Party) }

// A Lease is one grant.
type Lease struct {
	Scope     string
	Key       string
	ID        uuid.UUID // secret: needed to renew or release
	Token     uint64    // fencing token, below 2^53
	Holder    Holder
	TTL       time.Duration
	Shared    bool      // others may share the key with it
	Reason    string    // why its holder wants it, shown to those who are refused; may be ""
	KeepAlive bool      // extended by the server while the session is present
	RequestID string    // the request it answered, or ""
	Acquired  time.Time // when it was granted, on the engine's running clock; renewal and re-entry keep it
	Deadline  time.Time // on the running clock; others may take the key only after this instant
	Offer     Holder    // the actor that the lease is offered to; zero if it is not offered

	Times

	stored time.Time // of a long lease: its deadline on the disk, which a restart reads
	told   bool      // more than one call was answered with this grant, so it must not be undone
	lapsed bool      // past its deadline and counted as free, but its holder may renew it
	graced bool      // of a long lease: a restart has prolonged it since its last renewal
	row    string    // key of the lease's row
	due    time.Time // due time of the row as it was read

	awaited bool // its holder was told, or will be, that somebody waits for it
}

// Times are a lease's times for an answer, computed when it is written.
// [Lease.Told] sets them.
type Times struct {
	HeldFor    time.Duration
	ExpiresIn  time.Duration // never negative
	AcquiredAt time.Time     // on the wall clock
	ExpiresAt  time.Time     // on the wall clock
}

// Told returns the lease with its Times.
func (l Lease) Told(tx Tx) Lease {
	now := tx.Now()
	l.HeldFor, l.ExpiresIn = now.Sub(l.Acquired), max(0, l.Deadline.Sub(now))
	l.AcquiredAt, l.ExpiresAt = tx.WallAt(l.Acquired), tx.Wall()
	if l.ExpiresIn > 0 {
		l.ExpiresAt = tx.WallAt(l.Deadline)
	}
	return l
}

// held reports whether somebody holds the lease: it has not lapsed.
func (l *Lease) held() bool { return !l.lapsed }

// past reports whether a lease is past its deadline. At the deadline itself it
// is still held.
func (l *Lease) past(now time.Time) bool { return now.After(l.Deadline) }

// expired reports whether a lease is past its deadline and may be ended. A lease
// that is kept alive may not, even if its extension comes late.
func (c *Core) expired(tx Tx, l *Lease) bool {
	return l.past(tx.Now()) && (l.lapsed || !c.keepsAlive(l))
}

// keepsAlive reports whether the server extends the lease.
func (c *Core) keepsAlive(l *Lease) bool { return l.KeepAlive && c.opts.Present(l.Holder.Session) }

// conflicts reports whether the lease prevents a party from having a key in the
// mode that it wants.
func (l *Lease) conflicts(h Holder, want Want) bool {
	return !l.Holder.same(h) && !(l.Shared && want.Shared)
}

// keepsOut reports whether the lease keeps a party from a key that overlaps with
// its own. A lapsed lease keeps nobody out.
func (l *Lease) keepsOut(h Holder, want Want) bool { return !l.lapsed && l.conflicts(h, want) }

// Mode returns "shared" or "exclusive".
func (l *Lease) Mode() string {
	if l.Shared {
		return "shared"
	}
	return "exclusive"
}

// long reports whether a restart must not grant the full ttl again.
func (l *Lease) long() bool { return l.TTL > longTTL }

const leaseFormat = 6

// encode returns the value of the lease's row. The row's key holds the scope
// and key, and its owner is the session. The deadline is the row's due time or,
// if `late`, a known time after it.
func (l *Lease) encode(due time.Time) string {
	w := record.New(80 + len(l.Holder.Path) + len(l.Holder.Party) + len(l.RequestID) + len(l.Reason))
	w.Byte(leaseFormat)
	late := l.Deadline.After(due)
	w.Flags(l.KeepAlive, l.told, l.ID != uuid.Nil, late, l.lapsed, l.graced, l.Holder.Local, l.awaited)
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
	w.Texts(l.Holder.Path, l.Holder.Party, l.RequestID, l.Reason)
	if l.offered() {
		w.ID(l.Offer.Actor)
		w.Text(l.Offer.Path)
	}
	return w.String()
}

// decode reads what encode wrote. Scope, key and session are in the row.
func (l *Lease) decode(value string, due time.Time) (ok bool) {
	var known, late bool
	r := record.Read(value)
	format := r.Byte()
	r.Flags(&l.KeepAlive, &l.told, &known, &late, &l.lapsed, &l.graced, &l.Holder.Local, &l.awaited)
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

// put writes a lease to disk.
func (l *Lease) put(tx Tx) {
	if l.long() {
		l.stored = l.Deadline
	}
	tx.Put(leaseRow(l, tx.Now()))
}

// touch writes a lease in memory only.
func (l *Lease) touch(tx Tx) { tx.Touch(leaseRow(l, tx.Now())) }

func leaseRow(l *Lease, now time.Time) engine.Row {
	due := l.Deadline
	switch {
	case l.lapsed:
		due = due.Add(keepLost) // at that time it is forgotten
	case l.KeepAlive && now.Add(l.TTL/2).Before(due):
		due = now.Add(l.TTL / 2) // at that time it is extended
	case l.due.After(now) && l.due.Before(due):
		due = l.due // a row that is due too early costs less than sorting it again at each renewal
	}
	return engine.Row{Key: l.row, Value: l.encode(due), Owner: l.Holder.Session, Due: due}
}

package registry

import (
	"time"

	"github.com/google/uuid"

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

// A Lease is one grant.
type Lease struct {
	Scope      string
	Key        string
	ID         uuid.UUID // secret: needed to renew or release
	Token      uint64    // fencing token, below 2^53
	Holder     Holder
	AcquiredAt time.Time // of the grant; renewal and re-entry keep it
	Deadline   time.Time // may be taken only after this instant
	TTL        time.Duration
	KeepAlive  bool   // extended by the server while the session is present
	RequestID  string // the request it answered, or ""

	// end is the uptime at which a long lease ends, as last written. It may end
	// up to lag after.
	end time.Duration
	// shared says that more than one call was answered with this grant, so
	// the cancellation of the one it was made for must not take it back.
	shared bool
	// row is the key of the lease's row.
	row string
}

// ExpiresIn is the time left at now, never negative.
func (l Lease) ExpiresIn(now time.Time) time.Duration {
	return max(0, l.Deadline.Sub(now))
}

// expired is the one boundary: at the deadline itself the lease still stands.
func (l Lease) expired(now time.Time) bool { return now.After(l.Deadline) }

const leaseFormat = 3

// encode gives the value of the lease's row. Scope and key are in the row's
// key, the session is its owner, and the deadline is some time after it is due,
// mostly none: so a renewal, or a restart, need not write the value anew.
func (l *Lease) encode(due time.Time) string {
	w := record.New(80 + len(l.Holder.Path) + len(l.RequestID))
	w.Byte(leaseFormat)
	late := l.Deadline.After(due)
	w.Flags(l.KeepAlive, l.shared, l.ID != uuid.Nil, late)
	if l.ID != uuid.Nil {
		w.ID(l.ID)
	}
	if late {
		w.Duration(l.Deadline.Sub(due))
	}
	w.ID(l.Holder.Actor)
	w.Uint(l.Token)
	w.Time(l.AcquiredAt)
	w.Uint(uint64(l.TTL))
	if l.long() {
		w.Uint(uint64(l.end / time.Second))
	}
	w.Text(l.Holder.Path)
	w.Text(l.RequestID)
	return w.String()
}

// decode reads what encode wrote; scope, key and session are the row's. A restart
// reads a million.
func (l *Lease) decode(value string, due time.Time) (ok bool) {
	var known, late bool
	r := record.Read(value)
	format := r.Byte()
	r.Flags(&l.KeepAlive, &l.shared, &known, &late)
	if known {
		l.ID = r.ID()
	}
	if l.Deadline = due; late {
		l.Deadline = due.Add(r.Duration())
	}
	l.Holder.Actor, l.Token, l.AcquiredAt, l.TTL = r.ID(), r.Uint(), r.Time(), time.Duration(r.Uint())
	if l.long() {
		l.end = time.Duration(r.Uint()) * time.Second
	}
	l.Holder.Path, l.RequestID = r.Text(), r.Text()
	return format == leaseFormat && r.Done()
}

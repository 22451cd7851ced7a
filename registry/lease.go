package registry

import (
	"errors"
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine/record"
)

// A Holder is the party to a lease: one session of an actor. Only the session
// decides; actor and path are for those who read.
type Holder struct {
	Session uuid.UUID
	Actor   uuid.UUID
	Path    string // names below the root joined by →; "root" for the root
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

	// remaining is what a restart gives the lease: its ttl, or for a long
	// one what was left when that was last written.
	remaining time.Duration
	// shared says that more than one call was answered with this grant, so
	// the cancellation of the one it was made for must not take it back.
	shared bool
}

// ExpiresIn is the time left at now, never negative.
func (l Lease) ExpiresIn(now time.Time) time.Duration {
	return max(0, l.Deadline.Sub(now))
}

// expired is the one boundary: at the deadline itself the lease still stands.
func (l Lease) expired(now time.Time) bool { return now.After(l.Deadline) }

const (
	leaseFormat = 1

	flagKeepAlive = 1 << 0
	flagShared    = 1 << 1
)

// encode gives the value of the lease's row. Scope and key are in the row's
// key, the session is its owner.
func (l Lease) encode() string {
	var flags byte
	if l.KeepAlive {
		flags |= flagKeepAlive
	}
	if l.shared {
		flags |= flagShared
	}
	w := record.New(80 + len(l.Holder.Path) + len(l.RequestID))
	w.Byte(leaseFormat)
	w.Byte(flags)
	w.ID(l.ID)
	w.ID(l.Holder.Actor)
	w.Uint(l.Token)
	w.Time(l.AcquiredAt)
	w.Time(l.Deadline)
	w.Uint(uint64(l.TTL))
	w.Uint(uint64(l.remaining))
	w.Text(l.Holder.Path)
	w.Text(l.RequestID)
	return w.String()
}

var errLeaseRecord = errors.New("not a lease record")

// decodeLease reads what encode wrote; scope, key and session are the row's.
func decodeLease(value string) (Lease, error) {
	r := record.Read(value)
	format, flags := r.Byte(), r.Byte()
	l := Lease{
		KeepAlive: flags&flagKeepAlive != 0, shared: flags&flagShared != 0,
		ID: r.ID(), Holder: Holder{Actor: r.ID()}, Token: r.Uint(),
		AcquiredAt: r.Time(), Deadline: r.Time(), TTL: time.Duration(r.Uint()), remaining: time.Duration(r.Uint()),
	}
	l.Holder.Path, l.RequestID = r.Text(), r.Text()
	if format != leaseFormat || !r.Done() {
		return Lease{}, errLeaseRecord
	}
	return l, nil
}

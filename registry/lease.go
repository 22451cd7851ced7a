package registry

import (
	"encoding/binary"
	"errors"
	"time"

	"github.com/google/uuid"
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
	b := make([]byte, 0, 80+len(l.Holder.Path)+len(l.RequestID))
	var flags byte
	if l.KeepAlive {
		flags |= flagKeepAlive
	}
	if l.shared {
		flags |= flagShared
	}
	b = append(b, leaseFormat, flags)
	b = append(b, l.ID[:]...)
	b = append(b, l.Holder.Actor[:]...)
	b = binary.AppendUvarint(b, l.Token)
	b = binary.AppendVarint(b, l.AcquiredAt.UnixNano())
	b = binary.AppendVarint(b, l.Deadline.UnixNano())
	b = binary.AppendUvarint(b, uint64(l.TTL))
	b = binary.AppendUvarint(b, uint64(l.remaining))
	b = appendString(b, l.Holder.Path)
	b = appendString(b, l.RequestID)
	return string(b)
}

var errLeaseRecord = errors.New("not a lease record")

// decodeLease reads what encode wrote; scope, key and session are the row's.
func decodeLease(value string) (Lease, error) {
	b := []byte(value)
	if len(b) < 2+16+16 || b[0] != leaseFormat {
		return Lease{}, errLeaseRecord
	}
	l := Lease{KeepAlive: b[1]&flagKeepAlive != 0, shared: b[1]&flagShared != 0}
	copy(l.ID[:], b[2:])
	copy(l.Holder.Actor[:], b[18:])
	r := reader{b: b[34:]}
	l.Token = r.uvarint()
	l.AcquiredAt = time.Unix(0, r.varint())
	l.Deadline = time.Unix(0, r.varint())
	l.TTL = time.Duration(r.uvarint())
	l.remaining = time.Duration(r.uvarint())
	l.Holder.Path = r.string()
	l.RequestID = r.string()
	if r.bad || len(r.b) != 0 {
		return Lease{}, errLeaseRecord
	}
	return l, nil
}

func appendString(b []byte, s string) []byte {
	b = binary.AppendUvarint(b, uint64(len(s)))
	return append(b, s...)
}

// A reader takes values off the front of b; bad is set once something is
// missing.
type reader struct {
	b   []byte
	bad bool
}

func (r *reader) uvarint() uint64 {
	v, n := binary.Uvarint(r.b)
	r.skip(n)
	return v
}

func (r *reader) varint() int64 {
	v, n := binary.Varint(r.b)
	r.skip(n)
	return v
}

func (r *reader) string() string {
	n := r.uvarint()
	if n > uint64(len(r.b)) {
		r.bad = true
		return ""
	}
	s := string(r.b[:n])
	r.b = r.b[n:]
	return s
}

func (r *reader) skip(n int) {
	if n <= 0 {
		r.bad = true
		r.b = nil
		return
	}
	r.b = r.b[n:]
}

package registry

import (
	"iter"
	"math"
	"strings"
	"time"

	"github.com/google/uuid"
)

// A Registry is the [Core] bound to one scope.
type Registry struct {
	core  *Core
	scope string
}

// Get returns the lease on key, if somebody holds it.
// If several share it, it is the first of theirs.
func (r *Registry) Get(tx Tx, key string) (Lease, bool) { return getLease(tx, r.scope, key) }

// Grant gives a free key to a holder, for a scope that decides for itself who
// is next (see [Core.OnFreed]). The lease has no id: whoever knows its token
// and is its actor answers for it. Nobody counts such leases but their scope.
func (r *Registry) Grant(tx Tx, key string, h Holder, ttl time.Duration) Lease {
	return r.core.grant(tx, r.Want(key, false), &Request{Holder: h, TTL: ttl}, uuid.Nil, 0)
}

// Extend moves a lease's deadline to ttl from now if that is later, for
// session, which may be another one of its actor.
func (r *Registry) Extend(tx Tx, l Lease, ttl time.Duration, session uuid.UUID) Lease {
	h := l.Holder
	h.Session = session
	return r.core.extend(tx, l, ttl, h)
}

// Free ends a lease.
func (r *Registry) Free(tx Tx, l Lease, cause Cause) { r.core.free(tx, l, cause) }

// Leases yields what is held of the keys that start with prefix, in key order and
// from behind a lease, whose [Lease.Cursor] after is, or "".
func (r *Registry) Leases(tx Tx, prefix, after string) iter.Seq[Lease] {
	return func(yield func(Lease) bool) {
		keys, from := leaseKey(r.scope, prefix), leaseKey(r.scope, after)
		for row := range tx.ScanFrom(keys, from) {
			var l Lease
			if !l.read(row) || l.lapsed || l.Reserved || after != "" && row.Key <= from {
				continue
			}
			if !yield(l) {
				return
			}
		}
	}
}

// Cursor says where the lease is in a listing.
func (l *Lease) Cursor() string { return strings.TrimPrefix(l.row, leaseKey(l.Scope, "")) }

// BehindKey is the Cursor behind all leases on a key.
func BehindKey(key string) string { return key + "\x01" }

// A Standing is one lease of a listing and who waits for it.
type Standing struct {
	Lease
	Waiters []Waiting // at most MaxListed, first in line first
	InLine  int       // how many parties wait
}

// MaxListed is how many waiters a listing shows for each lease.
const MaxListed = 10

// A Waiting is one place in a line.
type Waiting struct {
	Holder Holder
	For    time.Duration // since it took the place
}

// Standing returns the lease on key and who waits for it.
func (r *Registry) Standing(tx Tx, key string) (Standing, bool) {
	l, ok := r.Get(tx, key)
	if !ok {
		return Standing{}, false
	}
	return standing(tx, l), true
}

// List returns at most limit of [Registry.Leases], and reports whether there are more.
func (r *Registry) List(tx Tx, prefix, after string, limit int) (list []Standing, more bool) {
	for l := range r.Leases(tx, prefix, after) {
		if len(list) == limit {
			return list, true
		}
		list = append(list, standing(tx, l))
	}
	return list, false
}

func standing(tx Tx, l Lease) Standing {
	s := Standing{Lease: l.Told(tx), InLine: inLine(tx, l.Scope, l.Key, math.MaxUint64)}
	last := uint64(0)
	for w := range waiters(tx, l.Scope, l.Key) {
		if len(s.Waiters) == MaxListed {
			break
		}
		if w.seq != last { // one place may be in several lines
			s.Waiters = append(s.Waiters, Waiting{w.Holder, tx.Now().Sub(w.Since)})
		}
		last = w.seq
	}
	return s
}

// Holds are the first of the leases that a session holds, claims on tasks among them.
func (c *Core) Holds(tx Tx, session uuid.UUID, limit int) (held []Lease) {
	for row := range tx.Owned(session) {
		if len(held) >= limit {
			break
		}
		if l := (Lease{}); strings.HasPrefix(row.Key, leasePrefix) && l.read(row) && !l.lapsed && !l.Reserved {
			held = append(held, l)
		}
	}
	return held
}

// Stands are the leases that a session holds, claims on tasks among them, and
// those of others that keep it waiting, one for each of its places.
func (c *Core) Stands(tx Tx, session uuid.UUID, limit int) (held, awaited []Lease) {
	for row := range tx.Owned(session) {
		var l Lease
		var w waiter
		switch {
		case len(held) >= limit && len(awaited) >= limit:
			return held, awaited
		case strings.HasPrefix(row.Key, leasePrefix):
			if len(held) < limit && l.read(row) && !l.lapsed && !l.Reserved {
				held = append(held, l)
			}
		case strings.HasPrefix(row.Key, waitPrefix) && len(awaited) < limit && w.read(row) && w.first():
			if l, ok := c.inTheWay(tx, &w); ok {
				awaited = append(awaited, l)
			}
		}
	}
	return held, awaited
}

// inTheWay finds a lease that keeps a place waiting, perhaps by way of places before it.
func (c *Core) inTheWay(tx Tx, w *waiter) (Lease, bool) {
	for k := range c.keepers(tx, w, c.live) {
		if k.lease != nil {
			return *k.lease, true
		}
		return c.inTheWay(tx, k.place)
	}
	return Lease{}, false
}

// contention tells a party of a lease that keeps it from a key.
func contention(tx Tx, l Lease, want Want) *HeldError {
	return &HeldError{
		Scope: l.Scope, Key: l.Key, Asked: want.Key, Holder: l.Holder,
		ExpiresIn: max(0, l.Deadline.Sub(tx.Now())), KeepAlive: l.KeepAlive, Reserved: l.Reserved,
		Shared: l.Shared, Reason: l.Reason,
		Waiters: inLine(tx, l.Scope, l.Key, math.MaxUint64),
	}
}

// InTheWay yields what somebody who asks for the key is refused with: who holds it, or
// what overlaps with it.
func (r *Registry) InTheWay(tx Tx, key string) iter.Seq[*HeldError] {
	return func(yield func(*HeldError) bool) {
		for row := range near(tx, leasePrefix, r.scope, key) {
			if l := (Lease{}); l.read(row) && !l.lapsed && !l.Reserved && !yield(contention(tx, l, r.Want(key, false))) {
				return
			}
		}
	}
}

// behind tells a party of a place that is before it in line for a key, and of the lease
// that keeps that one waiting.
func (c *Core) behind(tx Tx, p *waiter, want Want) *HeldError {
	l, ok := c.inTheWay(tx, p)
	if !ok { // whoever left it is about to hand over
		l = Lease{Scope: p.Scope, Key: p.Key, Holder: p.Holder, Shared: p.Shared, Reason: p.reason, Reserved: true, Deadline: p.until}
	}
	e := contention(tx, l, want)
	e.Before = p.Holder.Path
	return e
}

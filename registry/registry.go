package registry

import (
	"iter"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/event"
	"github.com/leasehold/leasehold/registry/filekey"
)

// A Registry is the [Core] bound to one scope.
type Registry struct {
	core  *Core
	scope string
}

// Get returns the lease on key, if somebody holds it. If several share it, Get
// returns the first.
func (r *Registry) Get(tx Tx, key string) (Lease, bool) { return getLease(tx, r.scope, key) }

// Grant gives a free key to a holder. It is for a scope that decides itself who
// is next (see [Core.OnFreed]). The lease has no id: the actor that knows its
// token controls it. Such leases count towards no limit of this package.
func (r *Registry) Grant(tx Tx, key string, h Holder, ttl time.Duration) Lease {
	return r.core.grant(tx, r.Want(key, false), &Request{Holder: h, TTL: ttl}, uuid.Nil, event.Event{})
}

// Extend moves a lease's deadline to ttl from now, if that is later. The lease
// becomes the caller's, which may be another party of the same actor.
func (r *Registry) Extend(tx Tx, l Lease, ttl time.Duration, caller Holder) Lease {
	return r.core.extend(tx, l, ttl, l.actsFor(caller))
}

// Free ends a lease, and calls the scope's function of [Core.OnFreed] or hands
// the key over.
func (r *Registry) Free(tx Tx, l Lease, cause Cause) { r.core.free(tx, l, cause) }

// Leases yields the held leases whose keys start with prefix, in key order.
// after is the [Lease.Cursor] of the lease to continue behind, or "".
func (r *Registry) Leases(tx Tx, prefix, after string) iter.Seq[Lease] {
	return func(yield func(Lease) bool) {
		for row := range tx.ScanFrom(leaseKey(r.scope, prefix), leaseKey(r.scope, after)+"\x00") {
			if l := (Lease{}); l.read(row) && l.held() && !yield(l) {
				return
			}
		}
	}
}

// Cursor returns the position of the lease in a listing.
func (l *Lease) Cursor() string { return strings.TrimPrefix(l.row, leaseKey(l.Scope, "")) }

// BehindKey returns a Cursor after all leases on a key.
func BehindKey(key string) string { return key + "\x01" }

// A Standing is a lease in a listing, with those that wait for it.
type Standing struct {
	Lease
	Waiters []Waiting // at most MaxListed, first in line first
	InLine  int       // how many parties wait
}

// MaxListed is how many waiters a listing shows for each lease.
const MaxListed = 10

// A Waiting is one party in a line.
type Waiting struct {
	Holder Holder
	For    time.Duration // since it took the place
}

// Standing returns the lease on key and those that wait for it.
func (r *Registry) Standing(tx Tx, key string) (Standing, bool) {
	l, ok := r.Get(tx, key)
	if !ok {
		return Standing{}, false
	}
	return standing(tx, l), true
}

// Find returns a lease of the caller's actor by its id. A lease that the actor
// has lost, or that has lapsed, is a [LostError]; an id that it never had is
// ErrNotHolder.
func (c *Core) Find(tx Tx, caller Holder, id uuid.UUID) (Standing, error) {
	l, ok := leaseByID(tx, id)
	switch {
	case ok && l.Holder.Actor != caller.Actor:
		return Standing{}, ErrNotHolder
	case !ok || l.lapsed:
		return Standing{}, c.lost(tx, caller, id, Notice{})
	}
	return standing(tx, l), nil
}

// List returns at most limit of [Registry.Leases], and whether there are more.
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
	for w := range waiters(tx, l.Scope, l.Key) {
		if len(s.Waiters) == MaxListed {
			break
		}
		// One party may have several places, and one place may be in several lines.
		if !slices.ContainsFunc(s.Waiters, func(o Waiting) bool { return o.Holder.same(w.Holder) }) {
			s.Waiters = append(s.Waiters, Waiting{w.Holder, tx.Now().Sub(w.Since)})
		}
	}
	return s
}

// A Reservation is of a key that nobody holds. It is kept for the first in line, which
// is between two calls.
type Reservation struct {
	Key    string
	Holder Holder
	Left   time.Duration // until it is given up
}

// Reserved returns at most limit reservations of keys that start with prefix, in key order.
func (r *Registry) Reserved(tx Tx, prefix string, limit int) (list []Reservation) {
	for row := range tx.Scan(waitPrefix + r.scope + "\x00" + prefix) {
		if len(list) == limit {
			break
		}
		if kept, ok := reservation(tx, row); ok {
			list = append(list, kept)
		}
	}
	return list
}

// reservation returns the reservation of the key in whose line a row is. There is none if
// others share the key, or somebody holds a directory above it.
func reservation(tx Tx, row engine.Row) (kept Reservation, ok bool) {
	var w waiter
	if row.Due.IsZero() || !w.read(row) || !w.reserved() || tx.Now().After(w.reservedTo) {
		return Reservation{}, false // mostly a call waits there
	}
	for held := range near(tx, leasePrefix, w.Scope, w.Key) {
		var l Lease
		if l.read(held) && filekey.Covers(l.Key, w.Key) {
			return Reservation{}, false
		}
	}
	return Reservation{w.Key, w.Holder, w.reservedTo.Sub(tx.Now())}, true
}

// Holds returns up to limit of the leases that a session holds, including
// claims on tasks.
func (c *Core) Holds(tx Tx, session uuid.UUID, limit int) (held []Lease) {
	return c.HoldsIn(tx, session, "", limit)
}

// HoldsIn is Holds for the leases of the scopes that start with a prefix.
func (c *Core) HoldsIn(tx Tx, session uuid.UUID, scopes string, limit int) (held []Lease) {
	for row := range tx.Owned(session, leasePrefix+scopes) {
		if len(held) >= limit {
			break
		}
		if l := (Lease{}); l.read(row) && l.held() {
			held = append(held, l)
		}
	}
	return held
}

// Held returns how many leases an actor holds of its run, of its layer, and as
// claims on tasks.
func (c *Core) Held(tx Tx, actor uuid.UUID) (run, layer, claims int) {
	layer = int(count(tx, layerCount(actor)))
	return int(count(tx, actorCount(actor))) - layer, layer, int(count(tx, claimCount(actor)))
}

// Awaits yields for each place of a session a lease that keeps it waiting. If reserved,
// nobody holds that lease: its key is kept for its holder, which may be the session.
func (c *Core) Awaits(tx Tx, session uuid.UUID) iter.Seq2[Lease, bool] {
	return func(yield func(l Lease, reserved bool) bool) {
		for row := range tx.Owned(session, waitPrefix) {
			if w := (waiter{}); w.read(row) && w.first() {
				if l, reserved := c.inTheWay(tx, &w); (w.reserved() || !l.Holder.same(w.Holder)) && !yield(l, reserved) {
					return
				}
			}
		}
	}
}

// inTheWay finds a lease that keeps a place waiting, directly or through places
// before it. If there is none, it returns what the first of these places has
// instead of a lease: its keys are reserved for it, or will be in a moment.
func (c *Core) inTheWay(tx Tx, w *waiter) (l Lease, reserved bool) {
	switch keepers := c.sees(tx, w, c.live).keepers; {
	case len(keepers) == 0:
		return Lease{Scope: w.Scope, Key: w.Key, Holder: w.Holder, Shared: w.Shared, Reason: w.Reason, Deadline: w.due()}, true
	case keepers[0].lease != nil:
		return *keepers[0].lease, false
	default:
		return c.inTheWay(tx, keepers[0].place)
	}
}

// contention returns the refusal for a key because of a lease.
func contention(tx Tx, l Lease, key string) *HeldError {
	l.ID = uuid.Nil // it is secret
	return &HeldError{Lease: l.Told(tx), Asked: key, Waiters: inLine(tx, l.Scope, l.Key, math.MaxUint64)}
}

// Refusal returns the refusal that a request for the lease's key would get.
func (r *Registry) Refusal(tx Tx, l Lease) *HeldError {
	return contention(tx, l, l.Key)
}

// InTheWay yields the refusals that a request for the key would get: one for
// each lease on the key or on one that overlaps with it.
func (r *Registry) InTheWay(tx Tx, key string) iter.Seq[*HeldError] {
	return func(yield func(*HeldError) bool) {
		for row := range near(tx, leasePrefix, r.scope, key) {
			if l := (Lease{}); l.read(row) && l.held() && !yield(contention(tx, l, key)) {
				return
			}
		}
	}
}

// refusal returns the refusal for a key because of what keeps a party from it.
// Of an earlier place in line, it names the lease that keeps that waiting.
func (c *Core) refusal(tx Tx, k keeper) *HeldError {
	if k.lease != nil {
		return contention(tx, *k.lease, k.want.Key)
	}
	l, reserved := c.inTheWay(tx, k.place)
	e := contention(tx, l, k.want.Key)
	if e.Reserved = reserved; !reserved || !l.Holder.same(k.place.Holder) {
		e.Before = k.place.Holder.name()
	}
	return e
}

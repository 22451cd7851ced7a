package dispatch

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/dispatch/mail"
	"github.com/leasehold/leasehold/dispatch/rows"
	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/call"
	"github.com/leasehold/leasehold/engine/record"
	"github.com/leasehold/leasehold/kvstore"
	"github.com/leasehold/leasehold/queue"
	"github.com/leasehold/leasehold/registry"
)

// A Scope is the set of actors that a lease excludes one another among.
type Scope string

const (
	LayerScope Scope = "layer" // the caller's own layer
	RunScope   Scope = "run"   // the whole run
)

// A LeaseInfo is one lease of a listing.
type LeaseInfo struct {
	registry.Standing
	Scope Scope
	Layer string // path of the layer's lead, for a layer's lease

	Origin Origin // of its holder
}

// As returns the session as a holder of leases, for one of the sub-agents that
// share it. party is "" if the session has no sub-agents.
func (se *Session) As(party string) registry.Holder {
	h := se.Holder()
	h.Party = party
	return h
}

// Acquire takes a lease for the session. It reads only Party of req.Holder.
func (se *Session) Acquire(ctx context.Context, scope Scope, req registry.Request) (registry.Grant, error) {
	r, err := se.registry(scope)
	if err != nil {
		return registry.Grant{}, err
	}
	ctx, stop := se.WithinWait(ctx, req.Holder.Party, req.Wait)
	defer stop()
	req.Holder = se.As(req.Holder.Party)
	if scope == RunScope {
		if err := se.state.guard.takeOver(ctx, se, req.Holder.Party, req.Key); err != nil {
			return registry.Grant{}, err
		}
	}
	return r.Acquire(ctx, req)
}

// A Want is one of several leases to be taken together.
type Want struct {
	Scope  Scope
	Key    string
	Shared bool
}

// AcquireAll takes several leases for the session, or none. It reads only Party
// of req.Holder.
func (se *Session) AcquireAll(ctx context.Context, wants []Want, req registry.Request) ([]registry.Grant, error) {
	list := make([]registry.Want, len(wants))
	req.Holder = se.As(req.Holder.Party)
	for i, w := range wants {
		r, err := se.registry(w.Scope)
		if err != nil {
			return nil, err
		}
		list[i] = r.Want(w.Key, w.Shared)
		if w.Scope == RunScope {
			if err := se.state.guard.takeOver(ctx, se, req.Holder.Party, w.Key); err != nil {
				return nil, err
			}
		}
	}
	ctx, stop := se.WithinWait(ctx, req.Holder.Party, req.Wait)
	defer stop()
	return se.state.core.AcquireAll(ctx, list, req)
}

// Renew extends a lease of the session's actor, of either scope, on behalf of
// party.
func (se *Session) Renew(ctx context.Context, party string, id uuid.UUID, ttl time.Duration) (registry.Lease, error) {
	return se.state.core.Renew(ctx, se.As(party), id, ttl)
}

// Release releases a lease of the session's actor, of either scope, on behalf of
// party.
func (se *Session) Release(ctx context.Context, party string, id uuid.UUID) (released bool, why string, err error) {
	return se.state.core.Release(ctx, se.As(party), id)
}

// Requirement names one of the leases that the session can see, for a
// [registry.Fence].
func (se *Session) Requirement(scope Scope, key string, token uint64) (registry.Requirement, error) {
	r, err := se.registry(scope)
	if err != nil {
		return registry.Requirement{}, err
	}
	return r.Requirement(key, token), nil
}

// CheckToken reports whether a token is current for a lease.
func (se *Session) CheckToken(ctx context.Context, scope Scope, key string, token uint64) (s registry.TokenStanding, err error) {
	need, err := se.Requirement(scope, key, token)
	if err != nil {
		return s, err
	}
	return s, se.state.eng.View(ctx, func(tx engine.Tx) error {
		s = need.Standing(tx)
		return nil
	})
}

// Undo reverses the effect of a call whose answer will never reach the client.
// A call that finished or gave up something is not undone, and neither is an
// effect that another call has been told of. If there is nothing to undo, Undo
// returns nil.
func (se *Session) Undo(ctx context.Context, c call.Call) error {
	e := &ender{s: se.state, left: endStep}
	err := rows.Update(engine.Needed(ctx), se.state.eng, func(tx engine.Tx) error {
		a, ok := c.Take(tx, registry.CallKind, queue.ClaimKind, queue.EnqueueKind, sending, reading, spawning)
		if !ok {
			return nil
		}
		undone := true
		switch a.Kind {
		case registry.CallKind:
			se.state.core.Undo(tx, a)
		case queue.ClaimKind, queue.EnqueueKind:
			undone = se.state.queue.Undo(tx, se.id, a)
		case sending:
			undone = se.unsend(tx, a.Value)
		case reading:
			mail.Untell(tx, se.actor.ID, readIDs(a.Value))
		case spawning:
			e.tx = tx
			e.undoSpawn(a.Value)
		}
		if !undone { // the call may be sent again, and must not take effect twice
			c.Restore(tx, a)
		}
		return nil
	})
	if err != nil || e.tx == nil {
		return err
	}
	se.state.cutOff(e.cuts...)
	return se.state.ending(ctx, func(*ender) error { return nil }) // ends those below the undone actors
}

// Withdraw is Undo for a call that its client has cancelled. Such a call keeps no place in
// a line either, also if only an earlier request of it waited there.
func (se *Session) Withdraw(ctx context.Context, c call.Call) error {
	err := rows.Update(engine.Needed(ctx), se.state.eng, func(tx engine.Tx) error {
		se.state.core.Leave(tx, se.actor.ID, c)
		return nil
	})
	return cmp.Or(se.Undo(ctx, c), err)
}

// EndParty releases what a sub-agent of the session holds and removes it from
// all lines. Its calls that wait end first: they would join the lines again. The
// sub-agent is forgotten first, so that the main agent receives notices of
// anything that could not be released.
func (se *Session) EndParty(ctx context.Context, party string) error {
	if err := se.note(ctx, se.agents.forget(party)); err != nil {
		return err
	}
	se.agents.endWaits(party)
	return se.state.core.EndParty(ctx, se.As(party))
}

// A LeaseQuery selects leases for a listing.
type LeaseQuery struct {
	Scopes []Scope
	Prefix string // of the key; a layer's lease also matches with /leases/ before its key
	After  string // Next of the previous page
	Limit  int    // 1 to MaxLeaseList; 0: DefaultLeaseList
}

// Limits of a page of leases.
const (
	DefaultLeaseList = 100
	MaxLeaseList     = 1000
)

// A LeasePage is a part of a listing, ordered by scope and key.
type LeasePage struct {
	Leases   []LeaseInfo
	Reserved []ReservedInfo // of each registry on the page on which its leases begin; at most MaxReserved on a page
	Next     string         // After for the next page; "": no more
}

// A ReservedInfo is a key of a listing that nobody holds, and that is kept for the first in line.
type ReservedInfo struct {
	registry.Reservation
	Scope Scope
	Layer string // as in LeaseInfo
}

// MaxReserved bounds the reservations on a page.
const MaxReserved = 20

// A shelf is one registry that a listing reads.
type shelf struct {
	*registry.Registry
	scope Scope
	layer string // path of its lead
}

// page reads a page from shelves, in their order. The cursor says in which
// shelf the previous page ended, and after which key.
func (q LeaseQuery) page(tx engine.Tx, shelves iter.Seq[shelf]) (p LeasePage, err error) {
	limit := cmp.Or(q.Limit, DefaultLeaseList)
	if limit < 1 || limit > MaxLeaseList {
		return LeasePage{}, &registry.ArgumentError{Argument: "limit", Problem: fmt.Sprintf("must be from 1 to %d", MaxLeaseList)}
	}
	first, after, ok := readCursor(q.After)
	gone := &registry.ArgumentError{Argument: "after", Problem: "must be next of the previous reply"}
	if !ok {
		return LeasePage{}, gone
	}
	n := 0 // shelves that were reached
	for s := range shelves {
		if n++; n <= first {
			continue
		}
		if n > first+1 {
			after = ""
		}
		prefix := q.Prefix
		if s.scope == LayerScope {
			prefix = strings.TrimPrefix(prefix, "/"+kvstore.Leases+"/")
		}
		list, more := s.List(tx, prefix, after, limit-len(p.Leases))
		for _, standing := range list {
			p.Leases = append(p.Leases, LeaseInfo{standing, s.scope, s.layer, originOf(tx, standing.Holder)})
		}
		if after == "" && (len(list) > 0 || !more) {
			for _, kept := range s.Reserved(tx, prefix, MaxReserved-len(p.Reserved)) {
				p.Reserved = append(p.Reserved, ReservedInfo{kept, s.scope, s.layer})
			}
		}
		if more {
			last := ""
			if len(list) > 0 {
				last = list[len(list)-1].Cursor()
			}
			p.Next = cursor(n-1, last)
			return p, nil
		}
	}
	if first > n {
		return LeasePage{}, gone
	}
	return p, nil
}

// cursor encodes the shelf and the lease at which a page ended. The lease is
// given by its key and, if it shares that key with others, by its number.
func cursor(shelf int, after string) string {
	key, number, shared := strings.Cut(after, "\x00")
	n := uint64(0)
	if shared {
		n = record.ReadFixed(number)
	}
	return fmt.Sprintf("%d:%d:%s", shelf, n, key)
}

// readCursor decodes the result of cursor. "" is the start of a listing.
func readCursor(s string) (shelf int, after string, ok bool) {
	if s == "" {
		return 0, "", true
	}
	at, rest, _ := strings.Cut(s, ":")
	number, after, ok := strings.Cut(rest, ":")
	shelf, err := strconv.Atoi(at)
	n, wrong := strconv.ParseUint(number, 10, 64)
	if n > 0 {
		after += "\x00" + record.Fixed(n)
	}
	return shelf, after, ok && err == nil && wrong == nil && shelf >= 0
}

// Leases lists the leases that are held in the scopes of q, which must be
// scopes in which the session can take leases.
func (se *Session) Leases(ctx context.Context, q LeaseQuery) (p LeasePage, err error) {
	var shelves []shelf
	for _, scope := range q.Scopes {
		r, err := se.registry(scope)
		if err != nil {
			return LeasePage{}, err
		}
		shelves = append(shelves, shelf{r, scope, ""})
	}
	return p, se.state.eng.Snapshot(ctx, func(tx engine.Tx) (err error) {
		for i := range shelves {
			if shelves[i].scope == LayerScope {
				l, _ := getLayer(tx, se.actor.homeLayer())
				shelves[i].layer = l.Path
			}
		}
		p, err = q.page(tx, slices.Values(shelves))
		return err
	})
}

// LeasesOn lists the leases held on one key of a scope. There are several if
// the key is held in shared mode. If nobody holds the key, LeasesOn lists a lease
// that overlaps with it, if there is one.
func (se *Session) LeasesOn(ctx context.Context, scope Scope, key string) (list []LeaseInfo, err error) {
	leases, err := se.registry(scope)
	if err != nil {
		return nil, err
	}
	if list, err = se.leasesOn(ctx, scope, key); len(list) > 0 || err != nil {
		return list, err
	}
	var over registry.Lease
	err = se.state.eng.View(ctx, func(tx engine.Tx) error {
		over, _ = leases.Overlapping(tx, key)
		return nil
	})
	if over.Key == "" {
		return nil, err
	}
	return se.leasesOn(ctx, scope, over.Key)
}

func (se *Session) leasesOn(ctx context.Context, scope Scope, key string) (list []LeaseInfo, err error) {
	q := LeaseQuery{Scopes: []Scope{scope}, Prefix: key, Limit: MaxLeaseList}
	p, err := se.Leases(ctx, q) // ordered by key: those on this key come first
	for _, l := range p.Leases {
		if l.Key == key {
			list = append(list, l)
		}
	}
	return list, err
}

// LeaseByID returns a lease of the session's actor, of either scope.
func (se *Session) LeaseByID(ctx context.Context, id uuid.UUID) (l LeaseInfo, err error) {
	return l, se.state.eng.View(ctx, func(tx engine.Tx) (refusal error) {
		if l.Standing, refusal = se.state.core.Find(tx, se.Holder(), id); refusal != nil {
			return refusal
		}
		if l.Scope, _ = scopeOf(l.Lease.Scope); l.Scope == LayerScope {
			_, l.Layer = se.state.layerOf(tx, l.Lease.Scope)
		}
		l.Origin = originOf(tx, l.Holder)
		return nil
	})
}

// registry returns the registry of the session's leases of a scope.
func (se *Session) registry(scope Scope) (*registry.Registry, error) {
	if se.actor.Role.Outside() {
		return nil, forbidden("an operator is in no run and takes no leases; connect with an actor's token")
	}
	if scope == LayerScope {
		return se.ofLayer, nil
	}
	return se.ofRun, nil
}

// Within returns a context that also ends when the session ends.
func (se *Session) Within(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(se.ctx, func() { cancel(context.Cause(se.ctx)) })
	return ctx, func() { stop(); cancel(nil) }
}

// WithinWait is Within for a call of an agent that may wait. It ends with the
// agent, too. A call that does not wait needs no such context: its transaction
// finds out whether the session has ended.
func (se *Session) WithinWait(ctx context.Context, agent string, wait time.Duration) (context.Context, func()) {
	if wait == 0 {
		return ctx, func() {}
	}
	ctx, over := se.agents.wait(ctx, agent)
	ctx, stop := se.Within(ctx)
	return ctx, func() { stop(); over() }
}

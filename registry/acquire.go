package registry

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/call"
	"github.com/leasehold/leasehold/engine/event"
	"github.com/leasehold/leasehold/engine/record"
)

// An ask is a request while it is answered.
type ask struct {
	waiter      // in the place of its party, if that has one
	found  view // what it sees from there
	placed bool // it has waited in a place
	search bool // it waits, and whether that closes a cycle is not known yet
	ended  int  // how many expired leases it has ended
	passed int  // how many leases and places the last transaction looked at, apart from those on its keys

	// A grant that another transaction makes to a call that waits comes to it
	// directly as soon as it is durable. If the call looked for it in a transaction
	// of its own, that would have to wait for whatever was committed in between,
	// which costs a hand-over as long again.
	ctx   context.Context
	given chan []Grant // has room for one answer
}

// place returns the place in which the call waits, for [Core.searchOn]. It
// returns nothing if the call was granted the keys, or another call took over.
func (a *ask) place(tx Tx) (*waiter, *await) {
	if w, ok := placeOf(tx, a.Holder, a.wants); ok && w.asker == a.asker {
		return &w, nil
	}
	return nil, nil
}

// tell has a grant to the call that waits in a place told to it.
func (c *Core) tell(tx Tx, asker uuid.UUID, list []Grant) {
	p, ok := c.calls.Load(asker)
	if !ok {
		return
	}
	tx.AfterCommit(func() {
		select {
		case p.(*ask).given <- list:
		default:
		}
	})
}

// Acquire grants the key, or refuses with a [HeldError], or after a wait with a
// [WaitError]. If the call is cancelled, it has neither a lease nor a place in
// line when Acquire returns, even if it was granted the lease in that instant.
// A call that is cut off ([call.ErrCutOff]) keeps both, so that the client can
// send it again.
func (r *Registry) Acquire(ctx context.Context, req Request) (Grant, error) {
	list, err := r.core.acquire(ctx, []Want{r.Want(req.Key, req.Shared)}, req)
	if err != nil {
		return Grant{}, err
	}
	return list[0], nil
}

// AcquireAll is Acquire for several keys, which may be of different scopes;
// they replace the request's key. It grants all of them in one transaction, or
// none. The request has the same number in the lines of all its keys: it is
// served before any later request for one of them, and after any earlier one.
// The grants are in the order of wants.
func (c *Core) AcquireAll(ctx context.Context, wants []Want, req Request) ([]Grant, error) {
	limit := MaxWants
	if req.Wait == 0 {
		limit = MaxWantsNow
	}
	sorted, err := sortWants(wants, limit)
	if err != nil {
		return nil, err
	}
	list, err := c.acquire(ctx, sorted, req)
	if err != nil {
		return nil, err
	}
	grants := make([]Grant, 0, len(wants))
	for _, w := range wants {
		grants = append(grants, list[slices.IndexFunc(sorted, func(s Want) bool { return s.compare(w) == 0 })])
	}
	return grants, nil
}

// acquire expects wants in the order of their keys.
func (c *Core) acquire(ctx context.Context, wants []Want, req Request) (list []Grant, err error) {
	req.TTL = cmp.Or(req.TTL, DefaultTTL)
	if err := req.check(wants); err != nil {
		return nil, err
	}
	a := ask{waiter: waiter{Request: req, wants: wants, asker: uuid.New(), call: req.named(ctx, wants)}}
	leave, err := c.Enter(ctx, CallKind, a.call)
	if err != nil {
		return nil, err
	}
	defer leave()
	look := func(last bool) error {
		select {
		case list = <-a.given:
			a.call.Given()
			return nil
		default:
		}
		for {
			err := c.update(ctx, req.Holder, func(tx Tx) (refusal error) {
				if ctx.Err() != nil {
					return context.Cause(ctx)
				}
				a.passed, a.search = 0, false
				list, refusal = c.look(tx, &a, last)
				if a.passed > heavy {
					engine.TurnOf(ctx).Heavy()
				}
				return refusal
			})
			switch {
			case err == errMore:
			case a.search && err == engine.ErrWait:
				return cmp.Or(c.searchOn(ctx, a.Holder, a.Reason, a.place), err)
			default:
				return err
			}
		}
	}
	if req.Wait == 0 {
		err = look(true)
	} else {
		err = c.await(ctx, &a, look)
	}
	switch {
	case ctx.Err() != nil:
		return nil, c.withdraw(ctx, &a)
	case err != nil:
		return nil, err
	default:
		return list, nil
	}
}

// await calls look until there is an answer. A change of the party's place
// wakes every call of the party that waits there. The watch begins before the
// first look, so a hand-over between the look and the wait is not missed. The
// call is registered as asking before it has a place, so no hand-over finds the
// place without its call.
func (c *Core) await(ctx context.Context, a *ask, look func(last bool) error) error {
	watch := c.eng.Watch(placeKey(a.Holder, a.wants))
	defer watch.Stop()
	a.ctx, a.given = ctx, make(chan []Grant, 1)
	c.calls.Store(a.asker, a)
	defer c.calls.Delete(a.asker)
	return engine.Await(ctx, watch, a.Wait, look)
}

// look is the main rule. It repeats the answer of a call that was answered
// before, or to which the leases were handed over. Otherwise it grants the
// keys, returns the leases that the party already has, refuses, or keeps the
// call waiting (engine.ErrWait). last says that the time to wait is over.
func (c *Core) look(tx Tx, a *ask, last bool) ([]Grant, error) {
	if !c.opts.SessionOpen(tx, a.Holder.Session) {
		return nil, ErrSessionEnded
	}
	if list, answered, err := c.answered(tx, a); answered {
		return list, err
	}
	place, err := c.find(tx, a)
	if err != nil {
		return nil, err
	}
	if len(a.found.keepers) > 0 {
		held := c.refusal(tx, a.found.keepers[0])
		if a.Wait == 0 && a.Ticket == uuid.Nil {
			return nil, held
		}
		return nil, c.wait(tx, a, held, place, last)
	}
	if err := c.mayHold(tx, a); err != nil {
		return nil, err
	}
	list := c.award(tx, &a.waiter, &a.found)
	if place.seq > 0 { // the party may share now what it wanted exclusively
		c.handOver(tx, a.wants...)
	}
	return list, nil
}

// answered finds the answer of a call that is sent again, or whose request_id
// was used before.
func (c *Core) answered(tx Tx, a *ask) (list []Grant, ok bool, err error) {
	value, ok, err := a.call.Answered(tx, CallKind)
	if !ok || err != nil {
		return nil, err != nil, err
	}
	r := record.Read(value)
	reentered := value[min(len(value), len(uuid.UUID{})*len(a.wants)):]
	for _, want := range a.wants {
		id := r.ID()
		l, ok := leaseByID(tx, id)
		ok = ok && l.Holder.same(a.Holder)
		if ok && c.expired(tx, &l) {
			l, ok = c.revive(tx, l)
		}
		switch {
		case ok:
			list = append(list, Grant{Lease: l.Told(tx), Reentrant: strings.Contains(reentered, string(id[:])), Similar: similar(tx, l.Scope, l.Key)})
		case a.call.Overtaken():
			err := c.lost(tx, a.Holder, id, Notice{Scope: want.Scope, Key: want.Key, Reason: string(Released)})
			if lost, ok := errors.AsType[*LostError](err); ok {
				lost.Keyed = a.call.Keyed()
			}
			return nil, true, err
		default: // the client may use one name for all its calls
			a.call.Forget(tx)
			return nil, false, nil
		}
	}
	return list, true, nil
}

// errMore says that a transaction has ended expired leases for as long as others
// may be made to wait, and that more may be in the way.
var errMore = errors.New("registry: more has expired")

const (
	// MaxBelow is how many leases on the keys of a request, and below its
	// directories, may be compatible with it: shared ones, and below the
	// directories the party's own. All of them are looked at under the lock.
	MaxBelow = 1000
	// MaxSearched is how many leases and places a search for a deadlock looks at.
	MaxSearched = 2000
	// heavy is how many of all these a transaction may look at without being
	// more work than most.
	heavy = 100
)

// find returns the place of the call's party, and sets what the call finds after
// it has ended what is past its deadline: leases that are in the way, and the
// party's own if somebody waits for them.
func (c *Core) find(tx Tx, a *ask) (place waiter, err error) {
	v := &a.found
	for {
		place, _ = placeOf(tx, a.Holder, a.wants)
		a.seq, a.Since, a.spent = place.seq, place.Since, place.spent || place.reserved()
		*v = view{keeps: c.live, asks: true, left: MaxBelow}
		c.view(tx, &a.waiter, v)
		a.passed += MaxBelow - v.left
		switch {
		case len(v.over) > 0:
		case v.unread != "":
			return place, corrupt(v.unread)
		case v.mixed:
			return place, &ArgumentError{"mode", "must be shared, as you hold the lease shared; release it first to ask for it alone"}
		case v.limit != "" && len(v.keepers) == 0:
			return place, &LimitError{Which: v.limit, Max: MaxBelow}
		default:
			return place, nil
		}
		for _, l := range v.over {
			row, _ := tx.Get(l.row)
			if now := (Lease{}); now.read(row) && now.Token == l.Token && c.expired(tx, &now) { // ending the previous lease may have changed this one
				c.free(tx, now, Expired)
			}
			if a.ended++; tx.Spent() {
				return place, errMore
			}
		}
	}
}

// mayHold refuses a call that would get more leases than its actor, or a scope,
// may have.
func (c *Core) mayHold(tx Tx, a *ask) error {
	more := len(a.wants) - len(a.found.own)
	if more == 0 {
		return nil
	}
	err := below(tx, actorCount(a.Holder.Actor), "leases of one actor", more, c.opts.MaxLeasesPerActor)
	for _, want := range a.wants {
		err = cmp.Or(err, below(tx, scopeCount(want.Scope), "leases in this scope", more, c.opts.MaxLeasesPerScope))
	}
	return err
}

// award grants a party its keys, in which it re-enters those that it has and
// accepts those that are offered to it. It records the answer of the call that
// is granted them, or that has a request_id or an Idempotency-Key: the ids of the
// leases, and again those that it re-enters.
func (c *Core) award(tx Tx, w *waiter, v *view) []Grant {
	e := event.Event{Kind: event.LeaseGranted}
	if w.seq > 0 {
		w.remove(tx)
		e.Took = tx.Now().Sub(w.Since)
	}
	if w.seq > 0 || len(v.offers) > 0 {
		e.Kind = event.LeaseHandedOver
	}
	for _, l := range v.offers {
		c.remove(tx, l, Transferred)
	}
	list := make([]Grant, 0, len(w.wants))
	ids := record.New(len(uuid.UUID{}) * (len(w.wants) + len(v.own)))
	for _, want := range w.wants {
		i := slices.IndexFunc(v.own, func(l Lease) bool { return l.Scope == want.Scope && l.Key == want.Key })
		if i >= 0 {
			list = append(list, c.reenter(tx, v.own[i], &w.Request))
		} else {
			l := c.grant(tx, want, &w.Request, uuid.New(), e)
			list = append(list, Grant{Lease: l.Told(tx)})
		}
		ids.ID(list[len(list)-1].ID)
	}
	for i, g := range list { // only now, as they may be similar to one another
		list[i].Similar = similar(tx, g.Scope, g.Key)
		if g.Reentrant {
			ids.ID(g.ID)
		}
	}
	more := len(v.own) < len(w.wants)
	if more || w.call.Keyed() {
		keep := call.Keep
		if more && w.RequestID != "" {
			keep = call.Forever // until a lease that it was granted ends
		}
		w.call.Record(tx, CallKind, ids.String(), keep)
	}
	if more {
		c.settle(tx, w.Holder, c.live)
	}
	if len(v.offers) > 0 { // a key that was held exclusively may be shared now
		c.handOver(tx, w.wants...)
	}
	return list
}

// grant writes a new lease. The ttl counts from this transaction.
func (c *Core) grant(tx Tx, want Want, req *Request, id uuid.UUID, e event.Event) Lease {
	if !req.Holder.Local {
		tx.Sync() // the holder that freed the key may be local
	}
	now := tx.Now()
	token, revision := event.NextBoth(tx)
	l := Lease{
		Scope: want.Scope, Key: want.Key, ID: id, Token: token, Holder: req.Holder,
		Acquired: now, Deadline: now.Add(req.TTL), TTL: req.TTL,
		Shared: want.Shared, Reason: req.Reason, KeepAlive: req.KeepAlive, RequestID: req.RequestID,
	}
	l.row = rowOf(want, l.Token)
	l.put(tx)
	addCounts(tx, &l, 1)
	if id != uuid.Nil {
		tx.Touch(engine.Row{Key: idKey(l.ID), Value: l.row})
		noteAlike(tx, l.Scope, l.Key)
		e.Revision, e.Reason = revision, l.Reason
		c.recordLease(tx, &l, e)
	}
	return l
}

// reenter returns a party's own lease, extended if that moves its deadline
// later.
func (c *Core) reenter(tx Tx, l Lease, req *Request) Grant {
	keep := req.KeepAlive && !l.KeepAlive || !l.told // a cancel of the call that was granted it may come after a restart
	keep = keep || req.Reason != "" && req.Reason != l.Reason
	l.KeepAlive, l.told, l.Reason = l.KeepAlive || req.KeepAlive, true, cmp.Or(req.Reason, l.Reason)
	l = c.extend(tx, l, req.TTL, l.Holder)
	if keep {
		l.put(tx) // so that it survives a restart
	}
	return Grant{Lease: l.Told(tx), Reentrant: true}
}

// withdraw ends the call of a client that is gone. A call that was cut off may
// be sent again under its name, so it keeps its place and its grant.
func (c *Core) withdraw(ctx context.Context, a *ask) error {
	cause := context.Cause(ctx)
	cutOff := errors.Is(cause, call.ErrCutOff)
	err := c.update(engine.Needed(context.WithoutCancel(ctx)), a.Holder, func(tx Tx) error {
		switch w, _ := a.place(tx); {
		case w == nil:
		case cutOff:
			c.away(tx, *w)
		default:
			c.leave(tx, *w)
		}
		if cutOff && call.Of(ctx).Name != "" || !a.call.First() {
			return nil
		}
		if answer, ok := a.call.Take(tx, CallKind); ok {
			c.Undo(tx, answer)
		}
		return nil
	})
	return cmp.Or(err, cause)
}

// Leave gives up the place of a call of the actor that its client has cancelled. An
// earlier request of the call waited there and was cut off. The one that is cancelled
// now may have ended before it waited there too, so that it could not give up the place
// itself.
func (c *Core) Leave(tx Tx, actor uuid.UUID, asked call.Call) {
	if count(tx, waitsCount(actor)) == 0 {
		return
	}
	for _, w := range slices.Collect(placesOf(tx, Holder{Actor: actor})) {
		w, ok := placeOf(tx, w.Holder, w.wants) // leaving the previous place may have changed this one
		if ok && w.call.Same(asked) && !c.asking(w.asker) {
			c.leave(tx, w)
		}
	}
}

// CallKind is the kind of the recorded answers that grant leases.
const CallKind call.Kind = "lease"

// Undo takes back the leases granted to a call whose client will never receive
// the answer, except those that another call was also answered with.
func (c *Core) Undo(tx Tx, a call.Answer) {
	r := record.Read(a.Value)
	for id := r.ID(); id != uuid.Nil; id = r.ID() {
		if l, ok := leaseByID(tx, id); ok && !l.told {
			c.free(tx, l, Cancelled)
		}
	}
}

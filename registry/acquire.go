package registry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/call"
	"github.com/leasehold/leasehold/engine/event"
	"github.com/leasehold/leasehold/engine/record"
)

// A Request asks for a lease.
type Request struct {
	Key       string // 1 to MaxKey bytes, printable, compared exactly
	Holder    Holder
	TTL       time.Duration // MinTTL to MaxTTL; zero: DefaultTTL
	Wait      time.Duration // at most MaxWait; zero: answer at once
	Ticket    uuid.UUID     // of an earlier wait; zero: none. The party's place is found without it, too
	RequestID string        // makes the request idempotent; "": it is not
	KeepAlive bool
	Shared    bool   // beside others who ask for it shared
	Reason    string // shown to those who are refused; at most MaxReason bytes
}

// A Grant answers a request.
type Grant struct {
	Lease
	Reentrant bool // the party held it already
}

// An ask is one request on its way.
type ask struct {
	Request
	scope  string
	id     uuid.UUID // of the call, among those that wait in this process
	call   call.Call
	placed bool   // it has taken its place in the line
	offer  *Lease // that is offered to its actor, and that it accepts with a grant
}

// Acquire grants the key, or refuses with a [HeldError], or after a wait with a
// [WaitError]. A call that is cancelled has no lease and no place in line when
// Acquire returns, whatever it was given in that instant. One that is cut off
// ([call.ErrCutOff]) keeps them for the call that is sent again.
func (r *Registry) Acquire(ctx context.Context, req Request) (g Grant, err error) {
	req.TTL = cmp.Or(req.TTL, DefaultTTL)
	if err := req.check(r.scope); err != nil {
		return Grant{}, err
	}
	c := r.core
	a := ask{Request: req, scope: r.scope, id: uuid.New(), call: req.named(call.Of(ctx), r.scope)}
	look := func(last bool) error {
		return c.update(ctx, req.Holder, func(tx Tx) (refusal error) {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			g, refusal = c.look(tx, &a, last)
			return refusal
		})
	}
	if req.Wait == 0 {
		err = look(true)
	} else {
		err = c.await(ctx, &a, look)
	}
	switch {
	case ctx.Err() != nil:
		return Grant{}, c.withdraw(ctx, &a)
	case err != nil:
		return Grant{}, err
	default:
		return g, nil
	}
}

// await looks until there is an answer. What becomes of the party's place wakes
// every call of the party that waits there. The watch begins before the first look,
// so a hand-over between the look and the wait is not missed. The call counts as
// asking before it has a place, so no hand-over finds the place without it.
func (c *Core) await(ctx context.Context, a *ask, look func(last bool) error) error {
	watch := c.eng.Watch(placeKey(a.Holder, a.scope, a.Key))
	defer watch.Stop()
	c.calls.Store(a.id, ctx)
	defer c.calls.Delete(a.id)
	return engine.Await(ctx, watch, a.Wait, look)
}

// look is the main rule. It answers a call that was answered before or to which the
// lease was handed over, grants, gives back what the party has, refuses, or keeps
// the call waiting (engine.ErrWait).
// last says that the wait is over.
func (c *Core) look(tx Tx, a *ask, last bool) (Grant, error) {
	if !c.opts.SessionOpen(tx, a.Holder.Session) {
		return Grant{}, ErrSessionEnded
	}
	if g, answered, err := c.answered(tx, a); answered {
		return g, err
	}
	own, held, err := c.current(tx, a)
	switch {
	case err != nil:
		return Grant{}, err
	case own != nil && own.Shared && !a.Shared:
		return Grant{}, &ArgumentError{"mode", "must be shared, as you hold the lease shared; release it first to ask for it alone"}
	case own != nil:
		return c.reenter(tx, *own, a), nil
	case held == nil:
		return c.grantTo(tx, a)
	case a.Wait == 0:
		return Grant{}, contention(tx, *held)
	default:
		return Grant{}, c.wait(tx, a, *held, last)
	}
}

// answered answers a call that is sent again, or whose request_id was used before.
func (c *Core) answered(tx Tx, a *ask) (g Grant, ok bool, err error) {
	value, ok, err := a.call.Answered(tx, CallKind)
	if !ok || err != nil {
		return Grant{}, err != nil, err
	}
	r := record.Read(value)
	id := r.ID()
	l, ok := leaseByID(tx, id)
	ok = ok && l.Holder.same(a.Holder)
	if ok && l.expired(tx.Now()) {
		l, ok = c.revive(tx, l)
	}
	switch {
	case ok:
		return Grant{Lease: l.Told(tx)}, true, nil
	case a.RequestID != "":
		return Grant{}, true, c.lost(tx, a.Holder, id, Notice{Scope: a.scope, Key: a.Key, LeaseID: id, Reason: string(Released), At: tx.Wall()})
	default: // the client may use one name for all its calls
		a.call.Forget(tx)
		return Grant{}, false, nil
	}
}

// current gives the lease that the party has on the key, and then the one that keeps it
// from being granted. A lease past its deadline ends here if it is in the way, or if
// it is the party's own and somebody waits for it. A key that is reserved for the
// party is free, and so is one that is offered to its actor.
func (c *Core) current(tx Tx, a *ask) (*Lease, *Lease, error) {
	a.offer = nil
	var is struct { // one variable, as the loop's body is a function that it must outlive
		own, held *Lease
		beside    *Lease // shared, as a asks for it
		freed     bool
		err       error
	}
each:
	for row := range holders(tx, a.scope, a.Key) {
		var l Lease
		if !l.read(row) {
			is.err = corrupt(row.Key)
			break
		}
		mine, compatible := l.Holder.same(a.Holder), l.Shared && a.Shared
		switch {
		case l.Reserved && mine:
			tx.Delete(l.row)
		case l.expired(tx.Now()) && (mine && (l.Shared && !a.Shared || c.wanted(tx, &l)) || !mine && !compatible):
			c.free(tx, l, Expired)
			is.freed = true
			break each
		case mine:
			is.own = &l
		case l.offeredTo(a.Holder.Actor, tx.Now()):
			a.offer = &l
		case compatible && !l.lapsed:
			is.beside = &l
		case !compatible && is.held == nil:
			is.held = &l
		}
	}
	switch {
	case is.err != nil:
		return nil, nil, is.err
	case is.freed:
		return c.current(tx, a) // it may have been handed over
	}
	if is.held == nil && is.own == nil && is.beside != nil && a.Shared && a.offer == nil && c.overtakes(tx, a) {
		return nil, is.beside, nil
	}
	return is.own, is.held, nil
}

// overtakes reports whether somebody who wants the key alone is in line before a, who
// wants to share it and so has to wait behind those.
func (c *Core) overtakes(tx Tx, a *ask) bool {
	place, _ := placeOf(tx, a.Holder, a.scope, a.Key)
	for w := range waiters(tx, a.scope, a.Key) {
		if w.seq == place.seq {
			break
		}
		if !w.shared && c.live(tx, &w) {
			return true
		}
	}
	return false
}

// grantTo grants a free key to the call in hand.
func (c *Core) grantTo(tx Tx, a *ask) (Grant, error) {
	err := cmp.Or(
		below(tx, scopeCount(a.scope), "leases in this scope", c.opts.MaxLeasesPerScope),
		below(tx, actorCount(a.Holder.Actor), "leases of one actor", c.opts.MaxLeasesPerActor))
	if err != nil {
		return Grant{}, err
	}
	w, waited := placeOf(tx, a.Holder, a.scope, a.Key)
	if waited {
		w.remove(tx)
	}
	kind := event.LeaseGranted
	if waited || a.offer != nil {
		kind = event.LeaseHandedOver
	}
	if a.offer != nil {
		c.remove(tx, *a.offer, Transferred)
	}
	l := c.grant(tx, a.scope, a.Request, uuid.New(), a.call, kind)
	if waited || a.offer != nil {
		c.handOver(tx, a.scope, a.Key, false) // what was wanted alone may be shared now
	}
	return Grant{Lease: l.Told(tx)}, nil
}

// grant writes a new lease, and the answer of the call that gets it. The deadline
// runs from this transaction.
func (c *Core) grant(tx Tx, scope string, req Request, id uuid.UUID, asked call.Call, kind event.Kind) Lease {
	if !req.Holder.Local {
		tx.Sync() // whoever frees the key may be local
	}
	now := tx.Now()
	l := Lease{
		Scope: scope, Key: req.Key, ID: id, Token: event.Next(tx), Holder: req.Holder,
		Acquired: now, Deadline: now.Add(req.TTL), TTL: req.TTL,
		Shared: req.Shared, Reason: req.Reason, KeepAlive: req.KeepAlive, RequestID: req.RequestID,
	}
	l.row = rowOf(scope, req.Key, req.Shared, l.Token)
	l.put(tx)
	if id == uuid.Nil {
		return l
	}
	tx.Touch(engine.Row{Key: idKey(l.ID), Value: l.row})
	addCounts(tx, &l, 1)
	c.recordLease(tx, &l, event.Event{Kind: kind, Reason: l.Reason})
	keep := call.Keep
	if req.RequestID != "" {
		keep = call.Forever
	}
	w := record.New(16)
	w.ID(id)
	asked.Record(tx, CallKind, w.String(), keep)
	return l
}

// reenter gives a party its own lease again, extended if that is longer.
func (c *Core) reenter(tx Tx, l Lease, a *ask) Grant {
	if w, ok := placeOf(tx, a.Holder, a.scope, a.Key); ok {
		c.leave(tx, w)
	}
	keep := a.KeepAlive && !l.KeepAlive
	keep = keep || a.Reason != "" && a.Reason != l.Reason
	l.KeepAlive, l.told, l.Reason = l.KeepAlive || a.KeepAlive, true, cmp.Or(a.Reason, l.Reason)
	l = c.extend(tx, l, a.TTL, l.Holder)
	if keep {
		l.put(tx) // a restart is to know of it
	}
	return Grant{Lease: l.Told(tx), Reentrant: true}
}

// withdraw ends the call of a caller that is gone. One that was cut off may be sent
// again under its name: it keeps its place and its grant.
func (c *Core) withdraw(ctx context.Context, a *ask) error {
	cause := context.Cause(ctx)
	cutOff := errors.Is(cause, call.ErrCutOff)
	err := c.update(engine.Needed(context.WithoutCancel(ctx)), a.Holder, func(tx Tx) error {
		if w, ok := placeOf(tx, a.Holder, a.scope, a.Key); ok && w.asker == a.id {
			if cutOff {
				c.away(tx, w)
			} else {
				c.leave(tx, w)
			}
		}
		if cutOff && call.Of(ctx).Name != "" {
			return nil
		}
		if answer, ok := a.call.Take(tx); ok {
			c.Undo(tx, answer)
		}
		return nil
	})
	return cmp.Or(err, cause)
}

// CallKind is the kind of the answers of calls that were granted a lease.
const CallKind call.Kind = "lease"

// Undo takes back the lease that a call was granted whose client will never have
// the answer, unless another call was told of it, too.
func (c *Core) Undo(tx Tx, a call.Answer) {
	r := record.Read(a.Value)
	if l, ok := leaseByID(tx, r.ID()); ok && !l.told {
		c.free(tx, l, Cancelled)
	}
}

// named is the call under which the request's answer is recorded.
func (req *Request) named(asked call.Call, scope string) call.Call {
	switch {
	case asked.Recorded():
	case req.Wait == 0:
		asked = call.Alone(req.Holder.Session)
	default:
		asked = call.Unnamed(req.Holder.Session)
	}
	return asked.Requested(req.Holder.Session, req.RequestID,
		call.PrintOf(scope, req.Key, req.Holder.Party, req.TTL.String(), strconv.FormatBool(req.KeepAlive), strconv.FormatBool(req.Shared), req.Reason))
}

func (req *Request) check(scope string) error {
	if err := checkKey(req.Key); err != nil {
		return err
	}
	if err := CheckParty(req.Holder.Party); err != nil {
		return err
	}
	if err := checkTTL(req.TTL); err != nil {
		return err
	}
	if err := printable("reason", req.Reason); err != nil {
		return err
	}
	switch {
	case len(req.Reason) > MaxReason:
		return &ArgumentError{"reason", fmt.Sprintf("must be at most %d bytes", MaxReason)}
	case req.Wait < 0 || req.Wait > MaxWait:
		return &ArgumentError{"wait_secs", fmt.Sprintf("must be from 0 to %d", MaxWait/time.Second)}
	case len(req.RequestID) > MaxRequestID:
		return &ArgumentError{"request_id", fmt.Sprintf("must be at most %d bytes", MaxRequestID)}
	case req.Ticket != uuid.Nil && req.Ticket != ticketOf(req.Holder, scope, req.Key):
		return &ArgumentError{"ticket", "must be of an earlier wait of this session for the same lease; leave it out to ask anew"}
	}
	return nil
}

func checkKey(key string) error {
	if key == "" || len(key) > MaxKey {
		return &ArgumentError{"key", fmt.Sprintf("must be from 1 to %d bytes", MaxKey)}
	}
	return cmp.Or(printable("key", key), checkPath(key))
}

// CheckParty reports what is wrong with the name of a party.
func CheckParty(party string) error {
	if len(party) > MaxParty {
		return &ArgumentError{"as", fmt.Sprintf("must be at most %d bytes", MaxParty)}
	}
	return printable("as", party)
}

func printable(argument, s string) error {
	if !utf8.ValidString(s) {
		return &ArgumentError{argument, "must be valid UTF-8"}
	}
	for _, c := range s {
		if !unicode.IsPrint(c) {
			return &ArgumentError{argument, fmt.Sprintf("must be printable, and holds %U", c)}
		}
	}
	return nil
}

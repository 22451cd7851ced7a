package dispatch

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/dispatch/rows"
	"github.com/leasehold/leasehold/dispatch/work"
	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/call"
	"github.com/leasehold/leasehold/queue"
	"github.com/leasehold/leasehold/registry"
)

// A Scope says how far a lease reaches.
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
}

// Acquire takes a lease for the session; req's Holder is filled in.
func (se *Session) Acquire(ctx context.Context, scope Scope, req registry.Request) (registry.Grant, error) {
	r, err := se.registry(scope)
	if err != nil {
		return registry.Grant{}, err
	}
	ctx, stop := se.withinWait(ctx, req.Wait)
	defer stop()
	req.Holder = se.Holder()
	return r.Acquire(ctx, req)
}

// Renew extends a lease of the session's actor, of either scope.
func (se *Session) Renew(ctx context.Context, id uuid.UUID, ttl time.Duration) (registry.Lease, error) {
	return se.state.core.Renew(ctx, se.Holder(), id, ttl)
}

// Release gives back a lease of the session's actor, of either scope.
func (se *Session) Release(ctx context.Context, id uuid.UUID) (released bool, why string, err error) {
	return se.state.core.Release(ctx, se.Holder(), id)
}

// Undo takes back what a call did whose client will never have the answer. What
// finishes or gives up something stands, and so does what another call was told
// of too. It is no error if there is nothing to undo.
func (se *Session) Undo(ctx context.Context, c call.Call) error {
	if !c.Recorded() || !c.Log.Recorded(c) {
		return nil
	}
	return se.state.eng.Update(ctx, func(tx engine.Tx) error {
		a, ok := c.Take(tx)
		if !ok {
			return nil
		}
		switch a.Kind {
		case registry.CallKind:
			se.state.core.Undo(tx, a)
		case queue.ClaimKind, queue.EnqueueKind:
			se.state.queue.Undo(tx, se.id, a)
		default: // stands
		}
		return nil
	})
}

// Leases lists what stands in the scopes that the session can take leases in.
func (se *Session) Leases(ctx context.Context, scopes []Scope, prefix string) ([]LeaseInfo, error) {
	var list []LeaseInfo
	for _, scope := range scopes {
		r, err := se.registry(scope)
		if err != nil {
			return nil, err
		}
		err = rows.View(ctx, se.state.eng, func(tx engine.Tx) error {
			home := ""
			if scope == LayerScope {
				l, _ := getLayer(tx, se.actor.HomeLayer())
				home = l.Path
			}
			for _, standing := range r.List(tx, prefix) {
				list = append(list, LeaseInfo{standing, scope, home})
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return list, nil
}

// registry is where the session's leases of a scope are.
func (se *Session) registry(scope Scope) (*registry.Registry, error) {
	if se.actor.Role == Operator {
		return nil, forbidden("an operator is in no run and takes no leases; connect with an actor's token")
	}
	if scope == LayerScope {
		return se.state.core.Registry(layerScope(se.actor.HomeLayer())), nil
	}
	return se.state.leasesOf(se.run), nil
}

// Within bounds ctx by the session: its end cancels what it has under way.
func (se *Session) Within(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(se.ctx, func() { cancel(context.Cause(se.ctx)) })
	return ctx, func() { stop(); cancel(nil) }
}

// withinWait is Within for a call that may wait. One that does not finds in its
// transaction that the session has ended.
func (se *Session) withinWait(ctx context.Context, wait time.Duration) (context.Context, func()) {
	if wait == 0 {
		return ctx, func() {}
	}
	return se.Within(ctx)
}

// TakeLosses returns the losses that the session has not been told of, and
// counts them as told. Where there are none, which is nearly always, it looks
// at nothing that others contend for.
func (se *Session) TakeLosses(ctx context.Context) ([]registry.Lost, error) {
	select {
	case <-se.news.C:
		se.unsure.Store(true)
	default:
	}
	if !se.unsure.Load() {
		return nil, nil
	}
	news, err := se.untold(ctx)
	if err == nil && len(news) > 0 {
		err = rows.Update(ctx, se.state.eng, func(tx engine.Tx) error {
			se.state.core.MarkTold(tx, se.Holder(), news)
			return nil
		})
	}
	if err != nil {
		return nil, err
	}
	// What is lost from here on is in the watch.
	se.unsure.Store(false)
	return news, nil
}

func (se *Session) untold(ctx context.Context) (news []registry.Lost, err error) {
	return news, rows.View(ctx, se.state.eng, func(tx engine.Tx) error {
		news = se.state.core.Untold(tx, se.Holder())
		return nil
	})
}

// WatchLosses calls tell with each loss of the session as it happens, until
// ctx or the session ends. It does not count them as told: a notification may
// never be read, the next answer is.
func (se *Session) WatchLosses(ctx context.Context, tell func(registry.Lost)) {
	ctx, stop := se.Within(ctx)
	defer stop()
	watch := se.state.eng.Watch(registry.NewsKey(se.id))
	defer watch.Stop()
	told := make(map[uint64]bool) // by token: a claim has no lease_id
	for {
		select {
		case <-watch.C:
		case <-ctx.Done():
			return
		}
		news, err := se.untold(ctx)
		if err != nil {
			return // the engine or the session has ended
		}
		for _, l := range news {
			if !told[l.Token] {
				told[l.Token] = true
				tell(l)
			}
		}
	}
}

// TakeDrain returns the end of the session's run that is in sight, once, or
// nil.
func (se *Session) TakeDrain() *work.Drain {
	if se.drain.Load() == nil { // nearly always
		return nil
	}
	return se.drain.Swap(nil)
}

package dispatch

import (
	"context"

	"github.com/leasehold/leasehold/dispatch/rows"
	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/call"
	"github.com/leasehold/leasehold/registry"
)

// A Revocation names a lease that is taken away.
type Revocation struct {
	Scope  Scope
	Layer  string // path of the lead of the layer, for a layer's lease; "": the caller's own, or the root's
	Key    string
	Holder string // path of the one that loses it; "": all who share it
	Reason string
}

// Revoke takes a lease away from actors of the session's sub-tree. It does not for
// claims on tasks: Tasks.Cancel and Session.Cancel end those.
func (se *Session) Revoke(ctx context.Context, v Revocation) (registry.Revoked, error) {
	a := se.actor
	if !a.Role.Leads() {
		return registry.Revoked{}, forbidden("%s is a %s and leads nobody whose lease it could revoke; ask your lead, or wait for the lease with wait_secs", a.Path, a.Role)
	}
	leases := se.state.leasesOf(se.run)
	if v.Scope == LayerScope {
		err := rows.View(ctx, se.state.eng, func(tx engine.Tx) error {
			lead := a
			if v.Layer != "" {
				var err error
				if lead, err = find(tx, a, v.Layer); err != nil {
					return err
				}
			}
			if !lead.Role.Leads() {
				return notFound("layer of %s, which is a worker", lead.Path)
			}
			leases = se.state.core.Registry(layerScope(lead.Leads))
			return nil
		})
		if err != nil {
			return registry.Revoked{}, err
		}
	}
	return leases.Revoke(ctx, registry.Revocation{
		Key: v.Key, Holder: v.Holder, By: a.Path, Reason: v.Reason,
		May: func(tx engine.Tx, h registry.Holder) error {
			if holder, ok := getActor(tx, h.Actor); ok && !within(a, holder) {
				return forbidden("lease %q is held by %s, which is not in your sub-tree; ask a lead above both of you, or wait for it with wait_secs", v.Key, h.Path)
			}
			return nil
		},
	})
}

// Revoke takes a lease of a run away, as its operator.
func (s *State) Revoke(ctx context.Context, name string, v Revocation) (registry.Revoked, error) {
	var leases *registry.Registry
	err := rows.View(ctx, s.eng, func(tx engine.Tx) error {
		run, ok := getRun(tx, name)
		if !ok {
			return notFound("run %q", name)
		}
		leases = s.leasesOf(run)
		if v.Scope == LayerScope {
			layers, err := layersAt(tx, run, v.Layer)
			if err != nil {
				return err
			}
			leases = s.core.Registry(layers[0].scope())
		}
		return nil
	})
	if err != nil {
		return registry.Revoked{}, err
	}
	// An operator's session is in no record, so it cannot send the call again.
	return leases.Revoke(call.With(ctx, call.Call{}), registry.Revocation{Key: v.Key, Holder: v.Holder, By: operatorPath, Reason: v.Reason})
}

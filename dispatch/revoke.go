package dispatch

import (
	"context"

	"github.com/leasehold/leasehold/dispatch/rows"
	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/registry"
)

// A Revocation describes a lease to revoke.
type Revocation struct {
	Scope  Scope
	Layer  string // for a layer's lease, path of the layer's lead; "": the caller's own layer, or the root's
	Key    string
	Holder string // path of the holder that loses it; "": all holders of a shared lease
	Reason string
}

// Revoke revokes a lease of actors in the session's sub-tree. It does not end
// claims on tasks: Tasks.Cancel and Session.Cancel do that.
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
				return say(ErrNotFound, "%s is a worker and has no layer; name a lead", lead.Path)
			}
			leases = se.state.core.Registry(layerScope(lead.Leads))
			return nil
		})
		if err != nil {
			return registry.Revoked{}, err
		}
	}
	return leases.Revoke(ctx, registry.Revocation{
		Key: v.Key, Holder: PathOf(v.Holder), By: a.Path, Reason: v.Reason,
		May: func(tx engine.Tx, h registry.Holder) error {
			if holder, ok := getActor(tx, h.Actor); ok && !within(a, holder) {
				return forbidden("lease %q is held by %s, which is not in your sub-tree; ask a lead above both of you, or wait for it with wait_secs", v.Key, h.Path)
			}
			return nil
		},
	})
}

// Revoke revokes a lease of a run, on behalf of the operator.
func (s *State) Revoke(ctx context.Context, name string, v Revocation) (registry.Revoked, error) {
	var leases *registry.Registry
	err := rows.View(ctx, s.eng, func(tx engine.Tx) (err error) {
		leases, err = s.leasesAt(tx, name, v.Scope, v.Layer)
		return err
	})
	if err != nil {
		return registry.Revoked{}, err
	}
	return leases.Revoke(ctx, registry.Revocation{Key: v.Key, Holder: PathOf(v.Holder), By: operatorPath, Reason: v.Reason})
}

package dispatch

import (
	"context"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/registry"
)

// Transfer offers a lease of the session's actor to the actor at a path, which accepts
// it by acquiring the key; "" takes the offer back. It reports whether the other has
// it already, as it waited for it. A layer's lease is for those who take leases there.
func (se *Session) Transfer(ctx context.Context, id uuid.UUID, path string) (accepted bool, err error) {
	var to func(engine.Tx, registry.Lease) (registry.Holder, error)
	if path != "" {
		to = func(tx engine.Tx, l registry.Lease) (registry.Holder, error) {
			a, err := actorAt(tx, se.run, path)
			switch scope, _ := scopeOf(l.Scope); {
			case err != nil:
				return registry.Holder{}, err
			case a.Ended():
				return registry.Holder{}, a.endedError()
			case scope == LayerScope && l.Scope != layerScope(a.HomeLayer()):
				return registry.Holder{}, &registry.ArgumentError{Argument: "to", Problem: "must be an actor that takes leases in your layer, and " + a.Path + " does not; hold what both need across the run"}
			}
			return registry.Holder{Actor: a.ID, Path: a.Path}, nil
		}
	}
	return se.state.core.Transfer(ctx, se.Holder(), id, to)
}

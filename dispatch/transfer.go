package dispatch

import (
	"context"
	"errors"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/registry"
)

// Transfer offers a lease of the session's actor to the actor at path, which
// accepts by acquiring the key. An empty path withdraws the offer. accepted
// reports whether the other actor was already waiting and so has the lease now.
// A layer's lease can only be offered to an actor that takes leases in that
// layer.
func (se *Session) Transfer(ctx context.Context, id uuid.UUID, path string) (accepted bool, err error) {
	var to func(engine.Tx, registry.Lease) (registry.Holder, error)
	if path != "" {
		to = func(tx engine.Tx, l registry.Lease) (registry.Holder, error) {
			a, err := actorAt(tx, se.run, path)
			switch scope, _ := scopeOf(l.Scope); {
			case errors.Is(err, ErrNotFound):
				return registry.Holder{}, noActor(path)
			case err != nil:
				return registry.Holder{}, err
			case a.Ended():
				return registry.Holder{}, a.endedError()
			case scope == LayerScope && l.Scope != layerScope(a.homeLayer()):
				return registry.Holder{}, &registry.ArgumentError{Argument: "to", Problem: "must be an actor that takes leases in your layer, and " + a.Path + " does not; hold what both need across the run"}
			}
			return registry.Holder{Actor: a.ID, Path: a.Path}, nil
		}
	}
	return se.state.core.Transfer(ctx, se.Holder(), id, to)
}

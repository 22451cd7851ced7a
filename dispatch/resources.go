package dispatch

import (
	"context"
	"slices"
	"strings"

	"github.com/leasehold/leasehold/dispatch/rows"
	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/registry"
)

// LayerLeases lists the leases held in the layer whose lead is at path. The
// session can read its own layer and those that [Session.Store] gives it access
// to.
func (se *Session) LayerLeases(ctx context.Context, path string, q LeaseQuery) (p LeasePage, err error) {
	return p, rows.Snapshot(ctx, se.state.eng, func(tx engine.Tx) (err error) {
		l, err := se.layerAt(tx, path)
		if err == nil {
			p, err = q.page(tx, slices.Values([]shelf{{se.state.core.Registry(layerScope(l.ID)), LayerScope, l.Path}}))
		}
		return err
	})
}

// layerAt returns the layer whose lead is at path, if the session's actor may
// read it. Otherwise the error does not reveal whether that layer exists.
func (se *Session) layerAt(tx engine.Tx, path string) (l layerRecord, err error) {
	a := se.actor
	if a.Role == Operator {
		return l, forbidden("an operator is in no layer")
	}
	if l, _ = getLayer(tx, a.homeLayer()); l.Path == path {
		return l, nil
	}
	name := strings.TrimPrefix(path, a.Path+Separator)
	if a.Role == Root {
		name = path
	}
	if above, _ := getLayer(tx, a.Layer); a.Role == Sublead && above.Path == path {
		name = ParentLayer
	} else if a.Role != Root && name == path {
		return l, forbidden("the layer of %s is not one that %s reads", path, a.Path)
	}
	id, _, err := standing(tx, a, name)
	if err != nil {
		return l, forbidden("the layer of %s is not one that %s reads", path, a.Path)
	}
	l, _ = getLayer(tx, id)
	return l, nil
}

// ReadableLayers returns the paths of the leads whose layers the session can
// read: at most limit, its own first.
func (se *Session) ReadableLayers(ctx context.Context, limit int) (paths []string, err error) {
	a := se.actor
	return paths, rows.Snapshot(ctx, se.state.eng, func(tx engine.Tx) error {
		own, _ := getLayer(tx, a.homeLayer())
		paths = append(paths, own.Path)
		if a.Role == Sublead {
			above, _ := getLayer(tx, a.Layer)
			paths = append(paths, above.Path)
		}
		if !a.Role.Leads() {
			return nil
		}
		for m := range members(tx, a.Leads) {
			if len(paths) == limit || ctx.Err() != nil {
				break
			}
			if m.Role == Sublead && m.ReadDown {
				paths = append(paths, m.Path)
			}
		}
		return ctx.Err()
	})
}

// Subscriptions returns the URIs that the session's client is subscribed to, as
// recorded by [Session.Subscribe].
func (se *Session) Subscriptions(ctx context.Context) (uris []string, err error) {
	return uris, rows.View(ctx, se.state.eng, func(tx engine.Tx) error {
		record, _ := rows.Get[sessionRecord](tx, sessionKey(se.id))
		uris = record.Subscribed
		return nil
	})
}

// Subscribe records all URIs that the session's client is subscribed to, so
// that the subscriptions continue after a restart of the daemon.
func (se *Session) Subscribe(ctx context.Context, uris []string) error {
	return rows.Update(ctx, se.state.eng, func(tx engine.Tx) error {
		record, ok := rows.Get[sessionRecord](tx, sessionKey(se.id))
		if !ok {
			return registry.ErrSessionEnded
		}
		record.Subscribed = uris
		putSession(tx, record)
		return nil
	})
}

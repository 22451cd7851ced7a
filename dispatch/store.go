package dispatch

import (
	"context"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/dispatch/rows"
	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/layer"
)

// Names for layers. Any other name is that of a sub-lead.
const (
	SelfLayer   = "self"
	ParentLayer = "parent"
)

// Store returns the store of a layer as the session's actor may use it: its own
// layer; for a sub-lead also the layer above, where it is a peer; and for a
// lead, read only, the layer of a sub-lead that was spawned with read_down.
func (se *Session) Store(ctx context.Context, name string) (view *layer.View, err error) {
	a := se.actor
	if a.Role.Outside() {
		return nil, forbidden("an operator is in no layer; leasehold kv shows every layer's entries")
	}
	if name == SelfLayer {
		m := layer.Member{ID: a.ID, Name: a.Name, Path: a.Path, Lead: a.Role.Leads()}
		return se.state.layer(a.homeLayer(), se.run.Caps).As(m), nil
	}
	return view, rows.View(ctx, se.state.eng, func(tx engine.Tx) error {
		id, member, err := standing(tx, a, name)
		if err != nil {
			return err
		}
		view = se.state.layer(id, se.run.Caps).As(member)
		return nil
	})
}

// standing resolves the name of another layer to its id and to what the actor
// is in that layer.
func standing(tx engine.Tx, a Actor, name string) (id uuid.UUID, m layer.Member, err error) {
	m = layer.Member{ID: a.ID, Name: a.Name, Path: a.Path}
	switch {
	case name == ParentLayer && a.Role == Sublead:
		return a.Layer, m, nil
	case name == ParentLayer:
		return uuid.Nil, m, forbidden("only a sub-lead has a layer above its own; yours is layer \"self\"")
	case !a.Role.Leads():
		return uuid.Nil, m, forbidden("%s leads no layer and reads only its own, layer \"self\"", a.Path)
	}
	sub, ok := memberNamed(tx, a.Leads, name)
	if !ok || sub.Role != Sublead {
		return uuid.Nil, m, say(ErrNotFound, "no sub-lead %q in the layer of %s; layer is \"self\", \"parent\" or the name of a sub-lead; call actor_list to see who is there", name, a.Path)
	}
	if !sub.ReadDown {
		return uuid.Nil, m, forbidden("the layer of %s is its own: it was not spawned with read_down", sub.Path)
	}
	m.ReadOnly = true
	return sub.Leads, m, nil
}

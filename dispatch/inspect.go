package dispatch

import (
	"context"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/dispatch/rows"
	"github.com/leasehold/leasehold/dispatch/work"
	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/layer"
	"github.com/leasehold/leasehold/registry"
)

// An ActorInfo is an actor and what it has at the moment.
type ActorInfo struct {
	Actor
	Connected bool // a session of it is connected to this process
	Sessions  int
	Leases    int        // held, claims on tasks among them
	Waiting   int        // for how many leases
	Holds     []Contend  // the first of the leases it holds
	WaitsFor  []Contend  // and of those it waits for
	Work      *work.Work // nil: it was not launched
}

// A Contend is a lease that an actor holds or waits for.
type Contend struct {
	Scope  Scope
	Key    string
	Holder string // path of who holds it
}

// maxContends bounds how many leases are told of an actor, of each kind.
const maxContends = 8

// A RunInfo is a run and its actors, each lead before its layer.
type RunInfo struct {
	Run
	Dispatched *work.Dispatched // nil: its actors are not launched
	Actors     []ActorInfo
}

// Actors lists whom the session's actor works with: a lead its whole sub-tree,
// a worker the layer it is in.
func (se *Session) Actors(ctx context.Context) (list []ActorInfo, err error) {
	a := se.actor
	if a.Role == Operator {
		return nil, forbidden("an operator is in no tree; leasehold tree shows every run")
	}
	return list, rows.View(ctx, se.state.eng, func(tx engine.Tx) error {
		if a.Role.Leads() {
			list = se.state.tree(tx, a, nil)
			return nil
		}
		l, _ := getLayer(tx, a.Layer)
		if lead, ok := getActor(tx, l.Lead); ok {
			list = append(list, se.state.info(tx, lead))
		}
		for m := range members(tx, a.Layer) {
			list = append(list, se.state.info(tx, m))
		}
		return nil
	})
}

// Runs describes the runs of that name, or with "" all of them, by name.
func (s *State) Runs(ctx context.Context, name string) (list []RunInfo, err error) {
	return list, rows.View(ctx, s.eng, func(tx engine.Tx) error {
		for row := range tx.Scan(runPrefix) {
			run, ok := rows.Decode[Run](tx, row)
			if !ok || name != "" && run.Name != name {
				continue
			}
			root, _ := getActor(tx, run.Root)
			info := RunInfo{Run: run, Actors: s.tree(tx, root, nil)}
			if d, ok := work.RunOf(tx, run.Name); ok {
				info.Dispatched = &d
			}
			list = append(list, info)
		}
		if name != "" && len(list) == 0 {
			return notFound("run %q", name)
		}
		return nil
	})
}

// RunLeases lists the leases of a run: those that span it, then each layer's, by
// the layer's path. A layer's path narrows it to that layer.
func (s *State) RunLeases(ctx context.Context, name, path string, q LeaseQuery) (p LeasePage, err error) {
	return p, s.eng.View(ctx, func(tx engine.Tx) error {
		run, ok := getRun(tx, name)
		if !ok {
			return notFound("run %q", name)
		}
		var shelves []shelf
		if slices.Contains(q.Scopes, RunScope) && path == "" {
			shelves = append(shelves, shelf{s.leasesOf(run), RunScope, ""})
		}
		if slices.Contains(q.Scopes, LayerScope) {
			layers, err := layersAt(tx, run, path)
			if err != nil {
				return err
			}
			for _, l := range layers {
				shelves = append(shelves, shelf{s.core.Registry(l.scope()), LayerScope, l.Path})
			}
		}
		p, err = q.page(tx, shelves)
		return err
	})
}

// RunStore is the store of the layer at a path of a run, as its operator sees
// it: everything, and nothing to write.
func (s *State) RunStore(ctx context.Context, name, path string) (view *layer.View, err error) {
	return view, rows.View(ctx, s.eng, func(tx engine.Tx) error {
		run, ok := getRun(tx, name)
		if !ok {
			return notFound("run %q", name)
		}
		layers, err := layersAt(tx, run, path)
		if err != nil {
			return err
		}
		operator := layer.Member{ID: uuid.Max, Name: operatorPath, Path: operatorPath, ReadOnly: true}
		view = s.layer(layers[0].ID, run.Caps).As(operator)
		return nil
	})
}

// layersAt gives the layer of the lead at path, or with "" all layers of a
// run, by path, the root's first.
func layersAt(tx engine.Tx, run Run, path string) ([]layerRecord, error) {
	if path != "" {
		lead, err := actorAt(tx, run, path)
		if err != nil {
			return nil, err
		}
		if !lead.Role.Leads() {
			return nil, notFound("layer of %s, which is a worker", path)
		}
		l, _ := getLayer(tx, lead.Leads)
		return []layerRecord{l}, nil
	}
	root, _ := getLayer(tx, run.Layer)
	return sublayers(tx, root, nil), nil
}

func sublayers(tx engine.Tx, l layerRecord, list []layerRecord) []layerRecord {
	list = append(list, l)
	for m := range members(tx, l.ID) {
		if sub, ok := getLayer(tx, m.Leads); ok && m.Role.Leads() {
			list = sublayers(tx, sub, list)
		}
	}
	return list
}

// tree appends an actor and all below it, living or ended, to list.
func (s *State) tree(tx engine.Tx, a Actor, list []ActorInfo) []ActorInfo {
	list = append(list, s.info(tx, a))
	if a.Role.Leads() {
		for m := range members(tx, a.Leads) {
			list = s.tree(tx, m, list)
		}
	}
	return list
}

func (s *State) info(tx engine.Tx, a Actor) ActorInfo {
	a.TokenHash = nil
	info := ActorInfo{Actor: a}
	if w, ok := work.Get(tx, a.ID); ok {
		info.Work = &w
	}
	for record := range sessionsOf(tx, a.ID) {
		info.Sessions++
		id := record.ID
		info.Connected = info.Connected || s.connected(id)
		held, awaited := s.core.Stands(tx, id)
		info.Leases += len(held)
		info.Waiting += len(awaited)
		info.Holds = appendContends(info.Holds, held)
		info.WaitsFor = appendContends(info.WaitsFor, awaited)
	}
	return info
}

func appendContends(list []Contend, leases []registry.Lease) []Contend {
	for _, l := range leases {
		kind, _, _ := strings.Cut(l.Scope, ":")
		scope := Scope(kind)
		if len(list) < maxContends && (scope == RunScope || scope == LayerScope) {
			list = append(list, Contend{scope, l.Key, l.Holder.Path})
		}
	}
	return list
}

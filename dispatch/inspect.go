package dispatch

import (
	"context"
	"slices"

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
	Origin    Origin     // of its first session that has one
}

// A Contend is a lease that an actor holds or waits for, or a claim that it has
// on a task.
type Contend struct {
	Scope  Scope
	Key    string // of a claim: the task's id
	Queue  string // of a claim
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
	return list, rows.Snapshot(ctx, se.state.eng, func(tx engine.Tx) error {
		if a.Role.Leads() {
			list = se.state.subtree(ctx, tx, a, a, nil)
			return context.Cause(ctx)
		}
		l, _ := getLayer(tx, a.Layer)
		if lead, ok := getActor(tx, l.Lead); ok {
			list = append(list, se.state.info(tx, lead, a))
		}
		for m := range members(tx, a.Layer) {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			list = append(list, se.state.info(tx, m, a))
		}
		return nil
	})
}

// Runs describes the runs of that name, or with "" all of them, by name.
func (s *State) Runs(ctx context.Context, name string) (list []RunInfo, err error) {
	return list, rows.Snapshot(ctx, s.eng, func(tx engine.Tx) error {
		for row := range tx.Scan(runPrefix) {
			run, ok := rows.Decode[Run](tx, row)
			if !ok || name != "" && run.Name != name {
				continue
			}
			root, _ := getActor(tx, run.Root)
			info := RunInfo{Run: run, Actors: s.tree(ctx, tx, root, nil)}
			if d, ok := work.RunOf(tx, run.Name); ok {
				info.Dispatched = &d
			}
			list = append(list, info)
		}
		if name != "" && len(list) == 0 {
			return notFound("run %q", name)
		}
		return context.Cause(ctx)
	})
}

// RunLeases lists the leases of a run: those that span it, then each layer's, by
// the layer's path. A layer's path narrows it to that layer.
func (s *State) RunLeases(ctx context.Context, name, path string, q LeaseQuery) (p LeasePage, err error) {
	return p, rows.Snapshot(ctx, s.eng, func(tx engine.Tx) error {
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

// CheckToken says what a token of a lease of a run is worth now, or of a lease of
// the layer of the lead at a path of it.
func (s *State) CheckToken(ctx context.Context, name, path string, scope Scope, key string, token uint64) (standing registry.TokenStanding, err error) {
	return standing, rows.View(ctx, s.eng, func(tx engine.Tx) error {
		run, ok := getRun(tx, name)
		if !ok {
			return notFound("run %q", name)
		}
		leases := s.leasesOf(run)
		if scope == LayerScope {
			layers, err := layersAt(tx, run, path)
			if err != nil {
				return err
			}
			leases = s.core.Registry(layers[0].scope())
		}
		standing = leases.Requirement(key, token).Standing(tx)
		return nil
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

// tree appends an actor and all below it, living or ended, to list, as the
// operator sees them. It stops where ctx ends.
func (s *State) tree(ctx context.Context, tx engine.Tx, a Actor, list []ActorInfo) []ActorInfo {
	return s.subtree(ctx, tx, a, operatorActor, list)
}

func (s *State) subtree(ctx context.Context, tx engine.Tx, a, viewer Actor, list []ActorInfo) []ActorInfo {
	list = append(list, s.info(tx, a, viewer))
	if a.Role.Leads() {
		for m := range members(tx, a.Leads) {
			if ctx.Err() != nil {
				return list
			}
			list = s.subtree(ctx, tx, m, viewer, list)
		}
	}
	return list
}

// operatorActor sees everything.
var operatorActor = Actor{Role: Operator, Path: operatorPath}

// maxStands bounds how many leases of a session are counted.
const maxStands = 10_000

// info describes an actor as viewer sees it: what it holds and waits for in a
// layer is for the members of that layer.
func (s *State) info(tx engine.Tx, a, viewer Actor) ActorInfo {
	a.TokenHash = nil
	info := ActorInfo{Actor: a}
	sees := func(l registry.Lease) bool {
		scope, ok := scopeOf(l.Scope)
		return viewer.Role == Operator || !ok || scope == RunScope || l.Scope == layerScope(viewer.HomeLayer())
	}
	if w, ok := work.Get(tx, a.ID); ok {
		info.Work = &w
		w.Held, w.Lost = visible(w.Held, a, viewer), visible(w.Lost, a, viewer)
	}
	info.Held = visible(a.Held, a, viewer)
	for record := range sessionsOf(tx, a.ID) {
		info.Sessions++
		info.Connected = info.Connected || s.connected(record.ID)
		if info.Origin == (Origin{}) {
			info.Origin = record.Origin
		}
		held, awaited := s.core.Stands(tx, record.ID, maxStands)
		for _, l := range held {
			if sees(l) {
				info.Leases++
				info.Holds = s.appendContend(tx, info.Holds, l)
			}
		}
		for _, l := range awaited {
			if sees(l) {
				info.Waiting++
				info.WaitsFor = s.appendContend(tx, info.WaitsFor, l)
			}
		}
	}
	return info
}

// visible are those of the leases of an actor that has ended which viewer may
// know of: a layer's are named for its members alone.
func visible(leases []work.LeaseName, a, viewer Actor) []work.LeaseName {
	if viewer.Role == Operator || a.HomeLayer() == viewer.HomeLayer() {
		return leases
	}
	var list []work.LeaseName
	for _, l := range leases {
		if l.Scope == string(RunScope) {
			list = append(list, l)
		}
	}
	return list
}

func (s *State) appendContend(tx engine.Tx, list []Contend, l registry.Lease) []Contend {
	if len(list) == maxContends {
		return list
	}
	c := Contend{Key: l.Key, Holder: l.Holder.Path}
	var ok bool
	if c.Scope, ok = scopeOf(l.Scope); !ok {
		c.Queue = s.queue.QueueOf(tx, l)
	}
	return append(list, c)
}

// OriginOf is where a party to leases works: the zero Origin if that is not
// known, or its session has ended.
func (s *State) OriginOf(ctx context.Context, h registry.Holder) (o Origin, err error) {
	return o, rows.View(ctx, s.eng, func(tx engine.Tx) error {
		o = originOf(tx, h)
		return nil
	})
}

// OriginOf is where another party to leases works.
func (se *Session) OriginOf(ctx context.Context, h registry.Holder) (Origin, error) {
	return se.state.OriginOf(ctx, h)
}

func originOf(tx engine.Tx, h registry.Holder) Origin {
	record, _ := rows.Get[sessionRecord](tx, sessionKey(h.Session))
	return record.Origin
}

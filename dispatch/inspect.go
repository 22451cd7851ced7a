package dispatch

import (
	"cmp"
	"context"
	"iter"
	"math"
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

// Actors lists whom the session's actor works with: a lead its whole sub-tree, a
// worker the layer it is in. It lists those after the one at a path, at most limit;
// next is the path to go on after, if there are more.
func (se *Session) Actors(ctx context.Context, after string, limit int) (list []ActorInfo, next string, err error) {
	a := se.actor
	if a.Role.Outside() {
		return nil, "", forbidden("an operator is in no tree; leasehold tree shows every run")
	}
	return list, next, rows.Snapshot(ctx, se.state.eng, func(tx engine.Tx) error {
		p := &actorPage{skip: after, limit: limit}
		for other := range se.others(tx) {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if !p.take(other.Path) {
				break
			}
			if p.shown {
				list = append(list, se.state.info(tx, other, a))
			}
		}
		if p.skip != "" {
			return &registry.ArgumentError{Argument: "after", Problem: afterGone}
		}
		next = p.next
		return nil
	})
}

const afterGone = "must be next of the answer before; that actor is gone: list again from the start"

// others are the actors that [Session.Actors] lists.
func (se *Session) others(tx engine.Tx) iter.Seq[Actor] {
	if se.actor.Role.Leads() {
		return subtree(tx, se.actor)
	}
	return func(yield func(Actor) bool) {
		l, _ := getLayer(tx, se.actor.Layer)
		if lead, ok := getActor(tx, l.Lead); ok && !yield(lead) {
			return
		}
		for m := range members(tx, se.actor.Layer) {
			if !yield(m) {
				return
			}
		}
	}
}

// An actorPage is how far a page of actors has come.
type actorPage struct {
	skip  string // still looking for the actor with this path
	limit int
	last  string // the actor that was shown last
	shown bool   // the actor that was taken last belongs to the page
	next  string // there are more, after this one
}

// take takes the next actor. It reports false if the page is full.
func (p *actorPage) take(path string) bool {
	switch {
	case p.skip != "":
		if p.shown = false; p.skip == path {
			p.skip = ""
		}
	case p.limit == 0:
		p.next = p.last
		return false
	default:
		p.shown, p.last = true, path
		p.limit--
	}
	return true
}

// Runs describes the runs of that name, or with "" all of them, by name.
func (s *State) Runs(ctx context.Context, name string) ([]RunInfo, error) {
	list, _, err := s.RunsAfter(ctx, name, "", math.MaxInt)
	return list, err
}

// RunsAfter is a page of [State.Runs] with at most limit actors, which may end
// within a run. If there are more, next is the after with which the list goes on.
func (s *State) RunsAfter(ctx context.Context, name, after string, limit int) (list []RunInfo, next string, err error) {
	return list, next, rows.Snapshot(ctx, s.eng, func(tx engine.Tx) error {
		seen, from, actor := false, "", ""
		if after != "" {
			if from, actor, _ = strings.Cut(after, "/"); actor == "" {
				return &registry.ArgumentError{Argument: "after", Problem: "must be next of the reply before"}
			}
		}
		for row := range tx.ScanFrom(runPrefix, runKey(cmp.Or(name, from))) {
			run, ok := rows.Decode[Run](tx, row)
			if !ok {
				continue
			}
			if name != "" && run.Name != name {
				break
			}
			seen = true
			p := &actorPage{limit: limit}
			if run.Name == from {
				p.skip = actor
			}
			if limit == 0 {
				next = endOf(list)
				return nil
			}
			info := RunInfo{Run: run}
			root, _ := getActor(tx, run.Root)
			for a := range subtree(tx, root) {
				if ctx.Err() != nil {
					return context.Cause(ctx)
				}
				if !p.take(a.Path) {
					break
				}
				if p.shown {
					info.Actors = append(info.Actors, s.info(tx, a, operatorActor))
				}
			}
			if d, ok := work.RunOf(tx, run.Name); ok {
				info.Dispatched = &d
			}
			if p.skip != "" {
				return &registry.ArgumentError{Argument: "after", Problem: afterGone}
			}
			// Of a run whose actors have all been listed, nothing is left to say.
			if len(info.Actors) > 0 || run.Name != from {
				list = append(list, info)
			}
			if limit = p.limit; p.next != "" {
				next = endOf(list)
				return nil
			}
		}
		if name != "" && !seen {
			return notFound("run %q", name)
		}
		return context.Cause(ctx)
	})
}

// endOf is the after that goes on behind a list of runs.
func endOf(list []RunInfo) string {
	if len(list) == 0 {
		return ""
	}
	run := list[len(list)-1]
	return run.Name + "/" + run.Actors[len(run.Actors)-1].Path
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

// subtree is an actor and all below it, living or ended, each lead before its layer.
func subtree(tx engine.Tx, a Actor) iter.Seq[Actor] {
	return func(yield func(Actor) bool) { walk(tx, a, yield) }
}

func walk(tx engine.Tx, a Actor, yield func(Actor) bool) bool {
	if !yield(a) {
		return false
	}
	if a.Role.Leads() {
		for m := range members(tx, a.Leads) {
			if !walk(tx, m, yield) {
				return false
			}
		}
	}
	return true
}

// tree describes an actor and all below it as the operator sees them. It stops where
// ctx ends.
func (s *State) tree(ctx context.Context, tx engine.Tx, a Actor) (list []ActorInfo) {
	for a := range subtree(tx, a) {
		if ctx.Err() != nil {
			break
		}
		list = append(list, s.info(tx, a, operatorActor))
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

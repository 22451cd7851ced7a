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
	"github.com/leasehold/leasehold/queue"
	"github.com/leasehold/leasehold/registry"
)

// An ActorInfo is an actor and its current leases, waits and work.
type ActorInfo struct {
	Actor
	Connected bool // one of its sessions is connected to this daemon
	Sessions  int
	Leases    int        // leases held, including claims on tasks
	Waiting   int        // leases it waits for
	Holds     []Contend  // the leases it holds, at most maxContends
	WaitsFor  []Contend  // the leases it waits for, at most maxContends
	Work      *work.Work // nil: it was not launched
	Origin    Origin     // of its first session that has one
}

// A Contend is a lease that an actor holds or waits for, or a task that it has
// claimed.
type Contend struct {
	Scope  Scope
	Key    string // of a claim: the task's id
	Queue  string // of a claim
	Holder string // path of the holder

	Reserved bool // nobody holds it; it is kept for Holder, the first in line
}

// maxContends is the greatest number of leases in Holds, and in WaitsFor.
const maxContends = 8

// A RunInfo is a run and its actors, each lead before its layer.
type RunInfo struct {
	Run
	Dispatched *work.Dispatched // nil: its actors are not launched
	Actors     []ActorInfo
	Ended      int // actors that a query for the living leaves out; in the first part of the run only
	Count      int // actors, living and ended; of [State.RunsAlone] only

	// Interrupted says that a dispatched run has not ended, but its dispatcher and all
	// that it launched are gone. Nothing happens in it until it is resumed.
	Interrupted bool
}

// Actors lists the actors that the session's actor works with: for a lead its
// whole sub-tree, for a worker its layer. The list has at most limit actors and
// begins after the actor at path after. next is the path to continue after, or
// "" if there are no more.
func (se *Session) Actors(ctx context.Context, after string, limit int) (list []ActorInfo, next string, err error) {
	a := se.actor
	if a.Role.Outside() {
		return nil, "", forbidden("an operator is in no tree; leasehold tree shows every run")
	}
	return list, next, rows.Snapshot(ctx, se.state.eng, func(tx engine.Tx) error {
		top, depth := a, math.MaxInt
		if !a.Role.Leads() {
			l, _ := getLayer(tx, a.Layer)
			top, _ = getActor(tx, l.Lead)
			depth = 1
		}
		past, ok := namesBelow(tx, top, after)
		if !ok || len(past) > depth {
			return errAfterGone
		}
		for other := range subtree(tx, top, past, depth) {
			switch {
			case ctx.Err() != nil:
				return context.Cause(ctx)
			case len(list) == limit:
				next = list[limit-1].Path
				return nil
			}
			list = append(list, se.state.info(tx, other, a))
		}
		return nil
	})
}

var errAfterGone = &registry.ArgumentError{Argument: "after", Problem: "must be next of the previous reply; that actor is gone: list again from the start"}

// Runs returns the run with that name, or all runs by name if name is "".
func (s *State) Runs(ctx context.Context, name string) ([]RunInfo, error) {
	p, err := s.RunsAfter(ctx, RunQuery{Name: name, Limit: math.MaxInt})
	return p.Runs, err
}

// A RunQuery selects runs.
type RunQuery struct {
	Name   string // "": all, by name
	After  string // Next of the page before, or ""
	Limit  int    // of actors, or for [State.RunsAlone] of runs
	Living bool   // leaves out what has ended
}

// A RunPage is a part of the runs that a query selects.
type RunPage struct {
	Runs  []RunInfo
	Next  string // After of the next page, or "" if there are no more
	Ended int    // runs that Living left out of all pages; in the first page only
}

// RunsAfter returns a page of runs and their actors. A page may end within a run.
// With Living, a run that has not ended is listed with its root and its living
// actors, and a run that is named and has ended with all.
func (s *State) RunsAfter(ctx context.Context, q RunQuery) (p RunPage, err error) {
	return p, rows.Snapshot(ctx, s.eng, func(tx engine.Tx) error {
		seen, from, actor := false, "", ""
		if q.After != "" {
			if from, actor, _ = strings.Cut(q.After, "/"); actor == "" {
				return &registry.ArgumentError{Argument: "after", Problem: "must be next of the previous reply"}
			}
		}
		p.Ended = q.endedRuns(tx)
		left := q.Limit
		for row := range tx.ScanFrom(runPrefix, runKey(cmp.Or(q.Name, from))) {
			run, ok := rows.Decode[Run](tx, row)
			if ok && q.Name != "" && run.Name != q.Name {
				break
			}
			if !ok || q.leavesOut(run) {
				continue
			}
			seen = true
			if left == 0 {
				p.Next = endOf(p.Runs)
				return nil
			}
			info := RunInfo{Run: run}
			root, _ := getActor(tx, run.Root)
			var past []string
			if run.Name == from {
				if past, ok = namesBelow(tx, root, actor); !ok {
					return errAfterGone
				}
			}
			more := false
			for a := range subtree(tx, root, past, math.MaxInt) {
				if ctx.Err() != nil {
					return context.Cause(ctx)
				}
				if q.Living && run.EndedAt.IsZero() && a.Ended() && a.Role != Root {
					if run.Name != from {
						info.Ended++
					}
					continue
				}
				if more = left == 0; more && q.Living && run.Name != from {
					continue // only those that have ended are counted now
				}
				if more {
					break
				}
				info.Actors = append(info.Actors, s.info(tx, a, operatorActor))
				left--
			}
			s.addWork(tx, &info)
			// Skip a run whose actors were all on the page before.
			if len(info.Actors) > 0 || run.Name != from {
				p.Runs = append(p.Runs, info)
			}
			if more {
				p.Next = endOf(p.Runs)
				return nil
			}
		}
		if q.Name != "" && !seen {
			return notFound("run %q", q.Name)
		}
		return context.Cause(ctx)
	})
}

// leavesOut reports whether a query does not list a run because it has ended.
func (q *RunQuery) leavesOut(run Run) bool {
	return q.Living && q.Name == "" && !run.EndedAt.IsZero()
}

// endedRuns returns how many runs a query leaves out, for its first page.
func (q *RunQuery) endedRuns(tx engine.Tx) (n int) {
	if q.After != "" || q.Name != "" || !q.Living {
		return 0
	}
	for row := range tx.Scan(runPrefix) {
		if run, ok := rows.Decode[Run](tx, row); ok && q.leavesOut(run) {
			n++
		}
	}
	return n
}

// RunsAlone returns a page of runs without their actors, which are only counted.
// After is the name of a run.
func (s *State) RunsAlone(ctx context.Context, q RunQuery) (p RunPage, err error) {
	return p, rows.Snapshot(ctx, s.eng, func(tx engine.Tx) error {
		p.Ended = q.endedRuns(tx)
		from := runKey(q.Name)
		if q.After != "" {
			from = runKey(q.After) + "\x00"
		}
		for row := range tx.ScanFrom(runPrefix, from) {
			run, ok := rows.Decode[Run](tx, row)
			switch {
			case !ok:
				continue
			case q.Name != "" && run.Name != q.Name:
				return notFound("run %q", q.Name)
			case q.leavesOut(run):
				continue
			case len(p.Runs) == q.Limit:
				p.Next = p.Runs[q.Limit-1].Name
				return nil
			}
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			info := RunInfo{Run: run, Count: 1 + countBelow(tx, run.Layer)}
			s.addWork(tx, &info)
			if p.Runs = append(p.Runs, info); q.Name != "" {
				return nil
			}
		}
		if q.Name != "" {
			return notFound("run %q", q.Name)
		}
		return context.Cause(ctx)
	})
}

// addWork adds what is known of a run because it was dispatched.
func (s *State) addWork(tx engine.Tx, info *RunInfo) {
	d, dispatched := work.RunOf(tx, info.Name)
	if !dispatched {
		return
	}
	info.Dispatched = &d
	info.Interrupted = info.EndedAt.IsZero() && d.Unfinished == 0 && !s.launchers.Attached(info.ID) && !s.launchers.Returning(info.ID)
}

// countBelow counts the actors of a layer, without its lead, and all below them.
func countBelow(tx engine.Tx, layer uuid.UUID) (n int) {
	for row := range tx.Scan(memberKeys(layer)) {
		n++
		if _, leads, ok := memberIDs(tx, row); ok && leads != uuid.Nil {
			n += countBelow(tx, leads)
		}
	}
	return n
}

// endOf returns the value of after that continues behind list.
func endOf(list []RunInfo) string {
	if len(list) == 0 {
		return ""
	}
	run := list[len(list)-1]
	return run.Name + "/" + run.Actors[len(run.Actors)-1].Path
}

// RunLeases lists the leases of a run: those of the run scope first, then those
// of each layer by the layer's path. If path is not "", only the leases of that
// layer are listed.
func (s *State) RunLeases(ctx context.Context, name, path string, q LeaseQuery) (p LeasePage, err error) {
	return p, rows.Snapshot(ctx, s.eng, func(tx engine.Tx) error {
		run, of, err := layerAt(tx, name, path)
		if err != nil {
			return err
		}
		shelves := func(yield func(shelf) bool) {
			if slices.Contains(q.Scopes, RunScope) && path == "" && !yield(shelf{s.leasesOf(run), RunScope, ""}) {
				return
			}
			if !slices.Contains(q.Scopes, LayerScope) {
				return
			}
			for l := range sublayers(tx, of, path == "") {
				if !yield(shelf{s.core.Registry(l.scope()), LayerScope, l.Path}) {
					return
				}
			}
		}
		p, err = q.page(tx, shelves)
		return err
	})
}

// CheckToken reports whether a token is current for a lease of the run or, with
// LayerScope, of the layer whose lead is at path.
func (s *State) CheckToken(ctx context.Context, name, path string, scope Scope, key string, token uint64) (standing registry.TokenStanding, err error) {
	return standing, rows.View(ctx, s.eng, func(tx engine.Tx) error {
		leases, err := s.leasesAt(tx, name, scope, path)
		if err == nil {
			standing = leases.Requirement(key, token).Standing(tx)
		}
		return err
	})
}

// leasesAt returns the leases of a run or, with LayerScope, of the layer whose lead is at path.
func (s *State) leasesAt(tx engine.Tx, name string, scope Scope, path string) (*registry.Registry, error) {
	if scope != LayerScope {
		path = ""
	}
	run, l, err := layerAt(tx, name, path)
	if scope == LayerScope {
		return s.core.Registry(l.scope()), err
	}
	return s.leasesOf(run), err
}

// RunStore returns the store of the layer at path as the operator sees it: the
// operator can read everything and write nothing.
func (s *State) RunStore(ctx context.Context, name, path string) (view *layer.View, err error) {
	return view, rows.View(ctx, s.eng, func(tx engine.Tx) error {
		run, l, err := layerAt(tx, name, path)
		if err != nil {
			return err
		}
		operator := layer.Member{ID: uuid.Max, Name: operatorPath, Path: operatorPath, ReadOnly: true}
		view = s.layer(l.ID, run.Caps).As(operator)
		return nil
	})
}

// layerAt returns a run and the layer of its lead at path, or of its root if path is "".
func layerAt(tx engine.Tx, name, path string) (run Run, l layerRecord, err error) {
	run, ok := getRun(tx, name)
	if !ok {
		return run, l, notFound("run %q", name)
	}
	id := run.Layer
	if path != "" {
		lead, err := actorAt(tx, run, path)
		if err != nil {
			return run, l, err
		}
		if !lead.Role.Leads() {
			return run, l, say(ErrNotFound, "%s is a worker and has no layer; name a lead", path)
		}
		id = lead.Leads
	}
	l, _ = getLayer(tx, id)
	return run, l, nil
}

// sublayers yields a layer and, with all, those below it, each before its own.
// It reads no more actors than are needed for the layers that are asked for.
func sublayers(tx engine.Tx, l layerRecord, all bool) iter.Seq[layerRecord] {
	return func(yield func(layerRecord) bool) { walkLayers(tx, l, all, yield) }
}

func walkLayers(tx engine.Tx, l layerRecord, all bool, yield func(layerRecord) bool) bool {
	if !yield(l) {
		return false
	}
	if !all {
		return true
	}
	for row := range tx.Scan(memberKeys(l.ID)) {
		_, leads, ok := memberIDs(tx, row)
		if !ok || leads == uuid.Nil {
			continue // a worker: in a run of many, reading each would be most of the work
		}
		if sub, ok := getLayer(tx, leads); ok && !walkLayers(tx, sub, all, yield) {
			return false
		}
	}
	return true
}

// subtree yields an actor and depth levels of those below it, living or ended,
// each lead before its layer. It begins behind the actor with the names past
// below a; nil is the start.
func subtree(tx engine.Tx, a Actor, past []string, depth int) iter.Seq[Actor] {
	return func(yield func(Actor) bool) { walk(tx, a, past, depth, yield) }
}

func walk(tx engine.Tx, a Actor, past []string, depth int, yield func(Actor) bool) bool {
	if past == nil && !yield(a) {
		return false
	}
	if depth == 0 || !a.Role.Leads() {
		return true
	}
	from := ""
	if len(past) > 0 {
		from, past = past[0], past[1:]
	}
	for m := range membersFrom(tx, a.Leads, from) {
		var its []string
		if m.Name == from {
			its = past
		}
		if !walk(tx, m, its, depth-1, yield) {
			return false
		}
	}
	return true
}

// namesBelow returns the names from an actor down to the one at a path, which is
// at or below it: nil if path is "". It reports false if there is no such actor.
func namesBelow(tx engine.Tx, a Actor, path string) (names []string, ok bool) {
	switch {
	case path == "":
		return nil, true
	case path == a.Path:
		return []string{}, true
	case a.Path != RootPath:
		if path, ok = strings.CutPrefix(path, a.Path+Separator); !ok {
			return nil, false
		}
	}
	names = strings.Split(path, Separator)
	for _, name := range names {
		if a, ok = memberNamed(tx, a.Leads, name); !ok {
			return nil, false
		}
	}
	return names, true
}

// tree describes an actor and all below it as the operator sees them. It stops
// early when ctx ends.
func (s *State) tree(ctx context.Context, tx engine.Tx, a Actor) (list []ActorInfo) {
	for a := range subtree(tx, a, nil, math.MaxInt) {
		if ctx.Err() != nil {
			break
		}
		list = append(list, s.info(tx, a, operatorActor))
	}
	return list
}

// operatorActor is a viewer that sees everything.
var operatorActor = Actor{Role: Operator, Path: operatorPath}

// info describes an actor as viewer sees it. Leases of a layer are included
// only if viewer belongs to that layer.
func (s *State) info(tx engine.Tx, a, viewer Actor) ActorInfo {
	a.TokenHash = nil
	info := ActorInfo{Actor: a}
	layer, sees := layerScope(a.homeLayer()), viewer.Role == Operator || a.homeLayer() == viewer.homeLayer()
	var scopes []string // of what it holds and viewer may see
	held := func(scope string, n int) {
		if info.Leases += n; n > 0 {
			scopes = append(scopes, scope)
		}
	}
	inRun, inLayer, claims := s.core.Held(tx, a.ID)
	if sees {
		held(layer, inLayer)
	}
	held(queue.Scope, claims)
	held(string(RunScope)+":", inRun)
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
		for _, scope := range scopes {
			for _, l := range s.core.HoldsIn(tx, record.ID, scope, maxContends-len(info.Holds)) {
				info.Holds = append(info.Holds, s.contend(tx, l))
			}
		}
		for l, reserved := range s.core.Awaits(tx, record.ID) {
			if sees || l.Scope != layer {
				info.Waiting++
				if len(info.WaitsFor) < maxContends {
					c := s.contend(tx, l)
					c.Reserved = reserved
					info.WaitsFor = append(info.WaitsFor, c)
				}
			}
		}
	}
	return info
}

// visible returns those leases of an ended actor that viewer may see. Leases of
// a layer are visible only to its members.
func visible(leases []work.LeaseName, a, viewer Actor) []work.LeaseName {
	if viewer.Role == Operator || a.homeLayer() == viewer.homeLayer() {
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

func (s *State) contend(tx engine.Tx, l registry.Lease) Contend {
	c := Contend{Key: l.Key, Holder: l.Holder.Path}
	var ok bool
	if c.Scope, ok = scopeOf(l.Scope); !ok {
		c.Queue = s.queue.QueueOf(tx, l)
	}
	return c
}

// OriginOf returns the origin of a holder of leases, or the zero Origin if it
// is unknown or the holder's session has ended.
func (se *Session) OriginOf(ctx context.Context, h registry.Holder) (o Origin, err error) {
	return o, rows.View(ctx, se.state.eng, func(tx engine.Tx) error {
		o = originOf(tx, h)
		return nil
	})
}

func originOf(tx engine.Tx, h registry.Holder) Origin {
	record, _ := rows.Get[sessionRecord](tx, sessionKey(h.Session))
	return record.Origin
}

package registry

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/event"
	"github.com/leasehold/leasehold/engine/record"
)

// A Link is one party of a cycle and what it waits for. The party of the next link
// has that; for the last link, the party of the first has it.
type Link struct {
	Waiter Holder
	Scope  string // of the lease that it waits for; "": it waits for an actor
	Key    string
	Held   string // what the next party has: Key, or a key that overlaps with it
	InLine bool   // the next party does not hold it either, but is before this one in line
	Actor  string // path of the actor that it waits for; the next party may be its sub-agent
}

// A DeadlockError refuses a wait that would never end, because through others
// the caller would wait for itself. Nothing was changed.
type DeadlockError struct {
	Cycle []Link // the first is the caller's
}

func (e *DeadlockError) Error() string {
	last := e.Cycle[len(e.Cycle)-1]
	advice := fmt.Sprintf("release lease %q first, then ask again", last.Held)
	switch {
	case last.Scope == "":
		advice = fmt.Sprintf("finish without it, as %s waits for you, or ask with wait_secs 0", last.Waiter.name())
	case last.InLine:
		advice = fmt.Sprintf("end your wait for lease %q first, then ask again", last.Held)
	}
	return "deadlock: " + e.text("you", "wait") + ": " + advice
}

// text says who waits for whom. caller is the name for the caller.
func (e *DeadlockError) text(caller, waits string) string {
	name := func(i int) string {
		if i %= len(e.Cycle); i > 0 {
			return e.Cycle[i].Waiter.name()
		}
		return caller
	}
	var texts []string
	for i, l := range e.Cycle {
		verb := " waits for "
		if i == 0 {
			verb = " would wait for "
		}
		what := fmt.Sprintf("lease %q", l.Key)
		switch {
		case l.Scope == "":
			what = "the end of actor " + l.Actor
		case l.InLine:
			before := name(i+1) + " waits"
			if (i+1)%len(e.Cycle) == 0 {
				before = caller + " " + waits
			}
			what += ", for which " + before + " before"
		case l.Held != l.Key:
			what += fmt.Sprintf(", which overlaps with %q of %s", l.Held, name(i+1))
		default:
			what += ", held by " + name(i+1)
		}
		texts = append(texts, name(i)+verb+what)
	}
	return strings.Join(texts, "; ")
}

// recordDeadlock records a refusal, by the first lease of the cycle.
func (c *Core) recordDeadlock(tx Tx, e *DeadlockError, reason string) {
	caller := e.Cycle[0].Waiter
	for i, l := range e.Cycle {
		if l.Scope != "" {
			by := e.Cycle[(i+1)%len(e.Cycle)].Waiter
			c.record(tx, l.Scope, l.Key, caller, event.Event{Kind: event.Deadlock, By: by.Path, Cause: e.text(caller.name(), "waits"), Reason: reason})
			return
		}
	}
}

// Rows in memory also record which actors a party's calls wait for, until those
// have ended.
const awaitPrefix = "await/"

func awaitsKey(h Holder) string {
	return awaitPrefix + strings.TrimPrefix(placesKey(h), placePrefix)
}

// An await is a wait for actors to end: for all of them, or for any one.
type await struct {
	holder Holder
	any    bool
	actors []uuid.UUID
	paths  []string
}

func (w *await) encode() string {
	r := record.New(64)
	r.Flags(w.any)
	r.ID(w.holder.Actor)
	r.Texts(w.holder.Path, w.holder.Party)
	for i, id := range w.actors {
		r.ID(id)
		r.Text(w.paths[i])
	}
	return r.String()
}

func (w *await) read(row engine.Row) {
	r := record.Read(row.Value)
	r.Flags(&w.any)
	w.holder = Holder{Session: row.Owner, Actor: r.ID(), Path: r.Text(), Party: r.Text()}
	for !r.Done() {
		id := r.ID()
		if id == uuid.Nil {
			return
		}
		w.actors, w.paths = append(w.actors, id), append(w.paths, r.Text())
	}
}

// AwaitActors records that a call of the holder waits for actors to end: all of
// them, or one. It refuses with a [DeadlockError] if they never will because
// they wait for the holder. The caller calls done when the wait is over.
func (c *Core) AwaitActors(ctx context.Context, h Holder, actors []uuid.UUID, paths []string, all bool) (done func(), err error) {
	w := await{h, !all && len(actors) > 1, actors, paths}
	id := uuid.New()
	key := awaitsKey(h) + string(id[:])
	var enough bool
	err = c.update(ctx, h, func(tx Tx) error {
		if !c.opts.SessionOpen(tx, h.Session) {
			return ErrSessionEnded
		}
		var refusal *DeadlockError
		s := search{c, tx, h, c.opts.SearchedAtOnce}
		if refusal, enough = s.deadlock(nil, &w); refusal != nil {
			c.recordDeadlock(tx, refusal, "")
			return refusal
		}
		tx.Touch(engine.Row{Key: key, Value: w.encode(), Owner: h.Session})
		return nil
	})
	end := func(tx Tx) error { tx.Delete(key); return nil }
	done = func() { _ = c.update(engine.Needed(context.WithoutCancel(ctx)), h, end) }
	if err != nil || enough {
		return done, err
	}
	if err = c.searchOn(ctx, h, "", func(Tx) (*waiter, *await) { return nil, &w }); err != nil {
		done()
	}
	return done, err
}

// A search looks for a path back to a party in the wait-for graph: from a party
// that waits to all that keep it waiting. A wait for any one of several actors
// ends the paths that are followed, because it is hopeless only if all of its
// alternatives are.
//
// The transaction in which a wait begins looks at a few leases and places only,
// because everybody waits for it. If that is not enough, the search is made
// again in a snapshot that holds no lock, when the wait has begun and others see
// it. So at least one of several calls that close a cycle together is refused;
// all of them may be, if they begin at the same time.
//
// A search that has looked at MaxSearched leases and places finds nothing. The
// calls of a cycle that is so large end when their time to wait is over.
type search struct {
	c      *Core
	tx     Tx
	start  Holder
	budget int
}

// deadlock returns the refusal of a wait of the start, for leases (place) or for
// actors, if it would close a cycle. enough says whether the budget was.
func (s *search) deadlock(place *waiter, actors *await) (refusal *DeadlockError, enough bool) {
	if cycle := s.cycle(place, actors); cycle != nil {
		return &DeadlockError{cycle}, true
	}
	return nil, s.budget >= 0
}

// searchOn searches for a cycle that a wait of h closes, which has begun, and
// refuses the wait if there is one. It holds no lock while it searches. begun
// returns the wait, or nothing if it is over.
func (c *Core) searchOn(ctx context.Context, h Holder, reason string, begun func(Tx) (*waiter, *await)) error {
	if h.Local {
		ctx = engine.Local(ctx)
	}
	var refusal *DeadlockError
	err := c.eng.Snapshot(ctx, func(tx engine.Tx) error {
		if place, actors := begun(tx); place != nil || actors != nil {
			s := search{c, tx, h, MaxSearched}
			refusal, _ = s.deadlock(place, actors)
		}
		return nil
	})
	if err != nil || refusal == nil {
		return err
	}
	return c.update(engine.Needed(ctx), h, func(tx Tx) error {
		place, actors := begun(tx)
		switch {
		case place != nil:
			c.leave(tx, *place)
		case actors == nil:
			return nil
		}
		c.recordDeadlock(tx, refusal, reason)
		return refusal
	})
}

// A step is a party, or a wait for any one of several actors, and how the
// search reached it.
type step struct {
	holder Holder
	any    *await
	link   Link // by which it was reached; a wait is its party's, so it has none
	from   *step
}

// key is the same for steps to the same party, or to the same wait.
func (s *step) key() string {
	key := placesKey(s.holder)
	if s.any != nil {
		key += s.any.encode()
	}
	return key
}

func (s *step) links() (list []Link) {
	for ; s != nil; s = s.from {
		if s.any == nil {
			list = append(list, s.link)
		}
	}
	slices.Reverse(list)
	return list
}

// A reach is what a search found from some steps: the path back, if there is
// one, and the waits for any one of several actors.
type reach struct {
	back *step
	any  map[string]*step
}

// cycle returns the cycle that a wait of the start would close, for leases
// (place) or for actors. It returns nil if the wait would close none.
func (s *search) cycle(place *waiter, actors *await) []Link {
	const root = ""
	ways := make(map[string][]reach) // for each wait: one reach if it needs all, or one for each alternative
	var todo []*step                 // waits for any one of several actors
	add := func(key string, firsts ...[]*step) {
		for _, first := range firsts {
			r := s.reach(first)
			ways[key] = append(ways[key], r)
			todo = slices.AppendSeq(todo, maps.Values(r.any))
		}
	}
	switch {
	case place != nil:
		add(root, s.keepers(place))
	case actors.any:
		add(root, s.awaited(actors)...)
	default:
		add(root, slices.Concat(s.awaited(actors)...))
	}
	for len(todo) > 0 {
		at := todo[0]
		todo = todo[1:]
		if key := at.key(); ways[key] == nil {
			add(key, s.awaited(at.any)...)
		}
	}
	// Every wait is assumed hopeless. Those that have a way out are removed
	// until none is left to remove.
	wayOut := func(r reach) bool {
		for key := range r.any {
			if ways[key] != nil {
				return false
			}
		}
		return r.back == nil
	}
	for left := len(ways) + 1; len(ways) < left; {
		left = len(ways)
		maps.DeleteFunc(ways, func(_ string, list []reach) bool { return slices.ContainsFunc(list, wayOut) })
	}
	return wayBack(ways, root, make(map[string]bool))
}

// wayBack follows hopeless waits back to the start.
func wayBack(ways map[string][]reach, key string, seen map[string]bool) []Link {
	seen[key] = true
	for _, r := range ways[key] {
		if r.back != nil {
			return r.back.links()
		}
		for next, at := range r.any {
			if ways[next] != nil && !seen[next] {
				if rest := wayBack(ways, next, seen); rest != nil {
					return append(at.links(), rest...)
				}
			}
		}
	}
	return nil
}

// reach follows the first steps to everything they lead to, breadth first.
func (s *search) reach(todo []*step) (r reach) {
	r.any = make(map[string]*step)
	seen := make(map[string]bool)
	lines := make(map[string]uint64) // by line: the highest number up to which the places were already followed
	for len(todo) > 0 && s.budget >= 0 {
		at := todo[0]
		todo = todo[1:]
		key := at.key()
		switch {
		case at.any != nil:
			r.any[key] = at
			continue
		case at.holder.same(s.start):
			r.back = at
			return r
		case seen[key]:
			continue
		}
		seen[key] = true
		for _, next := range s.waits(at.holder, lines) {
			next.from = at
			todo = append(todo, next)
		}
	}
	return r
}

// waits returns the steps from a party to all that its calls wait for.
func (s *search) waits(h Holder, lines map[string]uint64) (next []*step) {
	for w := range placesOf(s.tx, h) {
		if !s.c.asks(s.tx, &w) {
			continue
		}
		w.wants = slices.DeleteFunc(w.wants, func(want Want) bool {
			line := want.Scope + "\x00" + want.Key
			known := lines[line] >= w.seq
			offered := func(l Lease) bool { return l.gives(h, want, s.tx.Now()) } // it does not wait for what it is offered
			if !want.Shared && !slices.ContainsFunc(offersNear(s.tx, want.Scope, want.Key), offered) {
				lines[line] = max(lines[line], w.seq)
			}
			return known
		})
		next = append(next, s.keepers(&w)...)
	}
	for row := range s.tx.Scan(awaitsKey(h)) {
		var w await
		if w.read(row); w.any {
			next = append(next, &step{holder: h, any: &w})
			continue
		}
		for _, list := range s.awaited(&w) {
			next = append(next, list...)
		}
	}
	return next
}

// keepers returns the steps from a place to those that keep it waiting. Those
// in line come from last to first: what keeps out one of them also keeps out
// the one behind it, so it need not be followed twice. The place of a party that
// is between two calls ends by itself within seconds and so keeps nobody waiting
// for ever.
func (s *search) keepers(w *waiter) (list []*step) {
	places := 0
	v := view{keeps: s.c.asks, all: true, left: s.budget}
	s.c.view(s.tx, w, &v)
	s.budget = v.left
	for _, k := range v.keepers {
		at := &step{link: Link{Waiter: w.Holder, Scope: k.want.Scope, Key: k.want.Key, InLine: k.lease == nil}}
		switch {
		case k.lease == nil:
			at.holder, at.link.Held = k.place.Holder, k.place.Key
			places++
		case s.c.expired(s.tx, k.lease):
			continue
		default:
			at.holder, at.link.Held = k.lease.Holder, k.lease.Key
		}
		list = append(list, at)
	}
	slices.Reverse(list[len(list)-places:])
	return list
}

// awaited returns, for each actor that a call waits for, the steps to those of
// its parties that themselves wait.
func (s *search) awaited(w *await) (list [][]*step) {
	for i, actor := range w.actors {
		link := Link{Waiter: w.holder, Actor: w.paths[i]}
		var steps []*step
		add := func(h Holder) { steps = append(steps, &step{holder: h, link: link}) }
		if actor == s.start.Actor {
			add(s.start)
		}
		for p := range placesOf(s.tx, Holder{Actor: actor}) {
			if s.c.asks(s.tx, &p) {
				add(p.Holder)
			}
		}
		for row := range s.tx.Scan(awaitsKey(Holder{Actor: actor})) {
			var other await
			other.read(row)
			add(other.holder)
		}
		list = append(list, steps)
	}
	return list
}

// isAlone reports whether nobody waits for a party, as far as a look at a few rows
// can tell: no call waits for actors, the party has no place in line, and no call
// waits for a lease of the party. This is the usual case, and a search costs as
// much as the line is long.
func (c *Core) isAlone(tx Tx, h Holder) bool {
	if _, awaits := tx.First(awaitPrefix, awaitPrefix); awaits {
		return false
	}
	if _, placed := tx.First(placesKey(h), placesKey(h)); placed {
		return false
	}
	left := c.opts.SearchedAtOnce
	asks := func(tx Tx, w *waiter) bool { left--; return left < 0 || c.asks(tx, w) }
	for row := range tx.Owned(h.Session, leasePrefix) {
		if left--; left < 0 {
			return false
		}
		var l Lease
		switch ok := l.read(row); {
		case !ok:
			return false
		case !l.Holder.same(h):
			continue
		}
		for range c.placesBefore(tx, h, Want{l.Scope, l.Key, l.Shared}, math.MaxUint64, asks) {
			return false
		}
	}
	return true
}

// deadlock refuses a call that would close a cycle by waiting in its place, or
// at the end of the line if it has none yet. If that would be too
// much work, the call goes on searching when it waits: see [Core.searchOn].
func (c *Core) deadlock(tx Tx, a *ask) (refusal *DeadlockError) {
	if c.isAlone(tx, a.Holder) {
		return nil
	}
	s := search{c, tx, a.Holder, c.opts.SearchedAtOnce}
	refusal, enough := s.deadlock(&a.waiter, nil)
	a.passed += c.opts.SearchedAtOnce - s.budget
	a.search = !enough
	return refusal
}

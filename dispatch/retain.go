package dispatch

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/dispatch/mail"
	"github.com/leasehold/leasehold/dispatch/rows"
	"github.com/leasehold/leasehold/dispatch/work"
	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/call"
	"github.com/leasehold/leasehold/engine/event"
	"github.com/leasehold/leasehold/engine/record"
)

// Default retention of runs and actors that have ended.
const (
	KeepRuns   = 7 * 24 * time.Hour
	KeepActors = 24 * time.Hour
)

// Retention is how long ended runs and actors, and events, are kept, by the
// wall clock. If it changes at a restart of the daemon, it also applies to what
// has ended before.
type Retention struct {
	Runs   time.Duration   // of a whole run, after its end; zero: KeepRuns
	Actors time.Duration   // of an actor, after its end, while its run lives; zero: KeepActors
	Events event.Retention // of each run; zero: KeepEvents and KeepEventsCount
}

func (k Retention) withDefaults() Retention {
	events := event.Retention{Age: cmp.Or(k.Events.Age, KeepEvents), Count: cmp.Or(k.Events.Count, KeepEventsCount)}
	return Retention{cmp.Or(k.Runs, KeepRuns), cmp.Or(k.Actors, KeepActors), events}
}

// RemoveRun removes an ended run at once.
func (s *State) RemoveRun(ctx context.Context, name string) error {
	c := call.Of(ctx)
	return rows.Update(engine.Needed(ctx), s.eng, func(tx engine.Tx) error {
		if _, again, err := c.Answered(tx, removing); again || err != nil {
			return err
		}
		run, ok := getRun(tx, name)
		switch {
		case !ok:
			return notFound("run %q", name)
		case run.EndedAt.IsZero():
			return forbidden("run %q has not ended: end it first (leasehold actor end --run %s root)", name, name)
		}
		s.removeRun(tx, run)
		c.Record(tx, removing, "", 0)
		return nil
	})
}

// A removal is something that has been removed while some of its rows still
// exist.
type removal struct {
	Run   Run       // if its id is set: everything that the run has
	Layer uuid.UUID // if not zero: the layer and its actors
	Actor uuid.UUID // if not zero: the actor, and its entries in its layer
	Caps  Caps
}

func putRemoval(tx engine.Tx, id uuid.UUID, r removal) {
	rows.Put(tx, endingRemoval+string(id[:]), r, uuid.Nil)
	tx.Put(engine.Row{Key: removalsUnder})
}

// removeRun removes an ended run. Its name is free at once.
func (s *State) removeRun(tx engine.Tx, run Run) {
	tx.Delete(runKey(run.Name))
	tx.Delete(retireKey(retireRunKind, run.EndedAt, run.ID))
	work.DropRun(tx, run.Name)
	putRemoval(tx, run.ID, removal{Run: run})
}

// removeActor removes an ended actor with its entries in its layer and, for a
// lead, its own layer.
func (s *State) removeActor(tx engine.Tx, a Actor) {
	run, _ := getRun(tx, a.Run)
	if a.Role.Leads() {
		putRemoval(tx, a.Leads, removal{Layer: a.Leads, Caps: run.Caps})
	}
	if s.dropPeer(tx, a, run.Caps, endStep) {
		s.dropActor(tx, a)
		return
	}
	a.Leaving = true // its name stays taken until its entries are removed
	putActor(tx, a)
	putRemoval(tx, a.ID, removal{Actor: a.ID, Caps: run.Caps})
}

// dropPeer removes up to limit entries that an actor has in its layer, unless
// another actor has its name now. It returns true once none is left.
func (s *State) dropPeer(tx engine.Tx, a Actor, caps Caps, limit int) (done bool) {
	if m, ok := memberNamed(tx, a.Layer, a.Name); !ok || m.ID != a.ID {
		return true
	}
	return s.layer(a.Layer, caps).Store().In(tx).DropPeer(a.Name, limit)
}

// dropActor removes the records of an actor that has ended.
func (s *State) dropActor(tx engine.Tx, a Actor) {
	if m, ok := memberNamed(tx, a.Layer, a.Name); ok && m.ID == a.ID {
		tx.Delete(memberKey(a.Layer, a.Name))
	}
	for row := range tx.Owned(a.ID, closedPrefix) {
		tx.Delete(row.Key)
	}
	tx.Delete(formerKey(a.Layer, a.ID))
	tx.Delete(actorKey(a.ID))
	tx.Delete(retireKey(retireDeadKind, a.EndedAt, a.ID))
	work.Forget(tx, a.ID)
	mail.Drop(tx, a.ID)
}

// removeSome removes some rows of pending removals. It returns true if more may
// be left. One that cannot be read stays.
func (s *State) removeSome(tx engine.Tx) (more bool) {
	for row, r := range rows.Readable[removal](tx, endingRemoval) {
		if s.remove(tx, r) {
			tx.Delete(row.Key)
		}
		return true
	}
	tx.Delete(removalsUnder)
	return false
}

// remove removes some rows of a removal. It returns true once none is left.
func (s *State) remove(tx engine.Tx, r removal) (done bool) {
	switch {
	case r.Run.ID != uuid.Nil:
		if !s.leasesOf(r.Run).Drop(tx, endStep) {
			return false
		}
		s.queue.Drop(tx, r.Run.ID)
		putRemoval(tx, r.Run.Layer, removal{Layer: r.Run.Layer, Caps: r.Run.Caps})
		if root, ok := getActor(tx, r.Run.Root); ok {
			s.dropActor(tx, root)
		}
		return true
	case r.Actor != uuid.Nil:
		a, ok := getActor(tx, r.Actor)
		if ok && !s.dropPeer(tx, a, r.Caps, endStep) {
			return false
		}
		if ok {
			s.dropActor(tx, a)
		}
		return true
	}
	n := 0
	for _, keys := range []string{memberKeys(r.Layer), formerKeys(r.Layer)} {
		for row := range tx.Scan(keys) {
			if n == endStep || tx.Spent() {
				return false
			}
			n++
			tx.Delete(row.Key)
			m, ok := memberOf(tx, row)
			if !ok {
				continue
			}
			if m.Role.Leads() {
				putRemoval(tx, m.Leads, removal{Layer: m.Leads, Caps: r.Caps})
			}
			s.dropActor(tx, m)
		}
	}
	if !s.layer(r.Layer, r.Caps).Store().In(tx).Drop(endStep) {
		return false
	}
	s.forgetLayer(r.Layer)
	tx.Delete(layerKey(r.Layer))
	return true
}

func (s *State) forgetLayer(id uuid.UUID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.layers, id)
	s.places.Delete(layerScope(id))
}

// of returns the retention for a kind of retire row.
func (k Retention) of(kind string) time.Duration {
	if kind == retireRunKind {
		return k.Runs
	}
	return k.Actors
}

// retirePoll is the interval at which expired retentions are looked for. The
// wall clock may be set, so a timer for the next one could be wrong.
const retirePoll = 10 * time.Minute

// tendEndings continues what a restart found half ended. After that it removes
// the rows of pending removals, and whatever has outlived its retention. Actors
// of living runs are forgotten only after a while: until then, a run that was
// interrupted with the daemon, perhaps days ago, is resumed or known as such.
func (s *State) tendEndings(ctx context.Context) error {
	watch := s.eng.Watch(removalsUnder)
	defer watch.Stop()
	tick := time.NewTicker(retirePoll)
	defer tick.Stop()
	if err := s.ending(ctx, func(*ender) error { return nil }); err != nil {
		return err
	}
	kinds := []string{retireRunKind}
	for {
		more, err := s.somethingToForget(ctx, kinds)
		if err != nil {
			return err
		}
		for more {
			err := rows.Update(ctx, s.eng, func(tx engine.Tx) error {
				more = s.retireSome(tx, kinds)
				more = s.removeSome(tx) || more
				return nil
			})
			if err != nil && !errors.Is(err, engine.ErrCorrupt) {
				return err
			}
			if err != nil {
				break // that run is damaged and is not removed; try again later
			}
		}
		select {
		case <-watch.C:
		case <-tick.C:
			kinds = []string{retireRunKind, retireDeadKind}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// somethingToForget reports whether there is a pending removal, or something
// of these kinds that has outlived its retention.
func (s *State) somethingToForget(ctx context.Context, kinds []string) (found bool, err error) {
	return found, s.eng.View(ctx, func(tx engine.Tx) error {
		_, found = tx.Get(removalsUnder)
		for _, kind := range kinds {
			for row := range tx.Scan(retirePrefix + kind) {
				since, _ := readRetireKey(row.Key)
				found = found || !tx.Wall().Before(since.Add(s.opts.Keep.of(kind)))
				break
			}
		}
		return nil
	})
}

// retireSome removes some of what has outlived its retention. It returns true if
// more may be left.
func (s *State) retireSome(tx engine.Tx, kinds []string) (more bool) {
	n := 0
	for _, kind := range kinds {
		for row := range tx.Scan(retirePrefix + kind) {
			since, id := readRetireKey(row.Key)
			if tx.Wall().Before(since.Add(s.opts.Keep.of(kind))) {
				break
			}
			if n == endStep/4 || tx.Spent() {
				return true
			}
			n++
			tx.Delete(row.Key)
			if kind == retireRunKind {
				s.retireRun(tx, row.Value)
			} else {
				s.retireActor(tx, id)
			}
		}
	}
	return false
}

// retireRun removes a run whose retention is over. A run that has been resumed
// since stays; if it has ended again, there is another row for that end.
func (s *State) retireRun(tx engine.Tx, name string) {
	run, _ := getRun(tx, name)
	if !run.EndedAt.IsZero() && !tx.Wall().Before(run.EndedAt.Add(s.opts.Keep.Runs)) {
		s.removeRun(tx, run)
	}
}

// retireActor removes an ended actor of a living run. Actors of a run that has
// ended are removed with the run; until then a resume can find them again. So
// are those of a run that was interrupted, and of the earlier lives of one that
// goes on: whoever spawns them again gets their results. A lead is kept until all
// actors below it have ended.
func (s *State) retireActor(tx engine.Tx, id uuid.UUID) {
	a, there := getActor(tx, id)
	if !there || !a.Ended() {
		return
	}
	run, _ := getRun(tx, a.Run)
	d, _ := work.RunOf(tx, a.Run)
	w, launched := work.Get(tx, a.ID)
	switch {
	case a.Role == Root || !run.EndedAt.IsZero() || launched && (d.Unfinished == 0 || w.Before(d.Life)): // goes with its run
	case a.Role.Leads() && !deserted(tx, a.Leads, new(int(endStep))):
		again := tx.Wall().Add(retirePoll - s.opts.Keep.Actors)
		tx.Put(engine.Row{Key: retireKey(retireDeadKind, again, a.ID)}) // check again later
	default:
		s.removeActor(tx, a)
	}
}

// deserted reports whether no actor lives in a layer or below it. It checks at
// most *left actors and returns false if there are more, because their number
// shrinks as they retire themselves.
func deserted(tx engine.Tx, layer uuid.UUID, left *int) bool {
	l, _ := getLayer(tx, layer)
	if l.Members > 0 {
		return false
	}
	for m := range members(tx, layer) {
		if *left--; *left < 0 || m.Role.Leads() && !deserted(tx, m.Leads, left) {
			return false
		}
	}
	return true
}

// readRetireKey decodes the result of retireKey.
func readRetireKey(key string) (since time.Time, id uuid.UUID) {
	rest := strings.TrimPrefix(key, retirePrefix)[1:]
	copy(id[:], rest[8:])
	return time.Unix(0, int64(record.ReadFixed(rest))), id
}

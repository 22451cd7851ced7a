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
	"github.com/leasehold/leasehold/engine/event"
	"github.com/leasehold/leasehold/engine/record"
)

// What is kept, and how long by default.
const (
	KeepRuns   = 7 * 24 * time.Hour
	KeepActors = 24 * time.Hour
)

// Retention is how long what has ended is kept, by the wall clock. It may change
// from one start of the daemon to the next, and then holds for what has ended before.
type Retention struct {
	Runs   time.Duration   // after the end of a run, all of it; zero: KeepRuns
	Actors time.Duration   // after the end of an actor of a run that lives; zero: KeepActors
	Events event.Retention // of each run; zero: KeepEvents and KeepEventsCount
}

func (k Retention) withDefaults() Retention {
	events := event.Retention{Age: cmp.Or(k.Events.Age, KeepEvents), Count: cmp.Or(k.Events.Count, KeepEventsCount)}
	return Retention{cmp.Or(k.Runs, KeepRuns), cmp.Or(k.Actors, KeepActors), events}
}

// RemoveRun forgets a run that has ended, now.
func (s *State) RemoveRun(ctx context.Context, name string) error {
	return rows.Update(ctx, s.eng, func(tx engine.Tx) error {
		run, ok := getRun(tx, name)
		switch {
		case !ok:
			return notFound("run %q", name)
		case run.EndedAt.IsZero():
			return forbidden("run %q has not ended: end it first (leasehold actor end --run %s root)", name, name)
		}
		s.removeRun(tx, run)
		return nil
	})
}

// A removal is something that is gone for good, and whose rows are yet to be
// removed.
type removal struct {
	Run   Run       // if it has an id: all that the run has
	Layer uuid.UUID // if not zero: the layer and those in it
	Actor uuid.UUID // if not zero: the actor, and its entries in its layer
	Caps  Caps
}

func putRemoval(tx engine.Tx, id uuid.UUID, r removal) {
	rows.Put(tx, endingRemoval+string(id[:]), r, uuid.Nil)
	tx.Put(engine.Row{Key: removalsUnder})
}

// removeRun forgets an ended run: its name is free at once.
func (s *State) removeRun(tx engine.Tx, run Run) {
	tx.Delete(runKey(run.Name))
	tx.Delete(retireKey(retireRunKind, run.EndedAt, run.ID))
	work.DropRun(tx, run.Name)
	putRemoval(tx, run.ID, removal{Run: run})
}

// removeActor removes an actor that has ended, with its entries in its layer,
// and for a lead its own layer.
func (s *State) removeActor(tx engine.Tx, a Actor) {
	run, _ := getRun(tx, a.Run)
	if a.Role.Leads() {
		putRemoval(tx, a.Leads, removal{Layer: a.Leads, Caps: run.Caps})
	}
	if s.dropPeer(tx, a, run.Caps, endStep) {
		s.dropActor(tx, a)
		return
	}
	a.Leaving = true // nobody takes its name while its entries go
	putActor(tx, a)
	putRemoval(tx, a.ID, removal{Actor: a.ID, Caps: run.Caps})
}

// dropPeer removes entries that an actor has in its layer, unless its name is
// another's by now. It reports true once none is left.
func (s *State) dropPeer(tx engine.Tx, a Actor, caps Caps, limit int) (done bool) {
	if m, ok := memberNamed(tx, a.Layer, a.Name); !ok || m.ID != a.ID || a.Role == Root {
		return true
	}
	return s.layer(a.Layer, caps).Store().In(tx).DropPeer(a.Name, limit)
}

// dropActor removes the records of an actor that has ended.
func (s *State) dropActor(tx engine.Tx, a Actor) {
	if m, ok := memberNamed(tx, a.Layer, a.Name); ok && m.ID == a.ID {
		tx.Delete(memberKey(a.Layer, a.Name))
	}
	for row := range tx.Owned(a.ID) {
		if strings.HasPrefix(row.Key, closedPrefix) {
			tx.Delete(row.Key)
		}
	}
	tx.Delete(formerKey(a.Layer, a.ID))
	tx.Delete(actorKey(a.ID))
	tx.Delete(retireKey(retireDeadKind, a.EndedAt, a.ID))
	work.Forget(tx, a.ID)
	mail.Drop(tx, a.ID)
}

// removeSome removes some of what is gone for good. It reports true if that was
// not all.
func (s *State) removeSome(tx engine.Tx) (more bool) {
	for row := range tx.Scan(endingRemoval) {
		r, ok := rows.Decode[removal](tx, row)
		if ok && s.remove(tx, r) {
			tx.Delete(row.Key)
		}
		return true
	}
	tx.Delete(removalsUnder)
	return false
}

// remove reports true once all of a removal is removed.
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

// of is how long what has ended is kept, by its kind.
func (k Retention) of(kind string) time.Duration {
	if kind == retireRunKind {
		return k.Runs
	}
	return k.Actors
}

// retirePoll is how often is looked whether something has been kept for long
// enough. The wall clock may be set, so nothing can be waited for.
const retirePoll = 10 * time.Minute

// tendEndings goes on with what a restart found half ended, and removes what is
// gone for good or has been kept for long enough.
func (s *State) tendEndings(ctx context.Context) error {
	watch := s.eng.Watch(removalsUnder)
	defer watch.Stop()
	tick := time.NewTicker(retirePoll)
	defer tick.Stop()
	if err := s.ending(ctx, func(*ender) error { return nil }); err != nil {
		return err
	}
	for {
		more, err := s.somethingToForget(ctx)
		if err != nil {
			return err
		}
		for more {
			err := rows.Update(ctx, s.eng, func(tx engine.Tx) error {
				more = s.retireSome(tx)
				more = s.removeSome(tx) || more
				return nil
			})
			if err != nil && !errors.Is(err, engine.ErrCorrupt) {
				return err
			}
			if err != nil {
				break // of one run, which is not removed; look again later
			}
		}
		select {
		case <-watch.C:
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// somethingToForget reports whether anything is gone for good, or has been kept
// for long enough.
func (s *State) somethingToForget(ctx context.Context) (found bool, err error) {
	return found, s.eng.View(ctx, func(tx engine.Tx) error {
		_, found = tx.Get(removalsUnder)
		for _, kind := range []string{retireRunKind, retireDeadKind} {
			for row := range tx.Scan(retirePrefix + kind) {
				since, _ := readRetireKey(row.Key)
				found = found || !tx.Wall().Before(since.Add(s.opts.Keep.of(kind)))
				break
			}
		}
		return nil
	})
}

// retireSome forgets some of what has been kept for long enough. It reports true
// if that may not have been all.
func (s *State) retireSome(tx engine.Tx) (more bool) {
	n := 0
	for _, kind := range []string{retireRunKind, retireDeadKind} {
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
				s.retireRun(tx, row.Value, id)
			} else {
				s.retireActor(tx, id)
			}
		}
	}
	return false
}

// retireRun forgets a run, unless it was resumed and has not ended since, or not
// for long enough.
func (s *State) retireRun(tx engine.Tx, name string, id uuid.UUID) {
	run, there := getRun(tx, name)
	switch {
	case !there || run.ID != id || run.EndedAt.IsZero():
	case tx.Wall().Before(run.EndedAt.Add(s.opts.Keep.Runs)):
		tx.Put(engine.Row{Key: retireKey(retireRunKind, run.EndedAt, run.ID), Value: run.Name})
	default:
		s.removeRun(tx, run)
	}
}

// retireActor forgets an ended actor of a run that lives. Those of a run that has
// ended go with it, also if that is resumed, for then it meets them again. A lead
// stays until all below it have ended.
func (s *State) retireActor(tx engine.Tx, id uuid.UUID) {
	a, there := getActor(tx, id)
	if !there || !a.Ended() {
		return
	}
	run, _ := getRun(tx, a.Run)
	switch {
	case a.Role == Root || !run.EndedAt.IsZero(): // goes with its run
	case a.Role.Leads() && !deserted(tx, a.Leads, new(int(endStep))):
		again := tx.Wall().Add(retirePoll - s.opts.Keep.Actors)
		tx.Put(engine.Row{Key: retireKey(retireDeadKind, again, a.ID)}) // look again later
	default:
		s.removeActor(tx, a)
	}
}

// deserted reports whether nobody lives in a layer, nor below it. It looks at as many
// actors as one transaction does, and reports false if there are more: those retire
// by themselves.
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

// readRetireKey gives since when what is to be forgotten has ended.
func readRetireKey(key string) (since time.Time, id uuid.UUID) {
	rest := strings.TrimPrefix(key, retirePrefix)[1:]
	copy(id[:], rest[8:])
	return time.Unix(0, int64(record.ReadFixed(rest))), id
}

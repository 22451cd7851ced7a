package dispatch

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/dispatch/mail"
	"github.com/leasehold/leasehold/dispatch/rows"
	"github.com/leasehold/leasehold/dispatch/work"
	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/kvstore"
)

// Check verifies that the records of the tree, works, sessions, leases and
// stores agree with one another. It reports every disagreement that it finds.
func (s *State) Check(ctx context.Context) error { return s.Prove(ctx, func(int) {}) }

// Prove is Check for a large state. It reads a snapshot, so it blocks nobody.
// It calls progress from time to time with the number of task records read so
// far.
func (s *State) Prove(ctx context.Context, progress func(records int)) error {
	return rows.Snapshot(ctx, s.eng, func(tx engine.Tx) error {
		tasks := s.queue.Check(tx, func(rows int64) error {
			progress(int(rows))
			return context.Cause(ctx)
		})
		faults := []error{checkEndings(tx), s.core.Check(tx), tasks, kvstore.Check(tx)}
		fault := func(format string, args ...any) {
			faults = append(faults, fmt.Errorf("dispatch: "+format, args...))
		}
		actors := make(map[string]int)
		living := make(map[uuid.UUID]int) // members of a layer
		for row := range tx.Scan(actorPrefix) {
			a, _ := rows.Decode[Actor](tx, row)
			if !a.Ended() {
				actors[a.Run]++
				if a.Role != Root {
					living[a.Layer]++
				}
			}
			_, former := tx.Get(formerKey(a.Layer, a.ID))
			if m, ok := memberNamed(tx, a.Layer, a.Name); a.Role != Root && !former && (!ok || m.ID != a.ID) {
				fault("actor %s of run %s is not in its layer", a.Path, a.Run)
			}
			if _, ok := getLayer(tx, a.Leads); a.Role.Leads() != ok {
				fault("actor %s of run %s: role %s, has a layer: %v", a.Path, a.Run, a.Role, ok)
			}
		}
		for row := range tx.Scan(runPrefix) {
			if run, _ := rows.Decode[Run](tx, row); run.Actors != actors[run.Name] {
				fault("run %s counts %d actors and has %d", run.Name, run.Actors, actors[run.Name])
			}
		}
		for row := range tx.Scan(layerPrefix) {
			if l, _ := rows.Decode[layerRecord](tx, row); l.Members != living[l.ID] {
				fault("layer of %s of run %s counts %d members and has %d", l.Path, l.Run, l.Members, living[l.ID])
			}
		}
		for row := range tx.Scan(SessionPrefix) {
			record, _ := rows.Decode[sessionRecord](tx, row)
			if a, ok := getActor(tx, record.Actor); !ok || a.Ended() {
				fault("session %s is of an actor that has ended", record.ID)
			}
		}
		checkWorks(tx, fault)
		mail.Check(tx, func(actor uuid.UUID) bool { _, ok := getActor(tx, actor); return ok }, fault)
		return errors.Join(faults...)
	})
}

// checkWorks verifies that a work is unfinished exactly as long as its actor
// lives, and that it belongs to the lead and the run of its actor.
func checkWorks(tx engine.Tx, fault func(format string, args ...any)) {
	for w := range work.All(tx) {
		a, ok := getActor(tx, w.Actor)
		if !ok {
			fault("work of %s is of no actor", w.Actor)
			continue
		}
		if w.Status.Final() != a.Ended() {
			fault("work of %s of run %s is %s, its actor has ended: %v", a.Path, a.Run, w.Status, a.Ended())
		}
		if l, _ := getLayer(tx, a.Layer); a.Role != Root && l.Lead != w.Lead || a.Role == Root && w.Lead != uuid.Nil {
			fault("work of %s of run %s is of another lead", a.Path, a.Run)
		}
	}
	for name, d := range work.Runs(tx) {
		if run, ok := getRun(tx, name); !ok || run.ID != d.RunID {
			fault("run %s is launched and not there", name)
		}
	}
	work.Check(tx, func(actor uuid.UUID) string {
		a, _ := getActor(tx, actor)
		return a.Run
	}, fault)
}

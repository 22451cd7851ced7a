package dispatch

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/kvstore"
)

// Check proves that the records of the tree, of works, sessions, leases and
// stores agree with one another. It reports every disagreement it finds.
func (s *State) Check(ctx context.Context) error {
	return s.eng.View(ctx, func(tx engine.Tx) error {
		faults := []error{s.core.Check(tx), s.queue.Check(tx), kvstore.Check(tx)}
		fault := func(format string, args ...any) {
			faults = append(faults, fmt.Errorf("dispatch: "+format, args...))
		}
		actors := make(map[string]int)
		living := make(map[uuid.UUID]int) // members of a layer
		for row := range tx.Scan(actorPrefix) {
			a := decode[Actor](row)
			if !a.Ended() {
				actors[a.Run]++
				if a.Role != Root {
					living[a.Layer]++
				}
			}
			if a.Ended() && a.TokenHash != nil {
				fault("actor %s of run %s has ended and can connect", a.Path, a.Run)
			}
			if m, ok := memberNamed(tx, a.Layer, a.Name); a.Role != Root && (!ok || m.ID != a.ID) {
				fault("actor %s of run %s is not in its layer", a.Path, a.Run)
			}
			if _, ok := getLayer(tx, a.Leads); a.Role.Leads() != ok {
				fault("actor %s of run %s: role %s, has a layer: %v", a.Path, a.Run, a.Role, ok)
			}
		}
		for row := range tx.Scan(runPrefix) {
			if run := decode[Run](row); run.Actors != actors[run.Name] {
				fault("run %s counts %d actors and has %d", run.Name, run.Actors, actors[run.Name])
			}
		}
		for row := range tx.Scan(layerPrefix) {
			if l := decode[layerRecord](row); l.Members != living[l.ID] {
				fault("layer of %s of run %s counts %d members and has %d", l.Path, l.Run, l.Members, living[l.ID])
			}
		}
		for row := range tx.Scan(sessionPrefix) {
			record := decode[sessionRecord](row)
			if a, ok := getActor(tx, record.Actor); !ok || a.Ended() {
				fault("session %s is of an actor that has ended", record.ID)
			}
		}
		checkWorks(tx, fault)
		return errors.Join(faults...)
	})
}

// checkWorks proves that a work is unfinished as long as its actor lives, that
// it is counted, and that leads keep and have paid what their children say.
func checkWorks(tx engine.Tx, fault func(format string, args ...any)) {
	left := make(map[string]int)
	claims, settled := make(map[uuid.UUID]Money), make(map[uuid.UUID]Money)
	for row := range tx.Scan(workPrefix) {
		w := decode[Work](row)
		a, ok := getActor(tx, w.Actor)
		if !ok || row.Key != workKey(a.ID) {
			fault("work %q is of no actor", row.Key)
			continue
		}
		run, _ := getRun(tx, a.Run)
		_, counted := tx.Get(unfinishedKey(run.ID, a.ID))
		if final := w.Status.Final(); !w.Status.known() || final != a.Ended() || final == counted {
			fault("work of %s of run %s is %s, its actor has ended: %v, it is among the unfinished: %v", a.Path, a.Run, w.Status, a.Ended(), counted)
		}
		if !w.Status.Final() {
			left[a.Run]++
			if getOrder(tx, a.ID).Name != a.Name {
				fault("work of %s of run %s has no order", a.Path, a.Run)
			}
		} else if w.Session != uuid.Nil {
			fault("work of %s of run %s is %s and has a session", a.Path, a.Run, w.Status)
		}
		if l, _ := getLayer(tx, a.Layer); a.Role != Root && l.Lead != w.Lead || a.Role == Root && w.Lead != uuid.Nil {
			fault("work of %s of run %s is of another lead", a.Path, a.Run)
		}
		claims[w.Lead] += w.claim()
		settled[w.Lead] += w.settled()
	}
	for row := range tx.Scan(workPrefix) {
		if w := decode[Work](row); w.Reserved != claims[w.Actor] || w.Below != settled[w.Actor] {
			fault("work of actor %s keeps %d and has paid %d, those below it say %d and %d", w.Actor, w.Reserved, w.Below, claims[w.Actor], settled[w.Actor])
		}
	}
	for row := range tx.Scan(dispatchedPrefix) {
		name := row.Key[len(dispatchedPrefix):]
		d := decode[Dispatched](row)
		if run, ok := getRun(tx, name); !ok || run.ID != d.RunID || d.Unfinished != left[name] {
			fault("run %s counts %d unfinished works and has %d", name, d.Unfinished, left[name])
		}
		left[name] = 0
	}
	for name, n := range left {
		if n != 0 {
			fault("run %s is not dispatched and has %d unfinished works", name, n)
		}
	}
}

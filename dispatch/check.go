package dispatch

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
)

// Check proves that the records of the tree, the sessions and the leases agree
// with one another. It reports every disagreement it finds.
func (s *State) Check(ctx context.Context) error {
	return s.eng.View(ctx, func(tx engine.Tx) error {
		faults := []error{s.core.Check(tx), s.queue.Check(tx)}
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
		return errors.Join(faults...)
	})
}

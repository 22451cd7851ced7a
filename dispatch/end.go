package dispatch

import (
	"context"

	"github.com/leasehold/leasehold/dispatch/rows"
	"github.com/leasehold/leasehold/dispatch/work"
	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/call"
)

// EndActor ends the actor at path and, if it leads, its whole sub-tree. Their
// tokens become void, their sessions end, and their leases go to the next
// waiters. Ending the root ends the run. A launched actor that has a process is
// told to stop, and ends when its process ends. A call that is sent again finishes
// what the first one has begun.
func (s *State) EndActor(ctx context.Context, run, path, cause string) error {
	var ended string // the id of the run, if its root was ended
	c := call.Of(ctx)
	err := s.ending(ctx, func(e *ender) error {
		value, again, err := c.Answered(e.tx, endingActor)
		if again || err != nil {
			ended = value
			return err
		}
		r, ok := getRun(e.tx, run)
		if !ok || !r.EndedAt.IsZero() {
			return notFound("run %q", run)
		}
		a, err := actorAt(e.tx, r, path)
		if err != nil {
			return err
		}
		if a.Role == Root {
			ended = string(r.ID[:])
		}
		e.stop(a, end{Cause: cause, By: operatorPath, Stop: work.Stop{Reason: cause, Status: work.Cancelled}})
		c.Record(e.tx, endingActor, ended, 0)
		return nil
	})
	if err != nil || ended == "" {
		return err
	}
	return rows.Update(engine.Needed(context.WithoutCancel(ctx)), s.eng, func(tx engine.Tx) error {
		if d, ok := work.RunOf(tx, run); ok && string(d.RunID[:]) == ended && d.Unfinished == 0 {
			s.endRun(tx, run)
		}
		return nil
	})
}

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
// told to stop, and ends when its process ends.
func (s *State) EndActor(ctx context.Context, run, path, cause string) error {
	isRoot := false
	c := call.Of(ctx)
	err := s.ending(ctx, func(e *ender) error {
		if _, again, err := c.Answered(e.tx, endingActor); again || err != nil {
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
		isRoot = a.Role == Root
		e.stop(a, end{Cause: cause, By: operatorPath, Stop: work.Stop{Reason: cause, Status: work.Cancelled}})
		c.Record(e.tx, endingActor, "", 0)
		return nil
	})
	if err != nil || !isRoot {
		return err
	}
	return rows.Update(ctx, s.eng, func(tx engine.Tx) error {
		if d, ok := work.RunOf(tx, run); ok && d.Unfinished == 0 {
			s.endRun(tx, run)
		}
		return nil
	})
}

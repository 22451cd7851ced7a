package process

import (
	"context"
	"fmt"
	"time"
)

// Stop ends the process and everything it has started: with SIGTERM, and with
// SIGKILL what is left after the grace. It returns when no process of the tree
// runs. Processes that have switched user, for example with sudo, are neither
// signalled nor waited for.
//
// Calls may overlap. If they have different graces, the shortest one decides,
// and all of them return. If ctx ends first, Stop returns an error, and
// processes may be left. After a successful call, Stop does nothing.
func (p *Process) Stop(ctx context.Context, grace time.Duration) error {
	p.mu.Lock()
	reaped := p.reaped
	p.mu.Unlock()
	if reaped {
		return nil
	}
	h := newHunt(p.mark, p.id)
	h.adopts = p.alone
	if _, err := h.run(ctx, grace); err != nil {
		return fmt.Errorf("stop process %d: %w", p.id.pid, err)
	}
	select {
	case <-p.done: // it is at most a zombie, which the kernel is about to report
	case <-ctx.Done():
		return fmt.Errorf("stop process %d: %w", p.id.pid, context.Cause(ctx))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, w := range p.watchers {
		w.tell(forgetWord, p.id.pid, p.id.start) // while its pid cannot have been reused
	}
	p.watchers = nil
	p.reapLocked()
	return nil
}

// End ends every process of this user that has the mark NAME=value in its
// environment, with its descendants, the sessions and groups that it leads, and
// the processes that this process has adopted. It uses SIGTERM, and SIGKILL for
// what is left after the grace. It returns the number of processes when none of
// them runs any more. The caller and its ancestors are never signalled, marked
// or not.
//
// If ctx ends first, End returns an error, and processes may be left.
func End(ctx context.Context, mark string, grace time.Duration) (int, error) {
	if err := checkMark(mark); err != nil {
		return 0, err
	}
	return end(ctx, mark, grace)
}

func end(ctx context.Context, mark string, grace time.Duration, roots ...identity) (int, error) {
	h := newHunt(mark, roots...)
	h.adopts = true
	n, err := h.run(ctx, grace)
	if err != nil {
		return n, fmt.Errorf("end the processes with %s: %w", mark, err)
	}
	return n, nil
}

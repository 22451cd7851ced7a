package process

import (
	"context"
	"fmt"
	"time"
)

// Stop ends the process and all it has started: SIGTERM, and SIGKILL to what is
// left after the grace. It returns when nothing of the tree runs. What has
// become another user's, as sudo does, is neither touched nor waited for.
//
// Calls may overlap: one with a shorter grace kills before the other would, and
// both return. If ctx ends first the error says so, and processes may be left.
// After a success, Stop does nothing.
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
	case <-p.done: // it is at most a zombie, of which the kernel is about to tell
	case <-ctx.Done():
		return fmt.Errorf("stop process %d: %w", p.id.pid, context.Cause(ctx))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, w := range p.watchers {
		w.tell(forgetWord, p.id.pid, p.id.start) // before its pid can be another's
	}
	p.watchers = nil
	p.reapLocked()
	return nil
}

// End ends every process of this user that has the mark NAME=value in its
// environment, with what descends from it and what is in the sessions and
// groups that those lead, and what this process has adopted: SIGTERM, and SIGKILL to what is left after the grace.
// It returns when none of them runs, with how many there were. The caller and
// its ancestors are left alone, marked or not.
//
// If ctx ends first the error says so, and processes may be left.
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

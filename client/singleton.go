package client

import (
	"context"
	"errors"
	"time"
)

// A Singleton is a job that runs on one of several replicas at a time.
type Singleton struct {
	Key string        // of the lease that decides which replica runs it
	TTL time.Duration // how soon another replica takes over from one that is cut off; 0: 30 s

	// Run is called on the replica that holds the lease. It must return when
	// its context ends, because another replica may begin after the TTL. Its
	// writes should carry the lease's gate or token. If Run returns earlier,
	// the singleton is finished.
	Run func(ctx context.Context, l *Lease) error

	// Jeopardy is as in [LeaseOptions].
	Jeopardy func(left time.Duration, err error)
}

// RunSingleton takes part in a singleton until ctx ends or Run returns by
// itself. It waits for the lease, calls Run, and waits again if the lease is
// lost.
func (c *Client) RunSingleton(ctx context.Context, s Singleton) error {
	for {
		l, err := c.Acquire(ctx, s.Key, LeaseOptions{TTL: s.TTL, Jeopardy: s.Jeopardy, Reason: "singleton"})
		switch refusal, ok := errors.AsType[*Error](err); {
		case ctx.Err() != nil:
			if err == nil {
				return l.Release(context.WithoutCancel(ctx))
			}
			return nil
		case errors.Is(err, ErrClosed), ok && !refusal.passing() && !limited(err):
			return err
		case err != nil: // no server answers, or the line is full; either can change
			c.log.Warn("a singleton waits", "key", s.Key, "err", err)
			_ = pause(ctx, 10) // an error means that ctx has ended
			continue
		}
		if lost, err := s.run(ctx, l); !lost {
			return err
		}
	}
}

// run calls Run under the lease, and reports whether the lease was lost.
func (s *Singleton) run(ctx context.Context, l *Lease) (lost bool, err error) {
	running, cancel := context.WithCancelCause(l.Context())
	defer cancel(nil)
	stop := context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
	defer stop()
	defer func() { // also if Run panics
		release, cancelRelease := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer cancelRelease()
		gone := l.Release(release)
		switch {
		case ctx.Err() != nil:
			err = nil
		case errors.Is(gone, ErrLost):
			lost = true
		}
	}()
	return false, s.Run(running, l)
}

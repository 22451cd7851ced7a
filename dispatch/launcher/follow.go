package launcher

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/leasehold/leasehold/dispatch/client"
)

const (
	// followWait is how long one call waits for events.
	followWait = 25 * time.Second

	// followRetry is how long to wait after the daemon has refused to return
	// events.
	followRetry = time.Second
)

// follow records the run's events as they come, until ctx ends. The run does
// not depend on them.
func (l *Launcher) follow(ctx context.Context) {
	for ctx.Err() == nil {
		if _, err := l.readEvents(ctx, followWait); err != nil {
			select {
			case <-time.After(followRetry):
			case <-ctx.Done():
			}
		}
	}
}

// ordered reports whether this launcher was told to start an actor.
func (l *Launcher) ordered(actorID string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, ended := l.results[actorID]
	return ended || l.agents[actorID] != nil
}

// catchUp records the remaining events of the run.
func (l *Launcher) catchUp(ctx context.Context) error {
	for {
		if more, err := l.readEvents(ctx, 0); err != nil || !more {
			return err
		}
	}
}

// readEvents records the events after the last recorded one. If there are none,
// it waits for some.
func (l *Launcher) readEvents(ctx context.Context, wait time.Duration) (more bool, err error) {
	var page struct {
		Events []struct {
			Event
			At time.Time
		}
		Next uint64
		More bool
	}
	err = l.link.wait(ctx, "operator_events", map[string]any{"run": l.run, "since": l.seen, "wait_secs": wait.Seconds()}, &page)
	var refusal *client.Refusal
	if errors.As(err, &refusal) && refusal.Code == "COMPACTED" {
		l.event(Event{Event: EventsMissed, Text: fmt.Sprintf("events after revision %d are forgotten that had not been read", l.seen)})
		l.seen = 0
		return true, nil
	}
	if err != nil {
		return false, err
	}
	for _, e := range page.Events {
		e.Time, e.Ordered = e.At, l.ordered(e.ActorID)
		l.event(e.Event)
	}
	l.seen = page.Next
	return page.More, nil
}

package daemon

import (
	"context"
	"sync/atomic"

	"github.com/rs/zerolog"

	"github.com/leasehold/leasehold/engine/event"
)

// A teller writes events to the log at level debug: grants and losses of leases
// and claims, and everything else that happens in a run. Events are reported
// while other calls wait, so they go through a queue. Those that do not fit are
// only counted.
type teller struct {
	log     zerolog.Logger
	events  chan event.Event
	dropped atomic.Int64
}

// maxUntold is how many events may wait to be written.
const maxUntold = 4096

func newTeller(log zerolog.Logger) *teller {
	return &teller{log: log, events: make(chan event.Event, maxUntold)}
}

// note takes an event.
func (t *teller) note(e event.Event) {
	if t.log.GetLevel() > zerolog.DebugLevel {
		return
	}
	select {
	case t.events <- e:
	default:
		t.dropped.Add(1)
	}
}

// run writes events until ctx ends. No line has a lease_id, which is a secret.
func (t *teller) run(ctx context.Context) error {
	for {
		select {
		case e := <-t.events:
			t.write(&e)
		case <-ctx.Done():
			return nil
		}
	}
}

func (t *teller) write(e *event.Event) {
	if n := t.dropped.Swap(0); n > 0 {
		t.log.Debug().Int64("events", n).Msg("the log was too slow for some events; leasehold events has them")
	}
	t.log.Debug().Uint64("revision", e.Revision).Str("event", e.Kind.String()).Func(func(line *zerolog.Event) {
		text := func(name, value string) {
			if value != "" {
				line.Str(name, value)
			}
		}
		text("layer", e.Layer)
		text("queue", e.Queue)
		text("key", e.Key)
		text("actor", e.Path)
		text("party", e.Party)
		text("by", e.By)
		text("cause", e.Cause)
		text("reason", e.Reason)
		if e.Token > 0 {
			line.Uint64("token", e.Token)
		}
		if e.Took > 0 {
			line.Dur("took_ms", e.Took)
		}
	}).Msg("event")
}

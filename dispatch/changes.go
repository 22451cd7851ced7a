package dispatch

import (
	"context"
	"errors"
	"sync"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/dispatch/rows"
	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/event"
)

// A Topic is what sessions follow the changes of: a queue, the leases of a
// layer, or, if both are empty, those of the run.
type Topic struct {
	Layer string // path of its lead
	Queue string
}

func topicOf(e *event.Event) (t Topic, ok bool) {
	if e.Queue != "" {
		return Topic{Queue: e.Queue}, true
	}
	return Topic{Layer: e.Layer}, e.Kind.Lease()
}

// Changes are the revisions at which the topics of a run last changed. All
// sessions that follow topics of the run share them, so each event is read
// once, however many follow.
type Changes struct {
	state *State
	run   uuid.UUID
	users int // under State.followed.mu

	reads chan struct{} // has a token while somebody reads

	mu   sync.Mutex
	read uint64 // revision up to which events have been read
	any  uint64 // every topic counts as changed then
	last map[Topic]uint64
}

// maxTopics is the number of topics beyond which all of them count as changed,
// so that their revisions take little memory.
const maxTopics = 4096

// followed are the Changes of the runs that somebody follows.
type followed struct {
	mu   sync.Mutex
	runs map[uuid.UUID]*Changes
}

// Follow returns the changes of the session's run, at least those after a
// revision. The caller must call leave when it is done.
func (se *Session) Follow(since uint64) (c *Changes, leave func()) {
	f := &se.state.followed
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.runs == nil {
		f.runs = make(map[uuid.UUID]*Changes)
	}
	if c = f.runs[se.run.ID]; c == nil {
		c = &Changes{state: se.state, run: se.run.ID, reads: make(chan struct{}, 1), read: since, any: since, last: make(map[Topic]uint64)}
		f.runs[se.run.ID] = c
	}
	c.users++
	return c, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if c.users--; c.users == 0 {
			delete(f.runs, c.run)
		}
	}
}

// Read reads what has happened, and returns the revision up to which it is
// known. more says that there is more to read now.
func (c *Changes) Read(ctx context.Context) (known uint64, more bool, err error) {
	select {
	case c.reads <- struct{}{}:
		defer func() { <-c.reads }()
	case <-ctx.Done():
		return 0, false, context.Cause(ctx)
	}
	now, err := c.state.revision(ctx)
	if err != nil || now <= c.read {
		return c.read, false, err
	}
	err = rows.Snapshot(ctx, c.state.eng, func(tx engine.Tx) error {
		events, err := event.Read(tx, c.run, c.read)
		if err != nil {
			return err
		}
		read := 0
		for e := range events {
			if read == MaxEventList {
				more = true
				return ctx.Err()
			}
			read, now = read+1, e.Revision
			c.note(&e)
		}
		now = event.NumbersOf(tx).Revision
		return ctx.Err()
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	if compacted, ok := errors.AsType[*event.CompactedError](err); ok {
		c.any, now, more, err = compacted.Through, compacted.Through, true, nil
	}
	if err == nil {
		c.read = now
	}
	return c.read, more, err
}

func (c *Changes) note(e *event.Event) {
	t, ok := topicOf(e)
	if !ok {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.last) == maxTopics {
		c.any = e.Revision
		clear(c.last)
	}
	c.last[t] = e.Revision
}

// Of returns the revision at which a topic last changed, as far as is known.
func (c *Changes) Of(t Topic) uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return max(c.any, c.last[t])
}

// Revision returns the revision of the last event of any run.
func (se *Session) Revision(ctx context.Context) (uint64, error) { return se.state.revision(ctx) }

func (s *State) revision(ctx context.Context) (n uint64, err error) {
	return n, s.eng.View(ctx, func(tx engine.Tx) error {
		n = event.NumbersOf(tx).Revision
		return nil
	})
}

// NewEvents returns a watch that fires when there may be new events.
func (se *Session) NewEvents() *engine.Watch { return se.state.eng.Watch(event.NumberKey) }

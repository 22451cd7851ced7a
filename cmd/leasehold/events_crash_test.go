package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/leasehold/leasehold/dispatch/client"
	"github.com/leasehold/leasehold/dispatch/server"
)

// A witness reads the events of the load as they come, through every kill, and
// knows which grants and releases were acknowledged.
type witness struct {
	t     *testing.T
	since uint64

	mu       sync.Mutex
	granted  map[uint64]string // keys by token, as acknowledged
	released map[uint64]bool
	seen     []seenEvent
}

type seenEvent struct {
	Revision, Token uint64
	Event, Key      string
	TaskID          string `json:"task_id"`
}

func newWitness(t *testing.T) *witness {
	return &witness{t: t, granted: make(map[uint64]string), released: make(map[uint64]bool)}
}

// look reads what has come since the last look.
func (w *witness) look(d *victim) {
	w.t.Helper()
	c, err := d.dial(w.t.Context(), server.Hello{Operator: true})
	if err != nil {
		w.t.Fatal(err)
	}
	defer c.Close()
	for more := true; more; {
		var page struct {
			Events []seenEvent
			Next   uint64
			More   bool
		}
		if err := ask(w.t.Context(), c, "operator_events", map[string]any{"run": "load", "since": w.since}, &page); err != nil {
			w.t.Fatal(err)
		}
		w.seen = append(w.seen, page.Events...)
		w.since, more = page.Next, page.More
	}
}

// verify finds each acknowledged grant and release exactly once and in order, each
// key in one hand at a time, and each task that l knows of enqueued and completed
// once.
func (w *witness) verify(l *killLedger) {
	w.t.Helper()
	last := uint64(0)
	holds := make(map[string]uint64)  // tokens by key
	grants := make(map[uint64]string) // keys by token
	releases := make(map[uint64]bool) // by token
	moves := make(map[string]int)     // by event and task
	for _, e := range w.seen {
		if e.Revision <= last {
			w.t.Errorf("revision %d comes after %d", e.Revision, last)
		}
		last = e.Revision
		switch e.Event {
		case "lease_granted", "lease_handed_over":
			if holds[e.Key] != 0 || grants[e.Token] != "" {
				w.t.Errorf("%s of %s with token %d, which %d holds", e.Event, e.Key, e.Token, holds[e.Key])
			}
			holds[e.Key], grants[e.Token] = e.Token, e.Key
		case "lease_released", "lease_expired":
			if holds[e.Key] != e.Token {
				w.t.Errorf("%s of %s with token %d, which %d holds", e.Event, e.Key, e.Token, holds[e.Key])
			}
			delete(holds, e.Key)
			releases[e.Token] = e.Event == "lease_released"
		case "task_enqueued", "task_completed":
			moves[e.Event+e.TaskID]++
		}
	}
	for token, key := range w.granted {
		if grants[token] != key {
			w.t.Errorf("the grant of %s with token %d is not among the events", key, token)
		}
	}
	for token := range w.released {
		if !releases[token] {
			w.t.Errorf("the release of %s with token %d is not among the events", w.granted[token], token)
		}
	}
	for id, task := range l.tasks {
		if n := moves["task_enqueued"+id]; n != 1 {
			w.t.Errorf("task %s was enqueued %d times", id, n)
		}
		if n := moves["task_completed"+id]; n > 1 || n == 0 && task.final == "completed" {
			w.t.Errorf("task %s was completed %d times", id, n)
		}
	}
	w.t.Logf("%d events, %d grants and %d releases acknowledged", len(w.seen), len(w.granted), len(w.released))
}

// lease takes a lease that others want too, or gives back one that the client has.
func (c *loadClient) lease(ctx context.Context) {
	w := c.ledger.witness
	for key, l := range c.leases {
		delete(c.leases, key)
		var got struct{ Released bool }
		if c.call(ctx, "run_lease_release", map[string]any{"lease_id": l.id}, &got) == nil && got.Released {
			w.mu.Lock()
			w.released[l.token] = true
			w.mu.Unlock()
		}
		return
	}
	key := fmt.Sprint("k", c.rnd.IntN(4))
	var got struct {
		LeaseID string `json:"lease_id"`
		Token   uint64
	}
	args := map[string]any{"key": key, "ttl_secs": 30, "wait_secs": c.rnd.Float64() / 10}
	if c.call(ctx, "run_lease_acquire", args, &got) == nil {
		c.leases[key] = heldByLoad{id: got.LeaseID, token: got.Token}
		w.mu.Lock()
		w.granted[got.Token] = key
		w.mu.Unlock()
	}
}

// mayRefuse are the refusals that the load may meet.
func mayRefuse(err error) bool {
	var refusal *client.Refusal
	if !errors.As(err, &refusal) {
		return false
	}
	switch refusal.Code {
	case "STALE_TOKEN", "LEASE_HELD", "WAIT_TIMEOUT":
		return true
	}
	return false
}

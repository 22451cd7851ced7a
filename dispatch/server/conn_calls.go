package server

import (
	"context"
	"errors"
	"sync"

	"github.com/leasehold/leasehold/dispatch/server/wire"
	"github.com/leasehold/leasehold/registry"
)

var (
	// errDuplicateID answers a request whose id another one has that is not
	// answered yet.
	errDuplicateID = errors.New("a request with this id is not answered yet")

	// errCancelled is the cause of a call that its client cancelled.
	errCancelled = errors.New("cancelled by the client")
)

// calls are a client's requests that are not answered yet. The zero value is
// ready.
type calls struct {
	mu      sync.Mutex
	running map[string]*call
	waits   int // slots taken, each until its answer is written
	others  int
	bytes   int
	closed  error // why nothing begins any more
}

// A call is one request under way.
type call struct {
	ctx      context.Context
	cancel   context.CancelCauseFunc
	key      string
	waits    bool
	bytes    int
	unwanted bool // nobody reads an answer; under calls.mu
}

// begin takes a slot for a request, in ctx.
func (t *calls) begin(ctx context.Context, env *wire.Message, bytes int) (*call, error) {
	c := &call{key: env.Key, waits: env.Waits(), bytes: bytes}
	t.mu.Lock()
	defer t.mu.Unlock()
	taken := t.slots(c)
	switch {
	case t.closed != nil:
		return nil, t.closed
	case t.running[c.key] != nil:
		return nil, errDuplicateID
	case c.waits && *taken >= maxWaits:
		return nil, &registry.LimitError{Which: "waiting calls of one connection", Max: maxWaits}
	case *taken >= maxCalls:
		return nil, &registry.LimitError{Which: "calls under way on one connection", Max: maxCalls}
	case t.bytes > 0 && t.bytes+bytes > maxCallBytes:
		return nil, &registry.LimitError{Which: "bytes of calls under way on one connection", Max: maxCallBytes}
	}
	*taken++
	t.bytes += bytes
	if t.running == nil {
		t.running = make(map[string]*call)
	}
	t.running[c.key] = c
	c.ctx, c.cancel = context.WithCancelCause(ctx)
	return c, nil
}

func (t *calls) slots(c *call) *int {
	if c.waits {
		return &t.waits
	}
	return &t.others
}

// settle ends a call whose answer is there, and reports whether it is wanted.
// Its id is free from here on: a client may use it again as soon as it reads
// the answer.
func (t *calls) settle(c *call) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.running[c.key] == c {
		delete(t.running, c.key)
	}
	c.cancel(nil)
	return !c.unwanted
}

// free gives back the slot of a settled call, once its answer is written: a
// peer that does not read cannot ask for more and more.
func (t *calls) free(c *call) {
	t.mu.Lock()
	defer t.mu.Unlock()
	*t.slots(c)--
	t.bytes -= c.bytes
}

// cancel ends a call that its client gave up. It gets no answer, so its id is
// free.
func (t *calls) cancel(key string, cause error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c := t.running[key]; c != nil {
		c.unwanted = true
		c.cancel(cause)
		delete(t.running, key)
	}
}

// cancelAll ends every call, and lets none begin.
func (t *calls) cancelAll(cause error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = cause
	for _, c := range t.running {
		c.cancel(cause)
	}
}

// drain lets nothing begin and ends the calls that wait, without an answer:
// whoever comes back asks again. The others go on.
func (t *calls) drain(cause error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = cause
	for _, c := range t.running {
		if c.waits {
			c.unwanted = true
			c.cancel(cause)
		}
	}
}

package queue

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/call"
	"github.com/leasehold/leasehold/engine/record"
	"github.com/leasehold/leasehold/registry"
)

// A waiter is a claim on its way. While it waits it has a row in the line of each
// of its queues, in memory only: so an error takes its place back with all else
// that a transaction did.
type waiter struct {
	Claim
	ctx    context.Context
	call   call.Call
	named  bool // the client can send the call again
	lines  []line
	number uint64 // in the order of asking; 0: it does not wait
	joined bool   // it was in line
}

func newWaiter(ctx context.Context, c Claim) *waiter {
	w := &waiter{Claim: c, ctx: ctx, call: call.Of(ctx)}
	w.named = w.call.Recorded() || c.RequestID != ""
	if !w.call.Recorded() && (c.Wait > 0 || c.RequestID != "") {
		w.call = call.Unnamed(c.Holder.Session)
	}
	if c.RequestID != "" {
		print := call.PrintOf(append([]string{strconv.Itoa(c.Count), c.TTL.String()}, c.Queues...)...)
		w.call = w.call.Requested(c.Holder.Session, c.RequestID, print)
	}
	for _, name := range c.Queues {
		if l := lineOf(c.Run, name); !slices.Contains(w.lines, l) {
			w.lines = append(w.lines, l)
		}
	}
	return w
}

// keepAnswer is how long the claim's answer is kept. One with a request_id is
// known as long as its tasks are the session's, if nobody extends them.
func (w *waiter) keepAnswer() time.Duration {
	if w.RequestID == "" {
		return call.Keep
	}
	return w.TTL + call.Keep
}

func (w *waiter) rowIn(l line) string { return waiterKeys(l) + record.Fixed(w.number) }

func (w *waiter) joinLines(tx engine.Tx) {
	for _, l := range w.lines {
		tx.Touch(engine.Row{Key: w.rowIn(l)})
	}
}

func (w *waiter) leaveLines(tx engine.Tx) {
	if !w.joined {
		return
	}
	for _, l := range w.lines {
		tx.Delete(w.rowIn(l))
	}
}

func (w *waiter) inLine(tx engine.Tx) bool {
	_, ok := tx.Get(w.rowIn(w.lines[0]))
	return ok
}

// giveToWaiter gives a task that becomes ready to the first claim that waits for
// one there. It reports false if nobody does.
func (q *Queue) giveToWaiter(tx *ledger, t *Task) bool {
	w := q.nextWaiter(tx, t.line)
	if w == nil {
		return false
	}
	claimed := q.begin(tx, t, w.Holder, w.TTL)
	w.call.Record(tx, ClaimKind, encodeGrants(claimed), w.keepAnswer()) // wakes it
	return true
}

// nextWaiter takes the first claim that still waits out of a line; nil: there is
// none. Claims that are gone are removed on the way, and so are those that
// another call of the same request has answered.
func (q *Queue) nextWaiter(tx *ledger, l line) *waiter {
	if q.room.empty() {
		return nil // mostly
	}
	if isPaused(tx, l) {
		return nil
	}
	for row := range tx.Scan(waiterKeys(l)) {
		w := q.room.waiter(record.ReadFixed(row.Key[len(row.Key)-8:]))
		if w == nil {
			tx.Delete(row.Key)
			continue
		}
		for _, l := range w.lines {
			tx.Delete(w.rowIn(l))
		}
		if w.ctx.Err() != nil || !q.core.Open(tx, w.Holder.Session) {
			continue
		}
		if _, answered, err := w.call.Answered(tx, ClaimKind); answered || err != nil {
			continue // its watch has woken it
		}
		return w
	}
	return nil
}

// A waitingRoom knows the claims of this process that wait. Its zero value is
// empty.
type waitingRoom struct {
	mu      sync.Mutex
	last    uint64 // number that was given
	waiters map[uint64]*waiter
	counts  map[any]int // by an actor's id, and by a line
}

// enter registers a claim before it has a place in any line.
func (r *waitingRoom) enter(w *waiter) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.waiters == nil {
		r.waiters, r.counts = make(map[uint64]*waiter), make(map[any]int)
	}
	r.last++
	w.number = r.last
	r.waiters[w.number] = w
	r.countLocked(w, 1)
}

// mayWait refuses a claim that is one too many.
func (r *waitingRoom) mayWait(w *waiter, opts *Options) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.counts[w.Holder.Actor] > opts.MaxWaitsPerActor {
		return &registry.LimitError{Which: "claims of one actor that wait", Max: int64(opts.MaxWaitsPerActor)}
	}
	for _, l := range w.lines {
		if r.counts[l] > opts.MaxWaitsPerQueue {
			return &registry.LimitError{Which: "claims that wait at queue " + l.queue(), Max: int64(opts.MaxWaitsPerQueue)}
		}
	}
	return nil
}

func (r *waitingRoom) countLocked(w *waiter, n int) {
	keys := []any{w.Holder.Actor}
	for _, l := range w.lines {
		keys = append(keys, l)
	}
	for _, key := range keys {
		if r.counts[key] += n; r.counts[key] == 0 {
			delete(r.counts, key)
		}
	}
}

func (r *waitingRoom) leave(w *waiter) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.waiters, w.number)
	r.countLocked(w, -1)
}

func (r *waitingRoom) waiter(number uint64) *waiter {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.waiters[number]
}

func (r *waitingRoom) empty() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.waiters) == 0
}

package queue

import (
	"context"
	"slices"
	"strconv"
	"sync"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/call"
	"github.com/leasehold/leasehold/engine/record"
	"github.com/leasehold/leasehold/registry"
)

// A waiter is a claim that is being answered. While it waits, it has a row in
// the line of each of its queues. The rows are in memory only; if a transaction
// fails, their changes are undone with the rest.
type waiter struct {
	Claim
	ctx    context.Context
	call   call.Call
	named  bool // the client can send the call again
	lines  []line
	number uint64 // in the order of asking; 0 if it cannot wait
	joined bool   // it has been in line
}

func newWaiter(ctx context.Context, c Claim) *waiter {
	w := &waiter{Claim: c, ctx: ctx, call: call.Asked(ctx, c.Holder.Session, c.Wait > 0)}
	w.named = call.Of(ctx).Recorded() || c.RequestID != ""
	if c.RequestID != "" {
		print := call.PrintOf(append([]string{c.Holder.Party, strconv.Itoa(c.Count), c.TTL.String()}, c.Queues...)...)
		w.call = w.call.Requested(c.Holder.Session, c.RequestID, print)
	}
	for _, name := range c.Queues {
		if l := lineOf(c.Run, name); !slices.Contains(w.lines, l) {
			w.lines = append(w.lines, l)
		}
	}
	return w
}

// answer records the tasks as the claim's answer, which wakes it if it waits.
// With a request_id, the answer is kept for as long as the session holds the
// tasks if nobody extends them.
func (w *waiter) answer(tx engine.Tx, tasks ...Claimed) {
	r := record.New(20 * len(tasks))
	for i := range tasks {
		r.ID(tasks[i].ID)
		r.Uint(tasks[i].Token)
	}
	keep := call.Keep
	if w.RequestID != "" {
		keep += w.TTL
	}
	w.call.Record(tx, ClaimKind, r.String(), keep)
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

// giveToWaiter gives a task that becomes ready to the first claim waiting for
// it. It reports false if no claim waits.
func (q *Queue) giveToWaiter(tx *ledger, t *Task) bool {
	w := q.nextWaiter(tx, t.line)
	if w == nil {
		return false
	}
	w.answer(tx, q.begin(tx, t, w.Holder, w.TTL))
	return true
}

// nextWaiter removes the first claim that still waits from a line and returns
// it, or nil if there is none. It also removes claims that are gone, and claims
// that another call with the same request_id has already answered.
func (q *Queue) nextWaiter(tx *ledger, l line) *waiter {
	if q.room.empty() || isPaused(tx, l) {
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
			continue // its watch has already woken it
		}
		return w
	}
	return nil
}

// A waitingRoom has the claims of this process that may wait. Its zero value is
// empty.
type waitingRoom struct {
	mu      sync.Mutex
	last    uint64 // the last number given
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

// mayWait refuses a claim that would exceed a limit.
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

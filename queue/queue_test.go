package queue_test

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/clock"
	"github.com/leasehold/leasehold/engine/pebble"
	"github.com/leasehold/leasehold/queue"
	"github.com/leasehold/leasehold/registry"
)

// A house is a queue over a real engine on a file system in memory, with its
// due rows tended as the daemon tends them.
type house struct {
	*queue.Queue
	t    tb
	fs   *vfs.MemFS
	disk vfs.FS // fs, or what stands before it
	eng  *pebble.Engine
	core *registry.Core
	run  uuid.UUID
	opts queue.Options

	updates *atomic.Int64 // if not nil, they are counted, and each has run for as long as it may

	clock clock.Clock
	stop  context.CancelFunc
	done  chan error

	mu    sync.Mutex
	ended map[uuid.UUID]bool // sessions
}

// Submit finishes a task without a fence.
func (h *house) Submit(ctx context.Context, by registry.Holder, run, id uuid.UUID, token uint64, state queue.State, result json.RawMessage) (queue.Task, error) {
	return h.Queue.Submit(ctx, by, run, queue.Submission{ID: id, Token: token, State: state, Result: result})
}

// tb is what a house needs of a test, be it one or a round of a random one.
type tb interface {
	rapid.TB
	Context() context.Context
}

// inHouse runs a story in a bubble of fake time. Backoff is the longest there
// can be, so that its times are known.
func inHouse(t *testing.T, story func(t *testing.T, h *house)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t)
		defer h.close()
		story(t, h)
	})
}

// A spentEngine's transactions have run for as long as they may.
type spentEngine struct {
	engine.Engine
	updates *atomic.Int64
}

type spentTx struct{ engine.Tx }

func (spentTx) Spent() bool { return true }

func (e spentEngine) Update(ctx context.Context, fn func(engine.Tx) error) error {
	e.updates.Add(1)
	return e.Engine.Update(ctx, func(tx engine.Tx) error { return fn(spentTx{tx}) })
}

func newHouse(t tb, opts ...func(*queue.Options)) *house {
	h := &house{t: t, fs: vfs.NewCrashableMem(), run: uuid.New(), ended: make(map[uuid.UUID]bool)}
	h.opts.Rand = func(n int64) int64 { return n - 1 }
	for _, set := range opts {
		set(&h.opts)
	}
	h.open()
	return h
}

// newClockHouse is newHouse with a clock of the test's.
func newClockHouse(t tb, c clock.Clock) *house {
	h := &house{t: t, fs: vfs.NewCrashableMem(), run: uuid.New(), ended: make(map[uuid.UUID]bool), clock: c}
	h.opts.Rand = func(n int64) int64 { return n - 1 }
	h.open()
	return h
}

func (h *house) open() {
	h.t.Helper()
	var err error
	disk := h.disk
	if disk == nil {
		disk = h.fs
	}
	if h.eng, err = pebble.Open(pebble.Options{Dir: "state", FS: disk, Clock: h.clock}); err != nil {
		h.t.Fatal(err)
	}
	h.core = registry.New(h.eng, registry.Options{SessionOpen: func(_ registry.Tx, s uuid.UUID) bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return !h.ended[s]
	}})
	var eng engine.Engine = h.eng
	if h.updates != nil {
		eng = spentEngine{eng, h.updates}
	}
	h.Queue = queue.New(eng, h.core, h.opts)
	if err := errors.Join(h.core.Recover(context.Background()), h.Recover(context.Background())); err != nil {
		h.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	h.stop, h.done = stop, make(chan error, 1)
	go func() { h.done <- h.tend(ctx) }()
}

func (h *house) tend(ctx context.Context) error {
	for {
		if err := h.eng.WaitDue(ctx); err != nil {
			return nil
		}
		err := h.TendDue(ctx)
		if err != nil && ctx.Err() == nil {
			return err
		}
	}
}

func (h *house) close() {
	h.t.Helper()
	h.check()
	h.stop()
	if err := <-h.done; err != nil {
		h.t.Error(err)
	}
	if err := errors.Join(h.eng.Check(), h.eng.Close()); err != nil {
		h.t.Error(err)
	}
}

// eventRows is what the keys of events start with, which package dispatch forgets.
const eventRows = "~event/"

// coldRows are those of this package.
func coldRows(tx engine.Tx) iter.Seq[engine.Row] {
	return func(yield func(engine.Row) bool) {
		for row := range tx.Scan(engine.Cold) {
			if !strings.HasPrefix(row.Key, eventRows) && !yield(row) {
				return
			}
		}
	}
}

// crash loses what was not synced and opens what is left.
func (h *house) crash() {
	h.t.Helper()
	left := h.fs.CrashClone(vfs.CrashCloneCfg{})
	h.close()
	h.fs = left
	h.open()
	h.check()
}

func (h *house) check() {
	h.t.Helper()
	err := h.eng.View(context.Background(), func(tx engine.Tx) error {
		return errors.Join(h.core.Check(tx), h.Check(tx))
	})
	if err != nil {
		h.t.Fatal(err)
	}
}

// Check, Cancel, Redrive, List and Stats are the queue's, in the shortest form. A queue that has
// no tasks counts nothing.
func (h *house) Check(tx engine.Tx) error { return h.Queue.Check(tx, nil) }

func (h *house) Cancel(ctx context.Context, run, id uuid.UUID) (queue.Task, error) {
	return h.Queue.Cancel(ctx, run, id, "boss", nil)
}

func (h *house) Redrive(ctx context.Context, run uuid.UUID, name string, ids []uuid.UUID) ([]uuid.UUID, error) {
	return h.Queue.Redrive(ctx, run, name, ids, nil)
}

func (h *house) List(ctx context.Context, run uuid.UUID, name string, state queue.State, limit int) ([]queue.Task, error) {
	list, _, err := h.Queue.List(ctx, run, name, state, "", limit)
	return list, err
}

func (h *house) Stats(ctx context.Context, run uuid.UUID, name string) ([]queue.Stats, error) {
	if name == "" {
		list, more, err := h.AllStats(ctx, run, "", queue.MaxStats)
		if more {
			h.t.Error("more queues than one listing gives")
		}
		return list, err
	}
	s, err := h.Queue.Stats(ctx, run, name)
	if errors.Is(err, queue.ErrNoQueue) {
		return []queue.Stats{{Queue: name}}, nil
	}
	return []queue.Stats{s}, err
}

func (h *house) enqueue(n queue.NewTask) queue.Task {
	h.t.Helper()
	n.Run = h.run
	if n.Queue == "" {
		n.Queue = "q"
	}
	if n.Payload == nil {
		n.Payload = json.RawMessage(`{}`)
	}
	task, err := h.Enqueue(h.t.Context(), n)
	if err != nil {
		h.t.Fatal(err)
	}
	return task
}

// A worker is one session that claims.
type worker struct {
	registry.Holder
	h *house
}

func (h *house) worker(path string) worker {
	return worker{registry.Holder{Session: uuid.New(), Actor: uuid.New(), Path: path}, h}
}

func (w worker) again() worker {
	w.Session = uuid.New()
	return w
}

func (w worker) ask(c queue.Claim) ([]queue.Claimed, error) {
	return w.askCtx(w.h.t.Context(), c)
}

func (w worker) askCtx(ctx context.Context, c queue.Claim) ([]queue.Claimed, error) {
	c.Run, c.Holder = w.h.run, w.Holder
	if c.Queues == nil {
		c.Queues = []string{"q"}
	}
	if c.TTL == 0 {
		c.TTL = time.Minute
	}
	return w.h.Claim(ctx, c)
}

func (w worker) claim(c queue.Claim) queue.Claimed {
	w.h.t.Helper()
	tasks, err := w.ask(c)
	if err != nil || len(tasks) != 1 {
		w.h.t.Fatalf("%s claims: %v %v", w.Path, tasks, err)
	}
	return tasks[0]
}

func (w worker) none() {
	w.h.t.Helper()
	tasks, err := w.ask(queue.Claim{})
	if err != nil || len(tasks) != 0 {
		w.h.t.Fatalf("%s claims %v %v, want nothing", w.Path, tasks, err)
	}
}

func (w worker) submit(c queue.Claimed) error {
	_, err := w.h.Submit(w.h.t.Context(), w.Holder, w.h.run, c.ID, c.Token, queue.Completed, json.RawMessage(`"done"`))
	return err
}

func (w worker) die() {
	w.h.t.Helper()
	w.h.mu.Lock()
	w.h.ended[w.Session] = true
	w.h.mu.Unlock()
	err := w.h.eng.Update(context.Background(), func(tx engine.Tx) error {
		for !w.h.core.EndSession(tx, w.Session, 1<<30) {
		}
		return nil
	})
	if err != nil {
		w.h.t.Fatal(err)
	}
}

func (h *house) get(id uuid.UUID) queue.Detail {
	h.t.Helper()
	d, err := h.Get(h.t.Context(), h.run, id)
	if err != nil {
		h.t.Fatal(err)
	}
	return d
}

func (h *house) inState(id uuid.UUID, want queue.State) queue.Detail {
	h.t.Helper()
	d := h.get(id)
	if d.State != want {
		h.t.Fatalf("task is %s, want %s", d.State, want)
	}
	return d
}

func mustBe[E error](t *testing.T, err error) (as E) {
	t.Helper()
	if !errors.As(err, &as) {
		t.Fatalf("error is %T (%v), want %T", err, err, as)
	}
	return as
}

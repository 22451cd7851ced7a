package queue_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine/pebble"
	"github.com/leasehold/leasehold/queue"
	"github.com/leasehold/leasehold/registry"
)

// A diskHouse is a queue on the real disk, with nobody who tends it unless a
// benchmark does. Somebody waits for what is due, or the engine would refuse
// updates.
type diskHouse struct {
	*queue.Queue
	tb   testing.TB
	dir  string
	eng  *pebble.Engine
	core *registry.Core
	run  uuid.UUID
	stop func() // ends the wait for what is due
}

func openOnDisk(tb testing.TB, dir string, run uuid.UUID) *diskHouse {
	tb.Helper()
	eng, err := pebble.Open(pebble.Options{Dir: dir, Logf: tb.Logf})
	if err != nil {
		tb.Fatal(err)
	}
	core := registry.New(eng, registry.Options{})
	ctx, cancel := context.WithCancel(context.Background())
	waited := make(chan error, 1)
	go func() { waited <- eng.WaitDue(ctx) }()
	h := &diskHouse{queue.New(eng, core, queue.Options{}), tb, dir, eng, core, run, func() { cancel(); <-waited }}
	if err := errors.Join(core.Recover(context.Background()), h.Recover(context.Background())); err != nil {
		tb.Fatal(err)
	}
	return h
}

func (h *diskHouse) close() {
	h.tb.Helper()
	h.stop()
	if err := h.eng.Close(); err != nil {
		h.tb.Fatal(err)
	}
}

// reopen is a restart.
func (h *diskHouse) reopen() *diskHouse {
	h.tb.Helper()
	h.close()
	return openOnDisk(h.tb, h.dir, h.run)
}

// fill enqueues n tasks, many at a time.
func (h *diskHouse) fill(n int) {
	h.tb.Helper()
	var wg sync.WaitGroup
	const hands = 64
	payload := json.RawMessage(`{"what": "a task of a backlog"}`)
	for hand := range hands {
		wg.Go(func() {
			for i := hand; i < n; i += hands {
				if _, err := h.Enqueue(context.Background(), queue.NewTask{Run: h.run, Queue: "q", Payload: payload}); err != nil {
					h.tb.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}

func (h *diskHouse) claimFor(w registry.Holder, count int, ttl time.Duration) []queue.Claimed {
	h.tb.Helper()
	tasks, err := h.Claim(context.Background(), queue.Claim{Run: h.run, Queues: []string{"q"}, Holder: w, TTL: ttl, Count: count})
	if err != nil {
		h.tb.Fatal(err)
	}
	return tasks
}

func someHolder() registry.Holder {
	return registry.Holder{Session: uuid.New(), Actor: uuid.New(), Path: "S1→W2"}
}

var (
	backlog   = 100_000
	heapTells = true // what the backlog takes
)

// TestABacklogIsClaimedInOrderAfterARestart restarts before 100 000 ready tasks
// and again amid them. All are claimed, in the order in which they came, and the
// last claims cost what the first did. While they wait they take no memory.
func TestABacklogIsClaimedInOrderAfterARestart(t *testing.T) {
	if testing.Short() {
		t.Skip("writes 100 000 tasks to the disk")
	}
	const batch = 100
	tasks := backlog
	h := openOnDisk(t, t.TempDir(), uuid.New())
	h.fill(tasks / 10)
	h = h.reopen()
	few := heap()
	began := time.Now()
	h.fill(tasks - tasks/10)
	t.Logf("enqueued in %v", time.Since(began).Round(time.Millisecond))
	began = time.Now()
	h = h.reopen()
	many := heap()
	t.Logf("reopened in %v; heap %.1f MB with a tenth of the tasks, %.1f MB with all", time.Since(began).Round(time.Millisecond), few/1e6, many/1e6)
	if grown := (many - few) / float64(tasks-tasks/10); heapTells && grown > 20 { // a task has over 200 bytes
		t.Errorf("%.0f bytes for each task of the backlog", grown)
	}

	w := someHolder()
	var costs []time.Duration
	var last time.Time
	seen := make(map[uuid.UUID]bool, tasks)
	claim := func() bool {
		began := time.Now()
		got := h.claimFor(w, batch, 24*time.Hour)
		costs = append(costs, time.Since(began))
		for _, c := range got {
			if seen[c.ID] || c.EnqueuedAt.Before(last) {
				t.Fatalf("claim %d: task %s came again (%v), or after a later one", len(costs), c.ID, seen[c.ID])
			}
			seen[c.ID], last = true, c.EnqueuedAt
		}
		return len(got) > 0
	}
	for range tasks / batch / 2 {
		claim()
	}
	h = h.reopen()
	for claim() {
	}
	if len(seen) != tasks {
		t.Fatalf("claimed %d of %d", len(seen), tasks)
	}
	after := costs[tasks/batch/2]
	tenth := len(costs) / 10
	// The cheapest of each: whatever else the machine does makes some dearer, and not all.
	first, final := slices.Min(costs[:tenth]), slices.Min(costs[len(costs)-tenth-1:len(costs)-1])
	t.Logf("a claim of %d: %v at first, %v in the end, %v just after the second restart", batch, first, final, after)
	if final > 4*first {
		t.Errorf("claims cost %v at first and %v in the end", first, final)
	}
	h.close()
}

func heap() float64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

func median[T cmp.Ordered](list []T) T {
	return slices.Sorted(slices.Values(list))[len(list)/2]
}

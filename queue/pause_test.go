package queue_test

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/uuid"

	"github.com/leasehold/leasehold/queue"
)

// A paused queue gives no task to anybody, also after a crash, and other queues do.
// Once it is resumed, those who wait get what is ready in the order in which they came.
func TestAPausedQueueGivesNothing(t *testing.T) {
	inHouse(t, func(t *testing.T, h *house) {
		if _, err := h.Pause(t.Context(), h.run, "none", "operator", "no reason"); !errors.Is(err, queue.ErrNoQueue) {
			t.Errorf("a queue that is not there: %v", err)
		}
		first := h.enqueue(queue.NewTask{Queue: "a"})
		for _, changes := range []bool{true, false} {
			if paused, err := h.Pause(t.Context(), h.run, "a", "operator", "they fail"); err != nil || paused != changes {
				t.Fatalf("paused: %v %v", paused, err)
			}
		}
		h.crash()
		stats, err := h.Stats(t.Context(), h.run, "a")
		if err != nil || !stats[0].Paused || stats[0].PauseReason != "they fail" {
			t.Errorf("it stands as %+v, %v", stats, err)
		}
		if got, err := h.worker("W1").ask(queue.Claim{Queues: []string{"a"}}); len(got) > 0 || err != nil {
			t.Errorf("a paused queue gave %v, %v", got, err)
		}
		other := h.enqueue(queue.NewTask{Queue: "b"})
		if got, err := h.worker("W1").ask(queue.Claim{Queues: []string{"a", "b"}, Count: 5}); err != nil || len(got) != 1 || got[0].ID != other.ID {
			t.Errorf("beside a paused queue there was %v, %v", got, err)
		}

		given := make(chan queue.Claimed, 2)
		for _, name := range []string{"W2", "W3"} {
			w := h.worker(name)
			go func() {
				got, err := w.ask(queue.Claim{Queues: []string{"a"}, Wait: 40 * time.Second})
				if err != nil || len(got) != 1 {
					t.Errorf("%s got %v, %v", name, got, err)
					got = make([]queue.Claimed, 1)
				}
				given <- got[0]
			}()
			synctest.Wait() // it is in line
		}
		second := h.enqueue(queue.NewTask{Queue: "a"})
		synctest.Wait()
		if len(given) > 0 {
			t.Error("a task of a paused queue was handed to a claim that waited")
		}
		h.check()
		for _, changes := range []bool{true, false} {
			if resumed, err := h.Resume(t.Context(), h.run, "a", "operator"); err != nil || resumed != changes {
				t.Fatalf("resumed: %v %v", resumed, err)
			}
		}
		got := map[string]queue.Claimed{}
		for range 2 {
			c := <-given
			got[c.Attempts[0].Path] = c
		}
		if got["W2"].ID != first.ID || got["W3"].ID != second.ID {
			t.Errorf("W2 got %v and W3 %v, want %v and %v", got["W2"].ID, got["W3"].ID, first.ID, second.ID)
		}
	})
}

// Those who wait at a queue that is resumed are served in several transactions, and
// whoever comes meanwhile comes after them.
func TestAResumedQueueHoldsUpNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &house{t: t, fs: vfs.NewCrashableMem(), run: uuid.New(), ended: make(map[uuid.UUID]bool), updates: new(atomic.Int64)}
		h.open()
		defer h.close()
		const n = 20
		h.enqueue(queue.NewTask{Queue: "a"})
		if _, err := h.Pause(t.Context(), h.run, "a", "operator", ""); err != nil {
			t.Fatal(err)
		}
		var order []string // of the tasks, by who waits
		var all sync.WaitGroup
		var mu sync.Mutex
		got := make(map[string]queue.Claimed)
		for i := range n {
			name := fmt.Sprint("W", i)
			order = append(order, name)
			w := h.worker(name)
			all.Go(func() {
				claimed, err := w.ask(queue.Claim{Queues: []string{"a"}, Wait: 40 * time.Second})
				if err != nil || len(claimed) != 1 {
					t.Errorf("%s got %v, %v", name, claimed, err)
					return
				}
				mu.Lock()
				defer mu.Unlock()
				got[name] = claimed[0]
			})
			synctest.Wait()
		}
		tasks := []string{}
		for range n {
			tasks = append(tasks, h.enqueue(queue.NewTask{Queue: "a"}).ID.String())
		}
		before := h.updates.Load()
		if resumed, err := h.Resume(t.Context(), h.run, "a", "operator"); err != nil || !resumed {
			t.Fatalf("resumed: %v %v", resumed, err)
		}
		if steps := h.updates.Load() - before; steps < n {
			t.Errorf("%d claims were served in %d transactions", n, steps)
		}
		all.Wait()
		for i, name := range order[1:] {
			if id := got[name].ID.String(); id != tasks[i] {
				t.Errorf("%s got %s, and not %s", name, id, tasks[i])
			}
		}
		stats, err := h.Stats(t.Context(), h.run, "a")
		if err != nil || stats[0].Paused || stats[0].ReadyTotal() != 1 {
			t.Errorf("it stands as %+v, %v", stats, err)
		}
	})
}

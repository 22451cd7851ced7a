package queue_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold/engine/clock"
	"github.com/leasehold/leasehold/queue"
)

// stepped has the wall clock of a house moved by what the function is told.
func stepped(t *testing.T, story func(t *testing.T, h *house, step func(by time.Duration))) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		seam := clock.Go()
		seam.Sleeps = true   // so the engine looks at the clock every second
		var off atomic.Int64 // the engine looks while the story steps
		seam.Wall = func() time.Time { return time.Now().Add(time.Duration(off.Load())) }
		h := newClockHouse(t, seam)
		defer h.close()
		story(t, h, func(by time.Duration) { synctest.Wait(); off.Add(int64(by)) })
	})
}

// TestAStepOfTheWallClockMovesNoDelayAndEveryRunAt steps it, with and without a
// restart, and looks when each task becomes ready by the running clock.
func TestAStepOfTheWallClockMovesNoDelayAndEveryRunAt(t *testing.T) {
	for name, c := range map[string]struct {
		by      time.Duration
		restart bool
	}{
		"forward": {time.Hour, false}, "back": {-time.Hour, false},
		"forward and a restart": {time.Hour, true}, "back and a restart": {-time.Hour, true},
	} {
		t.Run(name, func(t *testing.T) {
			stepped(t, func(t *testing.T, h *house, step func(time.Duration)) {
				const delay, runAt = 90 * time.Minute, 2 * time.Hour
				delayed := h.enqueue(queue.NewTask{Delay: delay})
				timed := h.enqueue(queue.NewTask{RunAt: time.Now().Add(runAt)})
				w := h.worker("W1")
				h.enqueue(queue.NewTask{Queue: "claimed"})
				claimed := w.claim(queue.Claim{Queues: []string{"claimed"}, TTL: 10 * time.Minute})
				began := time.Now()
				time.Sleep(time.Minute)
				step(c.by)
				if c.restart {
					h.crash()
				}
				if d := h.get(timed.ID); !d.DueAt.Equal(began.Add(runAt)) {
					t.Errorf("run_at is shown as %v, want %v", d.DueAt, began.Add(runAt))
				}
				if d := h.get(delayed.ID); !d.DueAt.Equal(began.Add(delay + c.by)) {
					t.Errorf("a delay is shown to end at %v, want %v", d.DueAt, began.Add(delay+c.by))
				}
				if left := h.get(claimed.ID).ExpiresIn; left > 10*time.Minute || left < 9*time.Minute {
					t.Errorf("the claim has %v left", left)
				}
				ready := func(task queue.Task, after time.Duration) {
					t.Helper()
					time.Sleep(time.Until(began.Add(after - 2*time.Second)))
					synctest.Wait()
					h.inState(task.ID, queue.Delayed)
					time.Sleep(4 * time.Second)
					synctest.Wait()
					h.inState(task.ID, queue.Ready)
				}
				if c.by > 0 { // run_at comes an hour sooner, in half of the time
					ready(timed, runAt-c.by)
					ready(delayed, delay)
				} else {
					ready(delayed, delay)
					ready(timed, runAt-c.by)
				}
			})
		})
	}
}

func TestAStepOfTheWallClockForgetsNoTaskTooSoonByTheWall(t *testing.T) {
	stepped(t, func(t *testing.T, h *house, step func(time.Duration)) {
		h.enqueue(queue.NewTask{})
		w := h.worker("W1")
		c := w.claim(queue.Claim{})
		if err := w.submit(c); err != nil {
			t.Fatal(err)
		}
		step(-time.Hour)
		late := h.enqueue(queue.NewTask{})
		other := w.claim(queue.Claim{})
		if err := w.submit(other); err != nil { // is to be forgotten before the first
			t.Fatal(err)
		}
		time.Sleep(24*time.Hour - 5*time.Second)
		h.inState(late.ID, queue.Completed)
		time.Sleep(10 * time.Second)
		if _, err := h.Get(t.Context(), h.run, late.ID); !errors.Is(err, queue.ErrNotFound) {
			t.Errorf("after its retention: %v", err)
		}
		h.inState(c.ID, queue.Completed)
		step(time.Hour)
		time.Sleep(5 * time.Second)
		if _, err := h.Get(t.Context(), h.run, c.ID); !errors.Is(err, queue.ErrNotFound) {
			t.Errorf("after a step to its retention: %v", err)
		}
	})
}

// A search begins where the last one has ended, unless something was added before that
// since.
func TestARunAtBeforeTheLastSearchIsMet(t *testing.T) {
	stepped(t, func(t *testing.T, h *house, step func(time.Duration)) {
		h.enqueue(queue.NewTask{RunAt: time.Now().Add(24 * time.Hour)})
		time.Sleep(time.Hour) // it looks now and then
		step(-2 * time.Hour)
		timed := h.enqueue(queue.NewTask{RunAt: time.Now().Add(-time.Hour)}) // in an hour, by the wall clock
		h.inState(timed.ID, queue.Delayed)
		time.Sleep(time.Hour + 2*time.Second)
		synctest.Wait()
		h.inState(timed.ID, queue.Ready)
	})
}

func TestARunAtTooFarIsRefusedByTheWallClockOfTheTransaction(t *testing.T) {
	stepped(t, func(t *testing.T, h *house, step func(time.Duration)) {
		at := time.Now().Add(queue.MaxDelay + time.Minute)
		n := queue.NewTask{Run: h.run, Queue: "q", Payload: []byte("1"), RunAt: at}
		if _, err := h.Enqueue(context.Background(), n); err == nil {
			t.Error("it is taken")
		}
		step(time.Hour)
		if _, err := h.Enqueue(context.Background(), n); err != nil {
			t.Error(err)
		}
	})
}

// A claim of a holder of this machine need not survive the machine: after a power
// cut its task is ready, as if nobody had claimed it, or claimed still.
func TestAfterAPowerCutALocalClaimMayNotHaveBeen(t *testing.T) {
	inHouse(t, func(t *testing.T, h *house) {
		lost := 0
		for range 20 {
			task := h.enqueue(queue.NewTask{})
			w := h.worker("W1")
			w.Local = true
			c := w.claim(queue.Claim{})
			after := h.restarted()
			if d := after.get(task.ID); d.State == queue.Ready && d.Attempt == 0 {
				lost++
			} else if d.State != queue.InProgress {
				t.Errorf("the task is %s after %d attempts", d.State, d.Attempt)
			}
			after.close()
			if err := w.submit(c); err != nil {
				t.Fatal(err)
			}
			after = h.restarted()
			after.inState(task.ID, queue.Completed) // a submit survives
			after.close()
		}
		if lost == 0 {
			t.Error("each claim was written to the disk before it was answered")
		}
	})
}

package queue_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/queue"
	"github.com/leasehold/leasehold/registry"
)

func TestQueuesTasksAndBytesAreBounded(t *testing.T) {
	inHouse(t, func(t *testing.T, h *house) {
		h.opts.MaxQueuesPerRun, h.opts.MaxQueuesPerActor, h.opts.MaxTasks, h.opts.MaxBytes = 5, 3, 4, 1000
		h.crash()
		a, b := uuid.New(), uuid.New()
		enqueue := func(actor uuid.UUID, name string, size int) error {
			return second(h.Enqueue(t.Context(), queue.NewTask{Run: h.run, Queue: name, Actor: actor, Payload: jsonOf(size)}))
		}
		taken := func(err error) {
			t.Helper()
			if err != nil {
				t.Error(err)
			}
		}
		refused := func(err error, which string) {
			t.Helper()
			if limit := mustBe[*registry.LimitError](t, err); !strings.Contains(limit.Which, which) {
				t.Errorf("refused by %v, want %q", limit, which)
			}
			h.check()
		}
		for n := range 3 {
			taken(enqueue(a, fmt.Sprint("a", n), 10))
		}
		refused(enqueue(a, "a3", 10), "begun by this actor")
		for n := range 2 {
			taken(enqueue(b, fmt.Sprint("b", n), 10))
		}
		refused(enqueue(b, "b2", 10), "queues of this run")
		_, err := h.EnqueueMany(t.Context(), []queue.NewTask{{Run: uuid.New(), Queue: "x", Actor: b, Payload: jsonOf(2)}, {Run: h.run, Queue: "b2", Actor: b, Payload: jsonOf(2)}})
		refused(err, "queues of this run")

		refused(enqueue(b, "a0", 1000), "bytes of tasks of queue a0")
		for range 3 {
			taken(enqueue(b, "a0", 100)) // another actor's queue
		}
		refused(enqueue(b, "a0", 10), "tasks of queue a0")
		h.crash()
		refused(enqueue(b, "a0", 10), "tasks of queue a0")
		refused(enqueue(a, "a3", 10), "queues")

		// What is finished does not count, and an empty queue is forgotten.
		w := h.worker("W1")
		for range 4 {
			taken(w.submit(w.claim(queue.Claim{Queues: []string{"a0"}})))
		}
		taken(enqueue(b, "a0", 990))
		taken(w.submit(w.claim(queue.Claim{Queues: []string{"a0"}})))
		refused(enqueue(a, "a3", 10), "queues")
		time.Sleep(25 * time.Hour)
		taken(enqueue(a, "a3", 10))
		if _, err := h.Queue.Stats(t.Context(), h.run, "a0"); !errors.Is(err, queue.ErrNoQueue) {
			t.Errorf("a queue without tasks: %v", err)
		}
		h.check()
	})
}

// TestAnActorBeginsAThousandQueues, unless another bound is configured.
func TestAnActorBeginsAThousandQueues(t *testing.T) {
	inHouse(t, func(t *testing.T, h *house) {
		actor := uuid.New()
		enqueue := func(queues ...string) error {
			tasks := make([]queue.NewTask, len(queues))
			for i, q := range queues {
				tasks[i] = queue.NewTask{Run: h.run, Queue: q, Actor: actor, Payload: json.RawMessage("1")}
			}
			_, err := h.EnqueueMany(t.Context(), tasks)
			return err
		}
		for n := range 10 {
			batch := make([]string, 100)
			for i := range batch {
				batch[i] = fmt.Sprint(n, "-", i)
			}
			if err := enqueue(batch...); err != nil {
				t.Fatal(err)
			}
		}
		if limit := mustBe[*registry.LimitError](t, enqueue("another")); limit.Max != 1000 {
			t.Errorf("refused by %+v", limit)
		}
	})
}

// TestThirtyThousandQueuesAreListedInPages and taken apart with their run, while
// no transaction sees to more than some.
func TestThirtyThousandQueuesAreListedInPages(t *testing.T) {
	if testing.Short() {
		t.Skip("makes 30 000 queues")
	}
	inHouse(t, func(t *testing.T, h *house) {
		const queues = 30_000
		h.opts.MaxQueuesPerRun = queues
		h.crash()
		for n := 0; n < queues; n += queue.MaxBatch {
			var list []queue.NewTask
			for i := range queue.MaxBatch {
				list = append(list, queue.NewTask{Run: h.run, Queue: fmt.Sprintf("q%05d", n+i), Payload: jsonOf(2)})
			}
			if _, err := h.EnqueueMany(t.Context(), list); err != nil {
				t.Fatal(err)
			}
		}
		n := 0
		for after, more := "", true; more; {
			var list []queue.Stats
			var err error
			if list, more, err = h.AllStats(t.Context(), h.run, after, 777); err != nil {
				t.Fatal(err)
			}
			for _, s := range list {
				if want := fmt.Sprintf("q%05d", n); s.Queue != want || s.Ready[0] != 1 {
					t.Fatalf("queue %d is %+v", n, s)
				}
				n++
				after = s.Queue
			}
		}
		if n != queues {
			t.Errorf("%d queues are listed", n)
		}
		h.stop()
		<-h.done
		h.rows(func(tx engine.Tx) { h.Drop(tx, h.run) })
		count := func() (n int) {
			h.rows(func(tx engine.Tx) {
				for range tx.Scan("queue/") {
					n++
				}
			})
			return n
		}
		steps := 0
		for was := count(); was > 0; steps++ {
			time.Sleep(time.Millisecond)
			if err := h.TendDue(context.Background()); err != nil {
				t.Fatal(err)
			}
			is := count()
			if was-is > 300 || is == was {
				t.Fatalf("one transaction has taken %d queues apart", was-is)
			}
			was = is
		}
		ctx, stop := context.WithCancel(context.Background())
		h.stop = stop
		go func() { h.done <- h.tend(ctx) }()
		synctest.Wait()
		h.rows(func(tx engine.Tx) {
			for row := range coldRows(tx) {
				t.Fatalf("row %.60q is left", row.Key)
			}
		})
		t.Logf("%d queues in %d steps", queues, steps)
	})
}

func TestTheStatsOfNoQueueAreRefused(t *testing.T) {
	inHouse(t, func(t *testing.T, h *house) {
		if _, _, err := h.Queue.List(t.Context(), h.run, "nothing", queue.Dead, "", 10); !errors.Is(err, queue.ErrNoQueue) {
			t.Error(err)
		}
		if _, err := h.Queue.Stats(t.Context(), h.run, "nothing"); !errors.Is(err, queue.ErrNoQueue) {
			t.Error(err)
		}
		if list, more, err := h.AllStats(t.Context(), h.run, "", 10); err != nil || more || len(list) != 0 {
			t.Error(list, more, err)
		}
	})
}

// A caller that is gone is not listed for.
func TestListingsEndWithTheirCaller(t *testing.T) {
	inHouse(t, func(t *testing.T, h *house) {
		for range 10 {
			h.enqueue(queue.NewTask{})
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if list, err := h.List(ctx, h.run, "q", queue.Ready, 100); !errors.Is(err, context.Canceled) {
			t.Errorf("%d tasks, %v", len(list), err)
		}
		if _, _, err := h.AllStats(ctx, h.run, "", 10); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

func TestCheckStopsWhenItIsTold(t *testing.T) {
	inHouse(t, func(t *testing.T, h *house) {
		list := make([]queue.NewTask, queue.MaxBatch)
		for i := range list {
			list[i] = queue.NewTask{Run: h.run, Queue: "q", Payload: jsonOf(2)}
		}
		for range 60 {
			if _, err := h.EnqueueMany(t.Context(), list); err != nil {
				t.Fatal(err)
			}
		}
		enough := errors.New("enough")
		rows := int64(0)
		err := h.eng.View(t.Context(), func(tx engine.Tx) error {
			return h.Queue.Check(tx, func(n int64) error { rows = n; return enough })
		})
		if !errors.Is(err, enough) || rows == 0 || rows > 12_000 {
			t.Errorf("after %d rows: %v", rows, err)
		}
	})
}

// Whatever is due at once is handled in transactions that end when they have taken
// long, also where all of it is of one queue.
func TestWhatIsDueAtOnceIsHandledInSteps(t *testing.T) {
	const n, most = 320, 32 // tasks, and how many of them in one transaction
	for name, prepare := range map[string]func(h *house){
		"delays": func(h *house) {
			for range n {
				h.enqueue(queue.NewTask{Queue: "a", Delay: time.Hour})
			}
			time.Sleep(time.Hour + time.Millisecond)
		},
		"delays of many queues": func(h *house) {
			for i := range n {
				h.enqueue(queue.NewTask{Queue: fmt.Sprint(i), Delay: time.Hour})
			}
			time.Sleep(time.Hour + time.Millisecond)
		},
		"a dropped run": func(h *house) {
			for range n {
				h.enqueue(queue.NewTask{Queue: "a"})
			}
			h.rows(func(tx engine.Tx) { h.Drop(tx, h.run) })
			time.Sleep(time.Millisecond)
		},
		"what is finished": func(h *house) {
			for range n {
				task := h.enqueue(queue.NewTask{Queue: "a"})
				if _, err := h.Cancel(h.t.Context(), h.run, task.ID); err != nil {
					h.t.Fatal(err)
				}
			}
			time.Sleep(time.Hour + time.Millisecond)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := &house{t: t, fs: vfs.NewCrashableMem(), run: uuid.New(), ended: map[uuid.UUID]bool{}, updates: new(atomic.Int64)}
				h.opts.Retention = time.Hour
				h.open()
				defer h.close()
				h.stop()
				h.done <- <-h.done // for close
				prepare(h)
				before := h.updates.Load()
				for due := true; due; {
					if err := h.TendDue(t.Context()); err != nil {
						t.Fatal(err)
					}
					h.rows(func(tx engine.Tx) {
						due = false
						for range tx.Due() {
							due = true
						}
					})
				}
				if steps := h.updates.Load() - before; steps < n/most {
					t.Errorf("%d tasks were handled in %d transactions", n, steps)
				}
			})
		})
	}
}

package queue_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/queue"
	"github.com/leasehold/leasehold/registry"
)

func (h *house) drafts(payloads ...string) (list []queue.NewTask) {
	for _, p := range payloads {
		list = append(list, queue.NewTask{Run: h.run, Queue: "q", Payload: json.RawMessage(p)})
	}
	return list
}

func (h *house) enqueueMany(list ...queue.NewTask) []queue.Task {
	h.t.Helper()
	tasks, err := h.EnqueueMany(h.t.Context(), list)
	if err != nil || len(tasks) != len(list) {
		h.t.Fatal(tasks, err)
	}
	return tasks
}

func TestABatchIsClaimedInTheOrderGiven(t *testing.T) {
	inHouse(t, func(t *testing.T, h *house) {
		list := h.drafts("0", "1", "2", "3")
		list[2].Priority = 9
		tasks := h.enqueueMany(list...)
		w := h.worker("W1")
		got, err := w.ask(queue.Claim{Count: 100})
		if err != nil || len(got) != len(list) {
			t.Fatal(got, err)
		}
		for i, want := range []int{2, 0, 1, 3} {
			if got[i].ID != tasks[want].ID || string(got[i].Payload) != fmt.Sprint(want) {
				t.Errorf("claimed %s as number %d, want %d", got[i].Payload, i, want)
			}
		}
	})
}

func TestABatchWithOneTaskThatIsRefusedEnqueuesNone(t *testing.T) {
	inHouse(t, func(t *testing.T, h *house) {
		was := h.enqueue(queue.NewTask{Key: "k", Payload: json.RawMessage("1")})
		waits := h.worker("W1").askAside(t.Context(), queue.Claim{Queues: []string{"other"}, Wait: registry.MaxWait})
		for name, c := range map[string]struct {
			spoil func(*queue.NewTask)
			want  string
		}{
			"key in use":  {func(n *queue.NewTask) { n.Key = "k" }, "task 3 of 4: idempotency_key is in use"},
			"key twice":   {func(n *queue.NewTask) { n.Key = "new" }, "task 3 of 4: idempotency_key is in use"},
			"no JSON":     {func(n *queue.NewTask) { n.Payload = json.RawMessage("{") }, "task 3 of 4: payload"},
			"no priority": {func(n *queue.NewTask) { n.Priority = 10 }, "task 3 of 4: priority"},
		} {
			list := h.drafts("1", "2", "3", "4")
			list[0].Key = "new"
			list[1].Queue = "other" // which somebody waits at
			c.spoil(&list[2])
			if _, err := h.EnqueueMany(t.Context(), list); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v", name, err)
			}
			h.check()
			if s, err := h.Stats(t.Context(), h.run, ""); err != nil || len(s) != 1 || s[0].ReadyTotal() != 1 {
				t.Errorf("%s: %+v %v", name, s, err)
			}
		}
		list := h.drafts("1", "2", "1")
		list[0].Key, list[1].Queue, list[2].Key = "k", "other", "k"
		if tasks := h.enqueueMany(list...); tasks[0].ID != was.ID || tasks[2].ID != was.ID {
			t.Errorf("%s and %s, want %s twice", tasks[0].ID, tasks[2].ID, was.ID)
		}
		if a := <-waits; a.err != nil || len(a.tasks) != 1 {
			t.Errorf("who waited: %v %v", a.tasks, a.err)
		}
	})
}

// TestResultsAreCheckedBeforeAnythingIsLocked: a batch has up to 8 MiB of them, and all
// others wait meanwhile. What is read in the transaction is spoilt here before it begins.
func TestResultsAreCheckedBeforeAnythingIsLocked(t *testing.T) {
	inHouse(t, func(t *testing.T, h *house) {
		h.enqueueMany(h.drafts("1", "2")...)
		w := h.worker("W1")
		got, err := w.ask(queue.Claim{Count: 2})
		if err != nil {
			t.Fatal(err)
		}
		result := json.RawMessage("12")
		h.Queue = queue.New(spoiling{h.eng, func() { result[0] = '{' }}, h.core, h.opts)
		list := []queue.Submission{
			{ID: got[0].ID, Token: got[0].Token, State: queue.Completed, Result: result},
			{ID: got[1].ID, Token: got[1].Token, State: queue.Completed, Result: json.RawMessage("{")},
		}
		answers, err := h.SubmitMany(t.Context(), w.Holder, h.run, list)
		if err != nil || answers[0].Err != nil {
			t.Fatal(answers, err)
		}
		mustBe[*registry.ArgumentError](t, answers[1].Err)
	})
}

// A spoiling engine calls a function before each of its Updates.
type spoiling struct {
	engine.Engine
	before func()
}

func (e spoiling) Update(ctx context.Context, fn func(engine.Tx) error) error {
	e.before()
	return e.Engine.Update(ctx, fn)
}

func TestASubmissionThatIsRefusedStopsNoOther(t *testing.T) {
	inHouse(t, func(t *testing.T, h *house) {
		h.enqueueMany(h.drafts("1", "2", "3", "4", "5")...)
		w := h.worker("W1")
		got, err := w.ask(queue.Claim{Count: 5})
		if err != nil {
			t.Fatal(err)
		}
		list := []queue.Submission{
			{ID: got[0].ID, Token: got[0].Token, State: queue.Completed, Result: json.RawMessage(`"r"`)},
			{ID: got[1].ID, Token: got[1].Token + 100, State: queue.Completed},
			{ID: got[2].ID, Token: got[2].Token, State: queue.Ready},
			{ID: uuid.New(), Token: 1, State: queue.Completed},
			{ID: got[3].ID, Token: got[3].Token, State: queue.Failed, Result: json.RawMessage(`"why"`)},
			{ID: got[4].ID, Token: got[4].Token, State: queue.Completed, Result: json.RawMessage(`{`)},
			{ID: got[0].ID, Token: got[0].Token, State: queue.Completed, Result: json.RawMessage(`"r"`)}, // the same again
		}
		for range 2 {
			answers, err := h.SubmitMany(t.Context(), w.Holder, h.run, list)
			if err != nil || len(answers) != len(list) {
				t.Fatal(answers, err)
			}
			for _, i := range []int{0, 4, 6} {
				if answers[i].Err != nil || answers[i].Task.State != list[i].State {
					t.Errorf("submission %d: %+v", i, answers[i])
				}
			}
			mustBe[*queue.StaleError](t, answers[1].Err)
			mustBe[*registry.ArgumentError](t, answers[2].Err)
			mustBe[*registry.ArgumentError](t, answers[5].Err)
			if !errors.Is(answers[3].Err, queue.ErrNotFound) {
				t.Error(answers[3].Err)
			}
		}
		h.inState(got[1].ID, queue.InProgress)
		h.inState(got[2].ID, queue.InProgress)
		if d := h.inState(got[3].ID, queue.Failed); string(d.Result) != `"why"` {
			t.Errorf("failed with %s", d.Result)
		}
	})
}

func TestABatchIsBounded(t *testing.T) {
	inHouse(t, func(t *testing.T, h *house) {
		w := h.worker("W1")
		for _, n := range []int{0, queue.MaxBatch + 1} {
			_, err := h.EnqueueMany(t.Context(), make([]queue.NewTask, n))
			mustBe[*registry.ArgumentError](t, err)
			_, err = h.SubmitMany(t.Context(), w.Holder, h.run, make([]queue.Submission, n))
			mustBe[*registry.ArgumentError](t, err)
		}
		large := `"` + strings.Repeat("x", queue.MaxPayload-2) + `"`
		list := h.drafts(large, large, large, large, large, large, large, large)
		h.enqueueMany(list...)
		_, err := h.EnqueueMany(t.Context(), append(list, h.drafts("1")...))
		mustBe[*registry.LimitError](t, err)
		results := make([]queue.Submission, 9)
		for i := range results {
			results[i].Result = json.RawMessage(large)
		}
		_, err = h.SubmitMany(t.Context(), w.Holder, h.run, results)
		mustBe[*registry.LimitError](t, err)
	})
}

func TestWhiteSpaceMakesNoOtherPayload(t *testing.T) {
	inHouse(t, func(t *testing.T, h *house) {
		task := h.enqueue(queue.NewTask{Key: "k", Payload: json.RawMessage(`{"a": [1, 2]}`)})
		if again := h.enqueue(queue.NewTask{Key: "k", Payload: json.RawMessage("{\n\t\"a\":[1,2]\n}")}); again.ID != task.ID {
			t.Error("two tasks of one payload")
		}
		if d := h.get(task.ID); string(d.Payload) != `{"a":[1,2]}` || d.Size != len(d.Payload) {
			t.Errorf("%s has %d bytes", d.Payload, d.Size)
		}
	})
}

// TestACrashLeavesAllOfABatchOrNothing crashes while batches are under way, and
// finds each whole or not at all, and whole if it was acknowledged.
func TestACrashLeavesAllOfABatchOrNothing(t *testing.T) {
	s := newSeed(t)
	for round := range 20 {
		synctest.Test(t, func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(s, uint64(round)))
			h := newHouse(t, shortBackoff)
			const size = 7
			var enqueued, submitted atomic.Int64 // batches, acknowledged
			ctx, cancel := context.WithCancel(context.Background())
			left := make(chan struct{})
			w := h.worker("W1")
			go func() {
				defer close(left)
				for n := 0; ctx.Err() == nil; n++ {
					list := make([]queue.NewTask, size)
					for i := range list {
						list[i] = queue.NewTask{Run: h.run, Queue: fmt.Sprint("q", n), Payload: json.RawMessage("1")}
					}
					if _, err := h.EnqueueMany(ctx, list); err != nil {
						return
					}
					enqueued.Add(1)
					tasks, err := w.askCtx(ctx, queue.Claim{Queues: []string{fmt.Sprint("q", n)}, Count: size})
					if err != nil {
						return
					}
					done := make([]queue.Submission, 0, size)
					for _, c := range tasks {
						done = append(done, queue.Submission{ID: c.ID, Token: c.Token, State: queue.Completed})
					}
					if _, err := h.SubmitMany(ctx, w.Holder, h.run, done); err != nil {
						return
					}
					submitted.Add(1)
				}
			}()
			for from := int64(rnd.IntN(20)); enqueued.Load() < from; {
				runtime.Gosched()
			}
			for range rnd.IntN(2000) { // to be somewhere within a batch
				runtime.Gosched()
			}
			in, out := enqueued.Load(), submitted.Load()
			fs := h.fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 50, RNG: rnd})
			cancel()
			<-left
			h.close()
			h.fs = fs
			h.open()
			list, err := h.Stats(context.Background(), h.run, "")
			if err != nil || int64(len(list)) < in {
				t.Fatalf("%d batches of %d: %v", len(list), in, err)
			}
			whole := int64(0)
			for _, s := range list {
				switch {
				case s.ReadyTotal() == size, s.InProgress == size:
				case s.Completed == size:
					whole++
				default:
					t.Errorf("a part of a batch: %+v", s)
				}
			}
			if whole < out {
				t.Errorf("%d batches are submitted, of %d", whole, out)
			}
			h.close()
		})
	}
}

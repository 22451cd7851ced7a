package queue_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/call"
	"github.com/leasehold/leasehold/queue"
)

// named is the context of a call that the worker's client can send again.
func (w worker) named(name string) context.Context {
	return call.With(w.h.t.Context(), w.call(name))
}

func (w worker) call(name string) call.Call {
	return call.Call{Session: w.Session, Name: name, Print: 7}
}

// undo is what the server does with a call whose answer was not delivered.
func (w worker) undo(name string) {
	w.h.t.Helper()
	w.h.rows(func(tx engine.Tx) {
		if a, ok := w.call(name).Take(tx, queue.ClaimKind, queue.EnqueueKind); ok {
			w.h.Undo(tx, w.Session, a)
		}
	})
}

// restarted is a house with what a crash would leave now.
func (h *house) restarted() *house {
	after := &house{t: h.t, fs: h.fs.CrashClone(vfs.CrashCloneCfg{}), run: h.run, opts: h.opts, ended: h.ended}
	after.open()
	return after
}

// TestACallThatIsSentAgainHasOneEffect makes each call, then again, also after a
// crash: the answer is the same, and so is the number of tasks in each state.
func TestACallThatIsSentAgainHasOneEffect(t *testing.T) {
	one := queue.NewTask{Queue: "new", Payload: json.RawMessage("1")}
	for name, c := range map[string]struct {
		ready, claimed int // tasks of queue q beforehand
		do             func(h *house, w worker, held []queue.Claimed, ctx context.Context) (any, error)
	}{
		"enqueue": {0, 0, func(h *house, _ worker, _ []queue.Claimed, ctx context.Context) (any, error) {
			one.Run = h.run
			task, err := h.Enqueue(ctx, one)
			return task.ID, err
		}},
		"enqueue many": {0, 0, func(h *house, _ worker, _ []queue.Claimed, ctx context.Context) (any, error) {
			one.Run = h.run
			tasks, err := h.EnqueueMany(ctx, []queue.NewTask{one, one, one})
			return fmt.Sprint(len(tasks), tasks[0].ID, tasks[1].ID, tasks[2].ID), err
		}},
		"claim": {3, 0, func(_ *house, w worker, _ []queue.Claimed, ctx context.Context) (any, error) {
			return told(w.askCtx(ctx, queue.Claim{}))
		}},
		"claim two": {3, 0, func(_ *house, w worker, _ []queue.Claimed, ctx context.Context) (any, error) {
			return told(w.askCtx(ctx, queue.Claim{Count: 2, Wait: time.Second}))
		}},
		"claim with a request_id": {3, 0, func(_ *house, w worker, _ []queue.Claimed, ctx context.Context) (any, error) {
			return told(w.askCtx(ctx, queue.Claim{RequestID: "r"}))
		}},
		"nack": {0, 1, func(h *house, w worker, held []queue.Claimed, ctx context.Context) (any, error) {
			task, err := h.Nack(ctx, w.Holder, h.run, held[0].ID, held[0].Token, nil, "no luck")
			return task.State, err
		}},
		"abandon": {0, 1, func(h *house, w worker, held []queue.Claimed, ctx context.Context) (any, error) {
			task, err := h.Abandon(ctx, w.Holder, h.run, held[0].ID, held[0].Token)
			return task.State, err
		}},
		"submit": {0, 1, func(h *house, w worker, held []queue.Claimed, ctx context.Context) (any, error) {
			task, err := h.Submit(ctx, w.Holder, h.run, held[0].ID, held[0].Token, queue.Completed, json.RawMessage("1"))
			return task.State, err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			inHouse(t, func(t *testing.T, h *house) {
				w := h.worker("W1")
				var held []queue.Claimed
				for range c.claimed {
					h.enqueue(queue.NewTask{})
					held = append(held, w.claim(queue.Claim{}))
				}
				for range c.ready {
					h.enqueue(queue.NewTask{})
				}
				first, err := c.do(h, w, held, w.named("1"))
				if err != nil {
					t.Fatal(err)
				}
				counts := func(h *house) string {
					list, err := h.Stats(t.Context(), h.run, "")
					if err != nil {
						t.Fatal(err)
					}
					return fmt.Sprintf("%+v", list)
				}
				was := counts(h)
				again := func(h *house) {
					t.Helper()
					w := w
					w.h = h
					if second, err := c.do(h, w, held, w.named("1")); err != nil || fmt.Sprint(second) != fmt.Sprint(first) {
						t.Errorf("the first answer is %v, the second %v %v", first, second, err)
					}
					if is := counts(h); is != was {
						t.Errorf("after the second call there are %s, after the first %s", is, was)
					}
				}
				again(h)
				after := h.restarted()
				again(after)
				after.close()
			})
		})
	}
}

// told is what a client is told of a claim: tasks and tokens.
func told(tasks []queue.Claimed, err error) (any, error) {
	var s strings.Builder
	for _, c := range tasks {
		s.WriteString(fmt.Sprint(c.ID, c.Token, c.Attempt, string(c.Payload), ";"))
	}
	return s.String(), err
}

// An answer that was given to a waiting call is there for the call that is sent
// again, whether the first one was cut off before or after the task came.
func TestACallThatWasCutOffKeepsWhatItWasGiven(t *testing.T) {
	inHouse(t, func(t *testing.T, h *house) {
		for round := range 50 {
			w := h.worker("W1")
			ctx, cut := context.WithCancelCause(w.named("1"))
			got := w.askAside(ctx, queue.Claim{Wait: 50 * time.Second})
			go cut(call.ErrCutOff)
			h.enqueue(queue.NewTask{})
			first := <-got
			synctest.Wait()
			again, err := w.askCtx(w.named("1"), queue.Claim{Wait: time.Second})
			if err != nil || len(again) != 1 || again[0].Attempt != 1 {
				t.Fatalf("round %d: cut off with %v, then %+v %v", round, first.err, again, err)
			}
			if len(first.tasks) == 1 && first.tasks[0].Token != again[0].Token {
				t.Fatalf("round %d: two tokens for one call", round)
			}
			if s, err := h.Stats(t.Context(), h.run, "q"); err != nil || s[0].InProgress != 1 || s[0].ReadyTotal() != 0 {
				t.Fatalf("round %d: %+v %v", round, s, err)
			}
			if err := w.submit(again[0]); err != nil {
				t.Fatal(err)
			}
			if _, err := h.Cancel(t.Context(), h.run, again[0].ID); err != nil {
				t.Fatal(err)
			}
			h.run = uuid.New() // a fresh queue
		}
	})
}

func TestACallThatIsUndoneLeavesNothing(t *testing.T) {
	inHouse(t, func(t *testing.T, h *house) {
		w, other := h.worker("W1"), h.worker("W2")
		first, second := h.enqueue(queue.NewTask{}), h.enqueue(queue.NewTask{})
		for _, ask := range []queue.Claim{{}, {Count: 2}, {RequestID: "r"}, {Wait: time.Second}} {
			if _, err := w.askCtx(w.named("1"), ask); err != nil {
				t.Fatal(err)
			}
			w.undo("1")
			h.check()
			if d := h.inState(first.ID, queue.Ready); d.Attempt != 0 || len(d.Attempts) != 0 {
				t.Errorf("after %+v an attempt is counted: %+v", ask, d.Task)
			}
		}
		for _, want := range []queue.Task{first, second} { // where they were
			if c := other.claim(queue.Claim{}); c.ID != want.ID || c.Attempt != 1 {
				t.Errorf("claimed %s, attempt %d, want %s", c.ID, c.Attempt, want.ID)
			}
		}
		n := queue.NewTask{Run: h.run, Queue: "new", Payload: json.RawMessage("1"), Key: "k"}
		for range 2 { // not the key's either
			task, err := h.Enqueue(w.named("2"), n)
			if err != nil {
				t.Fatal(err)
			}
			w.undo("2")
			if _, err := h.Get(t.Context(), h.run, task.ID); !errors.Is(err, queue.ErrNotFound) {
				t.Errorf("an undone enqueue left %v", err)
			}
		}
	})
}

func TestWhatAnotherHasActedOnIsNotUndone(t *testing.T) {
	inHouse(t, func(t *testing.T, h *house) {
		w, other := h.worker("W1"), h.worker("W2")
		task, err := h.Enqueue(w.named("1"), queue.NewTask{Run: h.run, Queue: "q", Payload: json.RawMessage("1")})
		if err != nil {
			t.Fatal(err)
		}
		c := other.claim(queue.Claim{})
		w.undo("1")
		h.inState(task.ID, queue.InProgress)
		if err := other.submit(c); err != nil {
			t.Fatal(err)
		}
		known := h.enqueue(queue.NewTask{Key: "k"})
		if again, err := h.Enqueue(w.named("2"), queue.NewTask{Run: h.run, Queue: "q", Payload: json.RawMessage("{}"), Key: "k"}); err != nil || again.ID != known.ID {
			t.Fatal(again, err)
		}
		w.undo("2")
		h.inState(known.ID, queue.Ready) // it was another call's
		shared := w.claim(queue.Claim{RequestID: "r"})
		if _, err := w.askCtx(w.named("3"), queue.Claim{RequestID: "r"}); err != nil {
			t.Fatal(err)
		}
		w.undo("3")
		h.inState(shared.ID, queue.InProgress)
		if _, err := h.Nack(w.named("4"), w.Holder, h.run, shared.ID, shared.Token, nil, ""); err != nil {
			t.Fatal(err)
		}
		w.undo("4")
		h.inState(shared.ID, queue.Delayed) // it stands
	})
}

func TestAResentClaimGivesOnlyWhatIsStillItsSessions(t *testing.T) {
	inHouse(t, func(t *testing.T, h *house) {
		for range 3 {
			h.enqueue(queue.NewTask{})
		}
		w := h.worker("W1")
		first, err := w.askCtx(w.named("1"), queue.Claim{Count: 2})
		if err != nil || len(first) != 2 {
			t.Fatal(first, err)
		}
		if err := w.submit(first[0]); err != nil {
			t.Fatal(err)
		}
		again, err := w.askCtx(w.named("1"), queue.Claim{Count: 2})
		if err != nil || len(again) != 1 || again[0].Token != first[1].Token {
			t.Errorf("again: %+v %v", again, err)
		}
		if err := w.submit(first[1]); err != nil {
			t.Fatal(err)
		}
		if again, err := w.askCtx(w.named("1"), queue.Claim{Count: 2}); err != nil || len(again) != 0 {
			t.Errorf("with nothing left: %+v %v", again, err)
		}
	})
}

func TestASecondSubmissionWithAnotherResultIsRefused(t *testing.T) {
	inHouse(t, func(t *testing.T, h *house) {
		for _, size := range []int{10, 5000} { // in the record, and in a row of its own
			h.enqueue(queue.NewTask{})
			w := h.worker("W1")
			c := w.claim(queue.Claim{})
			submit := func(state queue.State, result json.RawMessage) error {
				return second(h.Submit(t.Context(), w.Holder, h.run, c.ID, c.Token, state, result))
			}
			if err := submit(queue.Completed, jsonOf(size)); err != nil {
				t.Fatal(err)
			}
			if err := submit(queue.Completed, jsonOf(size)); err != nil {
				t.Errorf("the same again: %v", err)
			}
			for _, err := range []error{submit(queue.Completed, jsonOf(size+1)), submit(queue.Completed, nil), submit(queue.Failed, jsonOf(size))} {
				if stale := mustBe[*queue.StaleError](t, err); !stale.Differs || stale.Task.State != queue.Completed {
					t.Errorf("another submission: %v", err)
				}
			}
			if d := h.get(c.ID); string(d.Result) != string(jsonOf(size)) {
				t.Errorf("the result is %s", d.Result)
			}
		}
	})
}

func TestAWorkerIsToldThatItsTaskWasCancelled(t *testing.T) {
	inHouse(t, func(t *testing.T, h *house) {
		h.enqueue(queue.NewTask{})
		w := h.worker("W1")
		c := w.claim(queue.Claim{})
		if _, err := h.Cancel(t.Context(), h.run, c.ID); err != nil {
			t.Fatal(err)
		}
		h.rows(func(tx engine.Tx) {
			news, _ := h.core.NewUntold(tx, w.Holder, nil)
			if len(news) != 1 || news[0].Reason != "task cancelled by boss" || news[0].Key != c.ID.String() {
				t.Errorf("it is told %+v", news)
			}
		})
		if d := h.inState(c.ID, queue.Cancelled); d.Attempts[0].Cause != "task cancelled by boss" {
			t.Errorf("attempts %+v", d.Attempts)
		}
	})
}

// TestATaskWhoseClaimIsUndoneIsFirstAgain, also when later tasks were read ahead since.
func TestATaskWhoseClaimIsUndoneIsFirstAgain(t *testing.T) {
	inHouse(t, func(t *testing.T, h *house) {
		w := h.worker("W1")
		var first, next queue.Task
		for i := range 200 {
			switch task := h.enqueue(queue.NewTask{}); i {
			case 0:
				first = task
			case 100:
				next = task
			}
		}
		for i := range 100 {
			if _, err := w.askCtx(w.named(fmt.Sprint(i)), queue.Claim{}); err != nil {
				t.Fatal(err)
			}
		}
		w.undo("0")
		for _, want := range []queue.Task{first, next} {
			if got := w.claim(queue.Claim{}); got.ID != want.ID || got.Attempt != 1 {
				t.Errorf("claimed %v in attempt %d, want %v in its first", got.ID, got.Attempt, want.ID)
			}
		}
	})
}

// TestAnotherActorsTokenMovesNoTask: only the actor that claimed a task may go on with it,
// whoever else has learnt the token.
func TestAnotherActorsTokenMovesNoTask(t *testing.T) {
	inHouse(t, func(t *testing.T, h *house) {
		w, other := h.worker("W1"), h.worker("W2")
		h.enqueue(queue.NewTask{})
		c := w.claim(queue.Claim{})
		_, heartbeat := h.Heartbeat(t.Context(), other.Holder, h.run, c.ID, c.Token, 0)
		_, submit := h.Submit(t.Context(), other.Holder, h.run, c.ID, c.Token, queue.Completed, json.RawMessage("1"))
		_, nack := h.Nack(t.Context(), other.Holder, h.run, c.ID, c.Token, nil, "")
		_, abandon := h.Abandon(t.Context(), other.Holder, h.run, c.ID, c.Token)
		for call, err := range map[string]error{"heartbeat": heartbeat, "submit": submit, "nack": nack, "abandon": abandon} {
			if stale := (*queue.StaleError)(nil); !errors.As(err, &stale) {
				t.Errorf("%s: %v", call, err)
			}
		}
		h.inState(c.ID, queue.InProgress)
	})
}

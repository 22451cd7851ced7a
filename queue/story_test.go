package queue_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/call"
	"github.com/leasehold/leasehold/queue"
	"github.com/leasehold/leasehold/registry"
)

func TestATaskIsClaimedWorkedAndDone(t *testing.T) {
	inHouse(t, func(t *testing.T, h *house) {
		task := h.enqueue(queue.NewTask{Payload: json.RawMessage(`{"n":1}`), By: "S1"})
		w := h.worker("W1")
		c := w.claim(queue.Claim{})
		if c.ID != task.ID || string(c.Payload) != `{"n":1}` || c.Attempt != 1 || c.EnqueuedBy != "S1" {
			t.Errorf("claimed %+v", c)
		}
		w.none()
		if err := w.submit(c); err != nil {
			t.Fatal(err)
		}
		d := h.inState(task.ID, queue.Completed)
		if string(d.Result) != `"done"` || d.Attempts[0].Cause != "completed" || d.Attempts[0].Path != "W1" {
			t.Errorf("done: %+v", d)
		}
		if err := w.submit(c); err != nil { // the answer was lost, say
			t.Errorf("the same submit again: %v", err)
		}
		h.crash()
		h.inState(task.ID, queue.Completed)
	})
}

func TestOrderIsPriorityThenAgeOverAllQueues(t *testing.T) {
	inHouse(t, func(t *testing.T, h *house) {
		var want []uuid.UUID
		low := h.enqueue(queue.NewTask{Queue: "a"})
		want = append(want, h.enqueue(queue.NewTask{Queue: "b", Priority: 9}).ID)
		want = append(want, h.enqueue(queue.NewTask{Queue: "a", Priority: 5}).ID)
		want = append(want, h.enqueue(queue.NewTask{Queue: "b", Priority: 5}).ID)
		want = append(want, h.enqueue(queue.NewTask{Queue: "a", Priority: 5}).ID)
		want = append(want, low.ID, h.enqueue(queue.NewTask{Queue: "b"}).ID)
		tasks, err := h.worker("W1").ask(queue.Claim{Queues: []string{"b", "a", "b"}, Count: 100})
		if err != nil {
			t.Fatal(err)
		}
		var got []uuid.UUID
		for _, task := range tasks {
			got = append(got, task.ID)
		}
		if !slices.Equal(got, want) {
			t.Errorf("claimed %v, want %v", got, want)
		}
	})
}

func TestADeadWorkersTaskGoesToTheNextAndTheZombieIsRefused(t *testing.T) {
	inHouse(t, func(t *testing.T, h *house) {
		task := h.enqueue(queue.NewTask{})
		zombie, other := h.worker("W1"), h.worker("W2")
		first := zombie.claim(queue.Claim{})
		kept := zombie.again()
		keeps := h.enqueue(queue.NewTask{})
		kept.claim(queue.Claim{})
		zombie.die()
		second := other.claim(queue.Claim{})
		if second.ID != task.ID || second.Token <= first.Token || second.Attempt != 2 {
			t.Errorf("second claim %+v", second)
		}
		err := zombie.submit(first)
		if stale := mustBe[*queue.StaleError](t, err); stale.Task.State != queue.InProgress {
			t.Errorf("stale: %v", stale)
		}
		if err := other.submit(second); err != nil {
			t.Fatal(err)
		}
		if err := zombie.submit(first); err == nil {
			t.Error("a zombie's submit is taken after the task is done")
		}
		d := h.inState(task.ID, queue.Completed)
		if d.Attempts[0].Cause != "session ended" || d.Attempts[1].Path != "W2" {
			t.Errorf("attempts %+v", d.Attempts)
		}
		h.inState(keeps.ID, queue.InProgress) // another session of the same actor
	})
}

func TestExpiryGivesTheTaskBackAfterABackoff(t *testing.T) {
	inHouse(t, func(t *testing.T, h *house) {
		task := h.enqueue(queue.NewTask{})
		w := h.worker("W1")
		c := w.claim(queue.Claim{TTL: 10 * time.Second})
		time.Sleep(9 * time.Second)
		if _, err := h.Heartbeat(t.Context(), w.Holder, h.run, c.ID, c.Token, 0); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		h.inState(task.ID, queue.InProgress)
		time.Sleep(time.Second)
		h.inState(task.ID, queue.Delayed) // two seconds, in this house
		time.Sleep(2 * time.Second)
		d := h.inState(task.ID, queue.Ready)
		if d.Attempts[0].Cause != "expired" {
			t.Errorf("attempts %+v", d.Attempts)
		}
		_, err := h.Heartbeat(t.Context(), w.Holder, h.run, c.ID, c.Token, 0)
		mustBe[*queue.StaleError](t, err)
	})
}

func TestHeartbeatAgainstReaperAtTheSameInstant(t *testing.T) {
	inHouse(t, func(t *testing.T, h *house) {
		for range 100 {
			task := h.enqueue(queue.NewTask{})
			w := h.worker("W1")
			c := w.claim(queue.Claim{TTL: time.Second})
			time.Sleep(c.ExpiresIn + 1) // the reaper wakes too
			_, err := h.Heartbeat(t.Context(), w.Holder, h.run, c.ID, c.Token, time.Minute)
			synctest.Wait()
			if d := h.get(task.ID); (err == nil) != (d.State == queue.InProgress) {
				t.Fatalf("heartbeat %v, and the task is %s", err, d.State)
			}
			if _, err := h.Cancel(t.Context(), h.run, task.ID); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func TestNackRetriesUntilDeadAndRedriveBeginsAnew(t *testing.T) {
	inHouse(t, func(t *testing.T, h *house) {
		task := h.enqueue(queue.NewTask{MaxAttempts: 3})
		w := h.worker("W1")
		for attempt := 1; attempt <= 3; attempt++ {
			c := w.claim(queue.Claim{Wait: 50 * time.Second})
			if c.Attempt != attempt {
				t.Fatalf("attempt %d, want %d", c.Attempt, attempt)
			}
			got, err := h.Nack(t.Context(), w.Holder, h.run, c.ID, c.Token, nil, "no luck")
			if err != nil {
				t.Fatal(err)
			}
			if backoff := time.Until(got.DueAt); attempt < 3 && backoff != 2*time.Second<<(attempt-1) {
				t.Errorf("backoff of %v after attempt %d", backoff, attempt)
			}
		}
		d := h.inState(task.ID, queue.Dead)
		if len(d.Attempts) != 3 || d.Attempts[2].Cause != "nack: no luck" {
			t.Errorf("attempts %+v", d.Attempts)
		}
		dead, err := h.List(t.Context(), h.run, "q", queue.Dead, 10)
		if err != nil || len(dead) != 1 {
			t.Fatalf("dead: %v %v", dead, err)
		}
		h.crash()
		done, err := h.Redrive(t.Context(), h.run, "q", nil)
		if err != nil || len(done) != 1 {
			t.Fatalf("redriven: %v %v", done, err)
		}
		if c := w.claim(queue.Claim{}); c.Attempt != 1 || c.ID != task.ID {
			t.Errorf("after redrive: %+v", c)
		}
	})
}

func TestDelaysComeDueByThemselves(t *testing.T) {
	inHouse(t, func(t *testing.T, h *house) {
		late := h.enqueue(queue.NewTask{Delay: 20 * time.Second})
		early := h.enqueue(queue.NewTask{RunAt: time.Now().Add(10 * time.Second)})
		w := h.worker("W1")
		w.none()
		h.crash()
		began := time.Now()
		for _, want := range []queue.Task{early, late} {
			if c := w.claim(queue.Claim{Wait: 50 * time.Second}); c.ID != want.ID {
				t.Errorf("claimed %s, want %s", c.ID, want.ID)
			}
		}
		if took := time.Since(began); took < 20*time.Second || took > 21*time.Second {
			t.Errorf("after %v", took)
		}
	})
}

func TestClaimantsAreServedInTheOrderOfAsking(t *testing.T) {
	inHouse(t, func(t *testing.T, h *house) {
		const n = 20
		got := make([]chan uuid.UUID, n)
		for i := range n {
			got[i] = make(chan uuid.UUID, 1)
			w := h.worker(fmt.Sprint("W", i))
			go func() { got[i] <- w.claim(queue.Claim{Queues: []string{"other", "q"}, Wait: 50 * time.Second}).ID }()
			synctest.Wait()
		}
		for i := range n {
			task := h.enqueue(queue.NewTask{})
			synctest.Wait()
			select {
			case id := <-got[i]:
				if id != task.ID {
					t.Errorf("claimant %d got another task", i)
				}
			default:
				t.Fatalf("claimant %d was passed over", i)
			}
		}
	})
}

func TestWhoIsGoneIsGivenNothing(t *testing.T) {
	inHouse(t, func(t *testing.T, h *house) {
		gone, dead, here := h.worker("gone"), h.worker("dead"), h.worker("here")
		ctx, cancel := context.WithCancel(t.Context())
		errs := make(chan error, 2)
		for _, c := range []struct {
			w   worker
			ctx context.Context
		}{{gone, ctx}, {dead, t.Context()}} {
			go func() {
				_, err := c.w.askCtx(c.ctx, queue.Claim{Wait: 50 * time.Second})
				errs <- err
			}()
			synctest.Wait()
		}
		got := make(chan queue.Claimed)
		go func() { got <- here.claim(queue.Claim{Wait: 50 * time.Second}) }()
		synctest.Wait()
		dead.die()
		cancel()
		task := h.enqueue(queue.NewTask{}) // races with the withdrawal
		if c := <-got; c.ID != task.ID || c.Attempt != 1 {
			t.Errorf("claimed %+v", c)
		}
		synctest.Wait()
		if err := <-errs; err == nil {
			t.Error("one who is gone was answered")
		}
		time.Sleep(time.Minute)
	})
}

func TestAClaimCancelledInTheInstantOfItsGiftIsUndone(t *testing.T) {
	inHouse(t, func(t *testing.T, h *house) {
		for range 200 {
			w := h.worker("W1")
			ctx, cancel := context.WithCancel(t.Context())
			type answer struct {
				tasks []queue.Claimed
				err   error
			}
			got := make(chan answer)
			go func() {
				tasks, err := w.askCtx(ctx, queue.Claim{Wait: 50 * time.Second})
				got <- answer{tasks, err}
			}()
			synctest.Wait()
			go cancel()
			task := h.enqueue(queue.NewTask{})
			a := <-got
			synctest.Wait()
			if d := h.get(task.ID); (a.err == nil) != (d.State == queue.InProgress) || a.err != nil && d.Attempt != 0 {
				t.Fatalf("claim %v, and the task is %s after %d attempts", a.err, d.State, d.Attempt)
			}
			if _, err := h.Cancel(t.Context(), h.run, task.ID); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func TestALostAnswerLocksNoTask(t *testing.T) {
	inHouse(t, func(t *testing.T, h *house) {
		for range 3 {
			h.enqueue(queue.NewTask{})
		}
		w := h.worker("W1")
		ask := queue.Claim{RequestID: "r", Count: 2}
		first, err := w.ask(ask)
		if err != nil || len(first) != 2 {
			t.Fatalf("%v %v", first, err)
		}
		h.crash()
		again, err := w.ask(ask)
		if err != nil || len(again) != 2 || again[0].Token != first[0].Token || again[1].ID != first[1].ID {
			t.Errorf("again: %v %v", again, err)
		}
		ask.Count = 3
		if _, err := w.ask(ask); !errors.Is(err, call.ErrReused) {
			t.Errorf("another request under the id: %v", err)
		}
	})
}

func TestIdempotencyKeysAreOfOneQueueAndOnePayload(t *testing.T) {
	inHouse(t, func(t *testing.T, h *house) {
		n := queue.NewTask{Key: "k", Payload: json.RawMessage(`1`)}
		one := h.enqueue(n)
		if again := h.enqueue(n); again.ID != one.ID {
			t.Error("enqueued twice")
		}
		n.Payload = json.RawMessage(`2`)
		n.Run = h.run
		n.Queue = "q"
		if _, err := h.Enqueue(t.Context(), n); !errors.Is(err, queue.ErrKeyReused) {
			t.Errorf("another payload: %v", err)
		}
		n.Queue = "other"
		if other := h.enqueue(n); other.ID == one.ID {
			t.Error("another queue's key")
		}
		w := h.worker("W1")
		if err := w.submit(w.claim(queue.Claim{})); err != nil {
			t.Fatal(err)
		}
		time.Sleep(23 * time.Hour)
		if again := h.enqueue(queue.NewTask{Key: "k", Payload: json.RawMessage(`1`)}); again.ID != one.ID || again.State != queue.Completed {
			t.Errorf("after it was done: %+v", again)
		}
		time.Sleep(2 * time.Hour)
		if fresh := h.enqueue(queue.NewTask{Key: "k", Payload: json.RawMessage(`2`)}); fresh.ID == one.ID {
			t.Error("kept for ever")
		}
	})
}

// Whoever sends something again may encode it again, and few encoders keep the order
// of the names in an object.
func TestEqualJSONIsTheSameResultAndTheSamePayload(t *testing.T) {
	inHouse(t, func(t *testing.T, h *house) {
		pad := `"` + strings.Repeat("x", 8<<10) + `"` // too large for the task's own row
		for _, one := range []struct{ first, again, other string }{
			{`{"a":1,"b":{"c":"<é>","d":null}}`, ` {"b": {"d": null, "c": "\u003c\u00e9\u003e"}, "a": 1} `, `{"a":1.5,"b":{"c":"<é>","d":null}}`},
			{`{"a":` + pad + `,"b":9007199254740993}`, `{"b":9007199254740993,"a":` + pad + `}`, `{"a":` + pad + `,"b":9007199254740992}`},
		} {
			n := queue.NewTask{Run: h.run, Queue: "q", Key: one.first[:20], Payload: json.RawMessage(one.first)}
			task := h.enqueue(n)
			n.Payload = json.RawMessage(one.again)
			if again := h.enqueue(n); again.ID != task.ID {
				t.Error("the same payload was enqueued twice")
			}
			n.Payload = json.RawMessage(one.other)
			if _, err := h.Enqueue(t.Context(), n); !errors.Is(err, queue.ErrKeyReused) {
				t.Errorf("another payload: %v", err)
			}

			w := h.worker("W1")
			c := w.claim(queue.Claim{})
			submit := func(state queue.State, result string) error {
				_, err := h.Submit(t.Context(), w.Holder, h.run, c.ID, c.Token, state, json.RawMessage(result))
				many, manyErr := h.Queue.SubmitMany(t.Context(), w.Holder, h.run, []queue.Submission{{ID: c.ID, Token: c.Token, State: state, Result: json.RawMessage(result)}})
				if manyErr != nil || (many[0].Err == nil) != (err == nil) || err == nil && many[0].Task.State != queue.Completed {
					t.Errorf("alone %v, among several %v %v", err, many, manyErr)
				}
				return err
			}
			for _, result := range []string{one.first, one.again} {
				if err := submit(queue.Completed, result); err != nil {
					t.Error(err)
				}
			}
			for _, refused := range []error{submit(queue.Completed, one.other), submit(queue.Completed, ""), submit(queue.Failed, one.again)} {
				if stale := mustBe[*queue.StaleError](t, refused); !stale.Differs {
					t.Error(stale)
				}
			}
		}
	})
}

func TestRetentionForgetsFinishedTasksOnly(t *testing.T) {
	inHouse(t, func(t *testing.T, h *house) {
		done, live, late := h.enqueue(queue.NewTask{Priority: 9}), h.enqueue(queue.NewTask{}), h.enqueue(queue.NewTask{Delay: 50 * time.Hour})
		w := h.worker("W1")
		if err := w.submit(w.claim(queue.Claim{})); err != nil {
			t.Fatal(err)
		}
		time.Sleep(24*time.Hour - time.Second)
		h.inState(done.ID, queue.Completed)
		time.Sleep(2 * time.Second)
		if _, err := h.Get(t.Context(), h.run, done.ID); !errors.Is(err, queue.ErrNotFound) {
			t.Errorf("after its retention: %v", err)
		}
		time.Sleep(24 * time.Hour)
		h.inState(live.ID, queue.Ready)
		h.inState(late.ID, queue.Delayed)
	})
}

func TestFinishedAbsorbs(t *testing.T) {
	inHouse(t, func(t *testing.T, h *house) {
		task := h.enqueue(queue.NewTask{})
		w := h.worker("W1")
		c := w.claim(queue.Claim{TTL: time.Second})
		if _, err := h.Submit(t.Context(), w.Holder, h.run, task.ID, c.Token, queue.Failed, nil); err != nil {
			t.Fatal(err)
		}
		mustBe[*queue.StaleError](t, w.submit(c)) // completed, after it failed
		_, err := h.Nack(t.Context(), w.Holder, h.run, task.ID, c.Token, nil, "")
		mustBe[*queue.StaleError](t, err)
		if got, err := h.Cancel(t.Context(), h.run, task.ID); err != nil || got.State != queue.Failed {
			t.Errorf("cancel: %v %v", got, err)
		}
		time.Sleep(time.Minute)
		h.inState(task.ID, queue.Failed)
	})
}

func TestCancelEndsAClaim(t *testing.T) {
	inHouse(t, func(t *testing.T, h *house) {
		w := h.worker("W1")
		for _, n := range []queue.NewTask{{}, {Delay: time.Hour}} {
			task := h.enqueue(n)
			if _, err := h.Cancel(t.Context(), h.run, task.ID); err != nil {
				t.Fatal(err)
			}
			h.inState(task.ID, queue.Cancelled)
		}
		task := h.enqueue(queue.NewTask{})
		c := w.claim(queue.Claim{})
		if _, err := h.Cancel(t.Context(), h.run, task.ID); err != nil {
			t.Fatal(err)
		}
		mustBe[*queue.StaleError](t, w.submit(c))
		if _, err := h.Cancel(t.Context(), uuid.New(), task.ID); !errors.Is(err, queue.ErrNotFound) {
			t.Errorf("cancel by another run: %v", err)
		}
	})
}

func TestWaitingForAResult(t *testing.T) {
	inHouse(t, func(t *testing.T, h *house) {
		task := h.enqueue(queue.NewTask{})
		w := h.worker("W1")
		c := w.claim(queue.Claim{})
		if d, err := h.Wait(t.Context(), h.run, task.ID, time.Second); err != nil || d.State != queue.InProgress {
			t.Errorf("too early: %v %v", d.State, err)
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			began := time.Now()
			d, err := h.Wait(t.Context(), h.run, task.ID, 50*time.Second)
			if err != nil || string(d.Result) != `"done"` || time.Since(began) != 10*time.Second {
				t.Errorf("%s %v after %v", d.Result, err, time.Since(began))
			}
		})
		time.Sleep(10 * time.Second)
		if err := w.submit(c); err != nil {
			t.Fatal(err)
		}
		wg.Wait()
	})
}

func TestARestartGivesEveryClaimAFullTTL(t *testing.T) {
	inHouse(t, func(t *testing.T, h *house) {
		task := h.enqueue(queue.NewTask{})
		w := h.worker("W1")
		c := w.claim(queue.Claim{TTL: 10 * time.Second})
		time.Sleep(9 * time.Second)
		h.crash()
		time.Sleep(9 * time.Second)
		h.inState(task.ID, queue.InProgress)
		if err := w.submit(c); err != nil {
			t.Fatal(err)
		}
	})
}

func TestArgumentsOfTheQueueOutOfRangeAreNamed(t *testing.T) {
	inHouse(t, func(t *testing.T, h *house) {
		for _, c := range []struct {
			argument string
			n        queue.NewTask
		}{
			{"queue", queue.NewTask{Queue: "a/b"}},
			{"queue", queue.NewTask{Queue: "a\x00b"}},
			{"queue", queue.NewTask{Queue: strings.Repeat("q", 65)}},
			{"payload", queue.NewTask{Queue: "q", Payload: json.RawMessage(`{`)}},
			{"priority", queue.NewTask{Queue: "q", Priority: 10}},
			{"priority", queue.NewTask{Queue: "q", Priority: -1}},
			{"delay_secs", queue.NewTask{Queue: "q", Delay: -1}},
			{"run_at", queue.NewTask{Queue: "q", Delay: 1, RunAt: time.Now()}},
			{"max_attempts", queue.NewTask{Queue: "q", MaxAttempts: 101}},
			{"idempotency_key", queue.NewTask{Queue: "q", Key: strings.Repeat("k", 257)}},
		} {
			c.n.Run = h.run
			if c.n.Payload == nil {
				c.n.Payload = json.RawMessage(`{}`)
			}
			_, err := h.Enqueue(t.Context(), c.n)
			if bad := mustBe[*registry.ArgumentError](t, err); bad.Argument != c.argument {
				t.Errorf("%+v: names %s", c.n, bad.Argument)
			}
		}
		_, err := h.Enqueue(t.Context(), queue.NewTask{Run: h.run, Queue: "q", Payload: json.RawMessage(`"` + strings.Repeat("x", queue.MaxPayload) + `"`)})
		mustBe[*registry.LimitError](t, err)
		if list, err := h.Stats(t.Context(), h.run, ""); err != nil || len(list) != 0 {
			t.Errorf("queues %v %v", list, err)
		}
		if _, err := h.Enqueue(t.Context(), queue.NewTask{Run: h.run, Queue: "q", Payload: json.RawMessage(`{}`), Key: strings.Repeat("k", queue.MaxKey)}); err != nil {
			t.Errorf("the longest key: %v", err)
		}
	})
}

func TestEveryClaimThatExpiresIsTold(t *testing.T) {
	inHouse(t, func(t *testing.T, h *house) {
		w := h.worker("W1")
		for range 3 {
			h.enqueue(queue.NewTask{})
			w.claim(queue.Claim{TTL: time.Second})
		}
		time.Sleep(2 * time.Second)
		err := h.eng.View(t.Context(), func(tx engine.Tx) error {
			if news, _ := h.core.NewUntold(tx, w.Holder, nil); len(news) != 3 {
				t.Errorf("of three claims lost it is told %+v", news)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	})
}

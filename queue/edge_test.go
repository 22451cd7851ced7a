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
	"github.com/leasehold/leasehold/registry"
)

func (w worker) askAside(ctx context.Context, c queue.Claim) <-chan answer {
	got := make(chan answer, 1)
	go func() {
		tasks, err := w.askCtx(ctx, c)
		got <- answer{tasks, err}
	}()
	synctest.Wait()
	return got
}

func TestWhoeverIsHandedATaskThatIsTakenAwayWaitsOn(t *testing.T) {
	inHouse(t, func(t *testing.T, h *house) {
		for range 100 {
			got := h.worker("W1").askAside(t.Context(), queue.Claim{Wait: 50 * time.Second})
			gone := h.enqueue(queue.NewTask{})
			if _, err := h.Cancel(t.Context(), h.run, gone.ID); err != nil {
				t.Fatal(err)
			}
			h.enqueue(queue.NewTask{})
			synctest.Wait()
			select {
			case a := <-got:
				if a.err != nil || len(a.tasks) != 1 {
					t.Fatalf("claimed %v %v", a.tasks, a.err)
				}
			default:
				t.Fatal("waits, and a task is ready")
			}
			if s, err := h.Stats(t.Context(), h.run, "q"); err != nil || s[0].ReadyTotal() > 1 {
				t.Fatalf("%+v %v", s, err)
			}
			for {
				tasks, err := h.worker("W2").ask(queue.Claim{})
				if err != nil {
					t.Fatal(err)
				}
				if len(tasks) == 0 {
					break
				}
			}
		}
	})
}

func TestARequestThatWaitedIsKnownAfterACrash(t *testing.T) {
	inHouse(t, func(t *testing.T, h *house) {
		w := h.worker("W1")
		ask := queue.Claim{RequestID: "r", Wait: 50 * time.Second}
		got := w.askAside(t.Context(), ask)
		task := h.enqueue(queue.NewTask{})
		left := h.fs.CrashClone(vfs.CrashCloneCfg{}) // the answer may not have been given
		<-got
		after := &house{t: t, fs: left, run: h.run, opts: h.opts, ended: h.ended}
		after.open()
		defer after.close()
		w.h = after
		if c := w.claim(ask); c.ID != task.ID || c.Attempt != 1 {
			t.Errorf("claimed %s, attempt %d, want %s", c.ID, c.Attempt, task.ID)
		}
	})
}

func TestTwoCallsOfOneRequestGetOneAnswer(t *testing.T) {
	inHouse(t, func(t *testing.T, h *house) {
		w := h.worker("W1")
		ask := queue.Claim{RequestID: "r", Wait: 50 * time.Second}
		one, two := w.askAside(t.Context(), ask), w.askAside(t.Context(), ask)
		task, other := h.enqueue(queue.NewTask{}), h.enqueue(queue.NewTask{})
		a, b := <-one, <-two
		if a.err != nil || b.err != nil || len(a.tasks) != 1 || len(b.tasks) != 1 || a.tasks[0].Token != b.tasks[0].Token || a.tasks[0].ID != task.ID {
			t.Errorf("told of %+v and %+v", a, b)
		}
		h.inState(other.ID, queue.Ready)
	})
}

func TestACancelledRepetitionUndoesNothing(t *testing.T) {
	inHouse(t, func(t *testing.T, h *house) {
		h.enqueue(queue.NewTask{})
		w := h.worker("W1")
		ask := queue.Claim{RequestID: "r"}
		first := w.claim(ask)
		for range 50 {
			ctx, cancel := context.WithCancel(t.Context())
			go cancel()
			_, _ = w.askCtx(ctx, ask)
			if again := w.claim(ask); again.Token != first.Token {
				t.Fatalf("token %d, then %d", first.Token, again.Token)
			}
		}
	})
}

// endsAmid is a context that ends after it has been asked once.
type endsAmid struct {
	context.Context
	asked int
}

func (c *endsAmid) Err() error {
	if c.asked++; c.asked > 1 {
		return context.Canceled
	}
	return nil
}

func TestAnUndoneClaimKeepsItsPlace(t *testing.T) {
	inHouse(t, func(t *testing.T, h *house) {
		var tasks []queue.Task
		for range 50 {
			tasks = append(tasks, h.enqueue(queue.NewTask{}))
		}
		w := h.worker("W1")
		for _, ask := range []queue.Claim{{}, {Count: 3}, {}, {Count: 3, RequestID: "r"}, {RequestID: "s"}, {}} {
			if got, err := w.askCtx(&endsAmid{Context: t.Context()}, ask); !errors.Is(err, context.Canceled) {
				t.Fatalf("%v %v", got, err)
			}
			h.check()
		}
		h.crash()
		for _, want := range tasks {
			if c := w.claim(queue.Claim{}); c.ID != want.ID || c.Attempt != 1 {
				t.Fatalf("claimed %s, attempt %d, want %s", c.ID, c.Attempt, want.ID)
			}
		}
	})
}

func TestARequestIsForgottenWithItsLastClaim(t *testing.T) {
	inHouse(t, func(t *testing.T, h *house) {
		long, short := h.enqueue(queue.NewTask{}), h.enqueue(queue.NewTask{})
		w := h.worker("W1")
		kept := w.claim(queue.Claim{RequestID: "long", TTL: time.Hour})
		if err := w.submit(w.claim(queue.Claim{RequestID: "short"})); err != nil {
			t.Fatal(err)
		}
		time.Sleep(30 * time.Minute)
		if again := w.claim(queue.Claim{RequestID: "long", TTL: time.Hour}); again.Token != kept.Token || again.ID != long.ID {
			t.Errorf("after half an hour: %+v", again)
		}
		h.rows(func(tx engine.Tx) {
			n := 0
			for range tx.Scan(call.Prefix) {
				n++
			}
			if n != 1 {
				t.Errorf("%d requests are kept", n)
			}
		})
		h.inState(short.ID, queue.Completed)
	})
}

func TestAKeyIsKeptForADayWhateverTheRetention(t *testing.T) {
	inHouse(t, func(t *testing.T, h *house) {
		h.opts.Retention = time.Hour
		h.crash()
		with, without := h.enqueue(queue.NewTask{Key: "k"}), h.enqueue(queue.NewTask{})
		w := h.worker("W1")
		for range 2 {
			if err := w.submit(w.claim(queue.Claim{})); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(2 * time.Hour)
		if _, err := h.Get(t.Context(), h.run, without.ID); !errors.Is(err, queue.ErrNotFound) {
			t.Errorf("without a key: %v", err)
		}
		time.Sleep(21 * time.Hour)
		if again := h.enqueue(queue.NewTask{Key: "k"}); again.ID != with.ID {
			t.Error("forgotten within a day")
		}
		time.Sleep(2 * time.Hour)
		if again := h.enqueue(queue.NewTask{Key: "k"}); again.ID == with.ID {
			t.Error("kept for ever")
		}
	})
}

func TestARunKnowsNothingOfAnothersTasks(t *testing.T) {
	inHouse(t, func(t *testing.T, h *house) {
		task := h.enqueue(queue.NewTask{Key: "k"})
		w := h.worker("W1")
		c := w.claim(queue.Claim{})
		other, ctx := uuid.New(), t.Context()
		for name, err := range map[string]error{
			"get":       second(h.Get(ctx, other, task.ID)),
			"wait":      second(h.Wait(ctx, other, task.ID, time.Second)),
			"cancel":    second(h.Cancel(ctx, other, task.ID)),
			"heartbeat": second(h.Heartbeat(ctx, w.Holder, other, task.ID, c.Token, 0)),
			"submit":    second(h.Submit(ctx, w.Holder, other, task.ID, c.Token, queue.Completed, nil)),
			"nack":      second(h.Nack(ctx, w.Holder, other, task.ID, c.Token, nil, "")),
			"abandon":   second(h.Abandon(ctx, w.Holder, other, task.ID, c.Token)),
		} {
			if !errors.Is(err, queue.ErrNotFound) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if ids, err := h.Redrive(ctx, other, "q", []uuid.UUID{task.ID}); !errors.Is(err, queue.ErrNoQueue) || len(ids) > 0 {
			t.Errorf("redrive: %v %v", ids, err)
		}
		if list, err := h.Stats(ctx, other, ""); err != nil || len(list) > 0 {
			t.Errorf("stats: %v %v", list, err)
		}
		theirs, err := h.Enqueue(ctx, queue.NewTask{Run: other, Queue: "q", Payload: json.RawMessage(`2`), Key: "k"})
		if err != nil || theirs.ID == task.ID {
			t.Errorf("enqueue under another run's key: %v %v", theirs.ID, err)
		}
		w.none()
	})
}

func second[T any](_ T, err error) error { return err }

// TestADroppedRunLeavesNoRowAndNoOtherRunsTaskGoes drops a run with something
// of everything, in more tasks than one transaction takes apart, and crashes
// amid it.
func TestADroppedRunLeavesNoRowAndNoOtherRunsTaskGoes(t *testing.T) {
	inHouse(t, func(t *testing.T, h *house) {
		dropped := h.run
		for n := range 250 {
			h.enqueue(queue.NewTask{Queue: fmt.Sprint("q", n%2), Key: fmt.Sprint(n), Delay: time.Duration(n%3) * time.Hour})
		}
		h.everything(t.Context())
		if _, err := h.Pause(t.Context(), dropped, "q0", "operator", "it fails"); err != nil {
			t.Fatal(err)
		}
		h.run = uuid.New()
		h.everything(t.Context())
		h.rows(func(tx engine.Tx) { h.Drop(tx, dropped) })
		h.crash()
		time.Sleep(3 * time.Minute) // its claims end with their ttl
		h.check()
		h.rows(func(tx engine.Tx) {
			tasks := 0
			for _, prefix := range []string{"", engine.Cold} {
				for row := range tx.Scan(prefix) {
					if strings.HasPrefix(row.Key, eventRows) {
						continue
					}
					for i := 0; i+16 <= len(row.Key); i++ {
						if row.Key[i:i+16] == string(dropped[:]) {
							t.Errorf("row %q is left", row.Key)
						}
					}
				}
			}
			for range tx.Scan("~payload/") {
				tasks++
			}
			if tasks != 5 {
				t.Errorf("%d tasks of the other run are left", tasks)
			}
		})
	})
}

func TestWaitingClaimsAreBounded(t *testing.T) {
	inHouse(t, func(t *testing.T, h *house) {
		h.opts.MaxWaitsPerActor, h.opts.MaxWaitsPerQueue = 20, 50
		h.crash()
		ctx, cancel := context.WithCancel(t.Context())
		left := make(chan error, 50)
		wait := func(w worker, n int) {
			for range n {
				go func() { left <- second(w.askCtx(ctx, queue.Claim{Wait: 50 * time.Second})) }()
			}
			synctest.Wait()
		}
		refused := func(w worker, which string) {
			t.Helper()
			_, err := w.ask(queue.Claim{Wait: time.Second})
			if limit := mustBe[*registry.LimitError](t, err); !strings.Contains(limit.Which, which) {
				t.Errorf("refused by %v", limit)
			}
		}
		greedy := h.worker("W1")
		wait(greedy, 20)
		refused(greedy, "one actor")
		wait(h.worker("W2"), 20)
		wait(h.worker("W3"), 10)
		refused(h.worker("W4"), "queue q")
		cancel()
		for range 50 {
			<-left
		}
		h.enqueue(queue.NewTask{})
		greedy.claim(queue.Claim{Wait: time.Second})
	})
}

// jsonOf is JSON of so many bytes.
func jsonOf(size int) json.RawMessage {
	return json.RawMessage(`"` + strings.Repeat("x", size-2) + `"`)
}

// Small payloads and results stand with the record, larger ones in rows of their
// own: nobody can tell, and nothing is left of any.
func TestPayloadsAndResultsOfAnySize(t *testing.T) {
	inHouse(t, func(t *testing.T, h *house) {
		w := h.worker("W1")
		sizes := []int{2, 100, 511, 512, 513, 4095, 4096, 4097, 1 << 20}
		see := func(id uuid.UUID, size int, result json.RawMessage) {
			t.Helper()
			if d := h.get(id); string(d.Payload) != string(jsonOf(size)) || string(d.Result) != string(result) {
				t.Errorf("payload of %d bytes, want %d, and a result of %d, want %d", len(d.Payload), size, len(d.Result), len(result))
			}
		}
		for _, size := range sizes {
			for _, state := range []queue.State{queue.Completed, queue.Failed, queue.Cancelled} {
				task := h.enqueue(queue.NewTask{Payload: jsonOf(size)})
				see(task.ID, size, nil)
				c := w.claim(queue.Claim{})
				if c.ID != task.ID || string(c.Payload) != string(jsonOf(size)) {
					t.Errorf("claimed %s with %d bytes, want %s with %d", c.ID, len(c.Payload), task.ID, size)
				}
				result := jsonOf(size)
				var err error
				if state == queue.Cancelled {
					result = nil
					_, err = h.Cancel(t.Context(), h.run, c.ID)
				} else {
					_, err = h.Submit(t.Context(), w.Holder, h.run, c.ID, c.Token, state, result)
				}
				if err != nil {
					t.Fatal(err)
				}
				h.crash()
				see(task.ID, size, result)
			}
			if _, err := h.Cancel(t.Context(), h.run, h.enqueue(queue.NewTask{Payload: jsonOf(size)}).ID); err != nil {
				t.Fatal(err) // one that was never claimed
			}
		}
		h.check()
		time.Sleep(25 * time.Hour)
		h.rows(func(tx engine.Tx) {
			for row := range coldRows(tx) {
				t.Errorf("row %.60q is left", row.Key)
			}
		})
	})
}

package queue_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/queue"
)

// spoilTask makes every record of a task unreadable, but for its payload if that
// is not told.
func (h *house) spoilTask(id uuid.UUID, payloadToo bool) {
	h.t.Helper()
	h.rows(func(tx engine.Tx) {
		key := string(id[:])
		row, _ := tx.Get("~payload/" + key)
		if payloadToo {
			tx.Put(engine.Row{Key: row.Key, Value: "\xff"})
		}
		if row, ok := tx.Get("~task/" + key); ok || !payloadToo {
			tx.Put(engine.Row{Key: "~task/" + key, Value: row.Value[:len(row.Value)/2]})
		}
		for row := range tx.Scan("~ready/") {
			if row.Value[:16] == key {
				tx.Put(engine.Row{Key: row.Key, Value: row.Value[:len(row.Value)/2]})
			}
		}
	})
}

// TestACorruptTaskAffectsOnlyItself spoils the records of a task in each state
// that time or a claim moves. Whoever asks for it is told so. The line goes on, the
// state opens again, Check reports the task, and in the end it is forgotten.
func TestACorruptTaskAffectsOnlyItself(t *testing.T) {
	for name, make := range map[string]func(h *house, w worker) queue.Task{
		"ready": func(h *house, _ worker) queue.Task { return h.enqueue(queue.NewTask{Priority: 9}) },
		"ready in a long line": func(h *house, w worker) queue.Task {
			task := h.enqueue(queue.NewTask{Priority: 9})
			for range 150 {
				h.enqueue(queue.NewTask{Priority: 9})
			}
			return task
		},
		"delayed": func(h *house, _ worker) queue.Task { return h.enqueue(queue.NewTask{Delay: time.Second}) },
		"timed": func(h *house, _ worker) queue.Task {
			return h.enqueue(queue.NewTask{RunAt: time.Now().Add(time.Second)})
		},
		"in progress": func(h *house, w worker) queue.Task {
			h.enqueue(queue.NewTask{})
			return w.claim(queue.Claim{TTL: time.Second}).Task
		},
		"completed": func(h *house, w worker) queue.Task {
			h.enqueue(queue.NewTask{})
			c := w.claim(queue.Claim{})
			if err := w.submit(c); err != nil {
				h.t.Fatal(err)
			}
			return c.Task
		},
		"dead": func(h *house, w worker) queue.Task {
			h.enqueue(queue.NewTask{MaxAttempts: 1})
			c := w.claim(queue.Claim{})
			if _, err := h.Abandon(h.t.Context(), w.Holder, h.run, c.ID, c.Token); err != nil {
				h.t.Fatal(err)
			}
			return c.Task
		},
	} {
		t.Run(name, func(t *testing.T) {
			inHouse(t, func(t *testing.T, h *house) {
				h.opts.Retention, h.opts.DeadRetention = time.Hour, 2*time.Hour
				h.crash()
				w := h.worker("W1")
				bad := make(h, w)
				good := h.enqueue(queue.NewTask{Queue: "q"})
				h.spoilTask(bad.ID, name[0] == 'r')
				if err := h.faults(); !errors.Is(err, engine.ErrCorrupt) {
					t.Errorf("Check finds %v", err)
				}
				for _, err := range []error{
					second(h.Get(t.Context(), h.run, bad.ID)),
					second(h.Cancel(t.Context(), h.run, bad.ID)),
					second(h.Submit(t.Context(), w.Holder, h.run, bad.ID, 1, queue.Completed, nil)),
				} {
					if !errors.Is(err, engine.ErrCorrupt) {
						t.Errorf("whoever asks is told %v", err)
					}
				}
				h.stop() // a restart, without the check that house.crash makes
				if err := errors.Join(<-h.done, h.eng.Close()); err != nil {
					t.Fatal(err)
				}
				h.open()
				time.Sleep(5 * time.Second) // delays and ttls are over
				seen := 0
				for {
					got, err := w.ask(queue.Claim{Count: 1})
					if err != nil {
						t.Fatal(err)
					}
					if len(got) == 0 {
						break
					}
					if got[0].ID == bad.ID {
						t.Fatal("it was claimed")
					}
					if seen++; got[0].ID == good.ID && w.submit(got[0]) != nil {
						t.Error("another task suffers")
					}
				}
				if want := map[bool]int{true: 151, false: 1}[name == "ready in a long line"]; seen != want {
					t.Errorf("%d other tasks were claimed, of %d", seen, want)
				}
				h.inState(good.ID, queue.Completed)
				w.die()
				time.Sleep(3 * time.Hour) // the retention of dead tasks
				for h.claimSome(w.again()) {
				}
				time.Sleep(3 * time.Hour)
				if err := h.faults(); err != nil {
					t.Errorf("in the end Check finds %v", err)
				}
				h.rows(func(tx engine.Tx) {
					for row := range tx.Scan(engine.Cold) {
						t.Errorf("row %.60q is left", row.Key)
					}
				})
			})
		})
	}
}

// claimSome claims and submits what there is.
func (h *house) claimSome(w worker) bool {
	h.t.Helper()
	got, err := w.ask(queue.Claim{Count: 100})
	for _, c := range got {
		err = errors.Join(err, w.submit(c))
	}
	if err != nil {
		h.t.Fatal(err)
	}
	return len(got) > 0
}

// A payload is read after the claim, where it holds up nobody.
func TestATaskWhosePayloadCannotBeReadIsDeadAndTheNextIsClaimed(t *testing.T) {
	inHouse(t, func(t *testing.T, h *house) {
		h.opts.DeadRetention = 2 * time.Hour
		h.crash()
		w := h.worker("W1")
		for _, count := range []int{1, 2} {
			bad, good := h.enqueue(queue.NewTask{Payload: jsonOf(5000)}), h.enqueue(queue.NewTask{})
			h.rows(func(tx engine.Tx) { tx.Put(engine.Row{Key: "~payload/" + string(bad.ID[:]), Value: "\xff"}) })
			got, err := w.askCtx(w.named("1"), queue.Claim{Count: count})
			if err != nil || len(got) != 1 || got[0].ID != good.ID {
				t.Fatalf("claimed %+v %v", got, err)
			}
			if err := w.submit(got[0]); err != nil {
				t.Fatal(err)
			}
			if _, err := h.Get(t.Context(), h.run, bad.ID); !errors.Is(err, engine.ErrCorrupt) {
				t.Error(err)
			}
			dead, err := h.List(t.Context(), h.run, "q", queue.Dead, 10)
			if err != nil || len(dead) != 1 || dead[0].ID != bad.ID {
				t.Errorf("dead are %v %v", dead, err)
			}
			time.Sleep(3 * time.Hour)
		}
	})
}

package queue_test

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	pebbledb "github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"
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
					for row := range coldRows(tx) {
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

// damage makes cold rows unreadable for the store itself, and opens the state again.
func (h *house) damage(keys ...string) {
	h.t.Helper()
	h.stop()
	if err := errors.Join(<-h.done, h.eng.Close()); err != nil {
		h.t.Fatal(err)
	}
	db, err := pebbledb.Open("state", &pebbledb.Options{FS: h.fs, FormatMajorVersion: pebbledb.FormatNewest, Logger: quiet{}})
	if err != nil {
		h.t.Fatal(err)
	}
	for _, key := range keys {
		err = errors.Join(err, db.Set([]byte("\x02"+key), []byte("damaged"), pebbledb.Sync))
	}
	names, listErr := h.fs.List("state")
	for _, name := range names {
		if strings.HasSuffix(name, ".live") { // a bare Pebble removes a log and leaves its mark
			err = errors.Join(err, h.fs.Remove("state/"+name))
		}
	}
	if err := errors.Join(err, listErr, db.Close()); err != nil {
		h.t.Fatal(err)
	}
	h.open()
}

type quiet struct{}

func (quiet) Infof(string, ...any)  {}
func (quiet) Errorf(string, ...any) {}
func (quiet) Fatalf(string, ...any) {}

// entriesOf are the keys of the rows of an index, in order.
func (h *house) entriesOf(prefix string) (keys []string) {
	h.rows(func(tx engine.Tx) {
		for row := range tx.Scan(prefix) {
			keys = append(keys, row.Key)
		}
	})
	return keys
}

// TestEntriesThatTheStoreCannotReadHoldUpNobody damages the first entries of a line,
// some in the middle, or all of it: the others are claimed in order, by one or
// many at a time, and the queue can be used up.
func TestEntriesThatTheStoreCannotReadHoldUpNobody(t *testing.T) {
	for name, c := range map[string]struct {
		tasks, from, to int
		count           int
	}{
		"the first": {10, 0, 1, 1}, "the first, many at a time": {10, 0, 1, 4}, "the middle": {10, 3, 6, 1}, "the middle, many at a time": {10, 3, 6, 4},
		"the last": {10, 9, 10, 1}, "all": {10, 0, 10, 1}, "a long line": {200, 50, 120, 1},
	} {
		t.Run(name, func(t *testing.T) {
			inHouse(t, func(t *testing.T, h *house) {
				var want []uuid.UUID
				for i := range c.tasks {
					if task := h.enqueue(queue.NewTask{}); i < c.from || i >= c.to {
						want = append(want, task.ID)
					}
				}
				h.damage(h.entriesOf("~ready/")[c.from:c.to]...)
				other := h.enqueue(queue.NewTask{})
				want = append(want, other.ID)
				w := h.worker("W1")
				for len(want) > 0 {
					got, err := w.ask(queue.Claim{Count: c.count})
					if err != nil || len(got) == 0 {
						t.Fatalf("%d are left, claimed %v %v", len(want), got, err)
					}
					for _, task := range got {
						if task.ID != want[0] {
							t.Fatalf("claimed %s, want %s", task.ID, want[0])
						}
						want = want[1:]
						if err := w.submit(task); err != nil {
							t.Fatal(err)
						}
					}
				}
				w.none()
				if s, err := h.Stats(t.Context(), h.run, "q"); err != nil || s[0].ReadyTotal() != 0 {
					t.Errorf("in the end %+v %v", s, err)
				}
				h.forgetDamage()
			})
		})
	}
}

// TestDamageAmongTheDelayedHoldsUpNobody damages the entry of one delayed task and
// the record of another. The third becomes ready in time.
func TestDamageAmongTheDelayedHoldsUpNobody(t *testing.T) {
	inHouse(t, func(t *testing.T, h *house) {
		h.enqueue(queue.NewTask{Delay: time.Second})
		spoilt := h.enqueue(queue.NewTask{Delay: 2 * time.Second})
		good := h.enqueue(queue.NewTask{Delay: 3 * time.Second})
		h.damage(h.entriesOf("~delayed/")[0], "~task/"+string(spoilt.ID[:]))
		time.Sleep(4 * time.Second)
		w := h.worker("W1")
		if c := w.claim(queue.Claim{}); c.ID != good.ID {
			t.Errorf("claimed %s, want %s", c.ID, good.ID)
		}
		if s, err := h.Stats(t.Context(), h.run, "q"); err != nil || s[0].Corrupt != 1 {
			t.Errorf("%+v %v", s, err)
		}
		h.forgetDamage()
	})
}

// TestADamagedRecordOfAClaimDoesNotStopItsSession ends a session one of whose
// tasks has a record that the store cannot read.
func TestADamagedRecordOfAClaimDoesNotStopItsSession(t *testing.T) {
	inHouse(t, func(t *testing.T, h *house) {
		bad, good := h.enqueue(queue.NewTask{}), h.enqueue(queue.NewTask{})
		w := h.worker("W1")
		if got, err := w.ask(queue.Claim{Count: 2}); err != nil || len(got) != 2 {
			t.Fatal(got, err)
		}
		h.damage("~task/" + string(bad.ID[:]))
		w.h = h
		w.die()
		h.inState(good.ID, queue.Ready)
		if s, err := h.Stats(t.Context(), h.run, "q"); err != nil || s[0].Corrupt != 1 || s[0].InProgress != 0 {
			t.Errorf("%+v %v", s, err)
		}
		h.forgetDamage()
	})
}

// TestADamagedResultAffectsOnlyItsTask damages a result that is submitted again. That
// submission is told so, and one of another task in the same batch is not affected.
func TestADamagedResultAffectsOnlyItsTask(t *testing.T) {
	inHouse(t, func(t *testing.T, h *house) {
		h.enqueueMany(h.drafts("1", "2")...)
		w := h.worker("W1")
		got, err := w.ask(queue.Claim{Count: 2})
		if err != nil || len(got) != 2 {
			t.Fatal(got, err)
		}
		var list []queue.Submission
		for _, c := range got {
			list = append(list, queue.Submission{ID: c.ID, Token: c.Token, State: queue.Completed, Result: jsonOf(5000)})
		}
		again := func() error { return second(h.Queue.Submit(t.Context(), w.Holder, h.run, list[0])) }
		if err := again(); err != nil {
			t.Fatal(err)
		}
		h.damage("~result/" + string(list[0].ID[:]))
		if err := again(); !errors.Is(err, engine.ErrCorrupt) || !strings.Contains(err.Error(), "nothing else is affected") {
			t.Errorf("submitted again: %v", err)
		}
		answers, err := h.SubmitMany(t.Context(), w.Holder, h.run, list)
		if err != nil || !errors.Is(answers[0].Err, engine.ErrCorrupt) || answers[1].Err != nil {
			t.Fatalf("submitted with another: %+v, %v", answers, err)
		}
		h.inState(list[1].ID, queue.Completed)
		h.forgetDamage()
	})
}

// TestABlockThatTheStoreCannotReadHoldsUpNobody damages a block of a table, which
// has the entries of several tasks. The others are handed out in their order. A claim
// from a queue whose entries end where the block begins may be refused, and is answered.
func TestABlockThatTheStoreCannotReadHoldsUpNobody(t *testing.T) {
	for name, damaged := range map[string]int{"the first": 0, "the middle": 150} {
		t.Run(name, func(t *testing.T) {
			inHouse(t, func(t *testing.T, h *house) {
				var tasks []uuid.UUID
				for range 300 {
					tasks = append(tasks, h.enqueue(queue.NewTask{}).ID)
				}
				// The last place with an id is the entry of the task: its payload is before it.
				h.damageBlock(func(table []byte) int { return bytes.LastIndex(table, tasks[damaged][:]) })
				h.enqueue(queue.NewTask{Queue: "before-q"})
				w, claimed := h.worker("W1"), 0
				if _, err := w.ask(queue.Claim{Queues: []string{"before-q"}}); err != nil && !errors.Is(err, engine.ErrCorrupt) {
					t.Error(err)
				}
				for at := 0; ; claimed++ {
					got, err := w.ask(queue.Claim{})
					if err != nil {
						t.Fatal(err)
					}
					if len(got) == 0 {
						break
					}
					next := slices.Index(tasks[at:], got[0].ID)
					if next < 0 {
						t.Fatalf("%v is claimed out of order", got[0].ID)
					}
					at += next + 1
				}
				if claimed < 100 || claimed == 300 {
					t.Errorf("%d of 300 tasks were claimed; a block has fewer than 200", claimed)
				}
				h.forgetDamage()
			})
		})
	}
}

// damageBlock damages a table at an offset, and opens the state again.
func (h *house) damageBlock(offset func(table []byte) int) {
	h.t.Helper()
	h.stop()
	if err := errors.Join(<-h.done, h.eng.Close()); err != nil {
		h.t.Fatal(err)
	}
	o := &pebbledb.Options{FS: h.fs, FormatMajorVersion: pebbledb.FormatNewest, Logger: quiet{}}
	o.Levels[0].Compression = func() *sstable.CompressionProfile { return sstable.NoCompression }
	db, err := pebbledb.Open("state", o) // writes what the log has to a table
	if err != nil {
		h.t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		h.t.Fatal(err)
	}
	names, err := h.fs.List("state")
	if err != nil {
		h.t.Fatal(err)
	}
	found := 0
	for _, name := range names {
		switch path := "state/" + name; {
		case strings.HasSuffix(name, ".live"): // a bare Pebble removes a log and leaves its mark
			err = errors.Join(err, h.fs.Remove(path))
		case strings.HasSuffix(name, ".sst"):
			f, openErr := h.fs.Open(path)
			if openErr != nil {
				h.t.Fatal(openErr)
			}
			table, readErr := io.ReadAll(f)
			err = errors.Join(err, readErr, f.Close())
			if at := offset(table); at >= 0 {
				found++
				table[at] ^= 0xff
				f, createErr := h.fs.Create(path, vfs.WriteCategoryUnspecified)
				if createErr != nil {
					h.t.Fatal(createErr)
				}
				_, writeErr := f.Write(table)
				err = errors.Join(err, writeErr, f.Sync(), f.Close())
			}
		}
	}
	if err != nil || found != 1 {
		h.t.Fatalf("damaged %d tables: %v", found, err)
	}
	h.open()
}

// forgetDamage ends the house without the checks that the damage would fail.
func (h *house) forgetDamage() {
	if err := h.faults(); !errors.Is(err, engine.ErrCorrupt) {
		h.t.Errorf("Check finds %v", err)
	}
	h.stop()
	if err := errors.Join(<-h.done, h.eng.Close()); err != nil {
		h.t.Error(err)
	}
	h.fs = vfs.NewCrashableMem()
	h.open()
}

package queue_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/queue"
)

// rows changes the rows of a house behind the queue's back.
func (h *house) rows(change func(tx engine.Tx)) {
	h.t.Helper()
	err := h.eng.Update(context.Background(), func(tx engine.Tx) error { change(tx); return nil })
	if err != nil {
		h.t.Fatal(err)
	}
}

func (h *house) faults() error {
	return h.eng.View(context.Background(), func(tx engine.Tx) error { return h.Check(tx) })
}

// The rows that a test disagrees with, by the key schema in the package doc.
func firstRow(tx engine.Tx, prefix string) (first engine.Row) {
	for row := range tx.Scan(prefix) {
		return row
	}
	panic("no row " + prefix)
}

// TestCheckFindsEveryDisagreement plants one at a time in a state that has
// something of everything.
func TestCheckFindsEveryDisagreement(t *testing.T) {
	remove := func(prefix string) func(engine.Tx) {
		return func(tx engine.Tx) { tx.Delete(firstRow(tx, prefix).Key) }
	}
	spoil := func(prefix string) func(engine.Tx) {
		return func(tx engine.Tx) {
			row := firstRow(tx, prefix)
			row.Value = row.Value[:len(row.Value)/2]
			tx.Put(row)
		}
	}
	double := func(prefix string) func(engine.Tx) { // the same entry, elsewhere
		return func(tx engine.Tx) {
			row := firstRow(tx, prefix)
			row.Key = row.Key[:len(row.Key)-17] + string(row.Key[len(row.Key)-17]+1) + row.Key[len(row.Key)-16:]
			tx.Put(row)
		}
	}
	for name, c := range map[string]struct {
		plant   func(engine.Tx)
		finds   string
		corrupt bool
	}{
		"ready task lost":    {func(tx engine.Tx) { tx.Delete("~payload/" + firstRow(tx, "~ready/").Value[:16]) }, "no such row", false},
		"task lost":          {remove("~task/"), "is of no task", false},
		"task unreadable":    {spoil("~task/"), "~task/", true},
		"payload lost":       {func(tx engine.Tx) { tx.Delete("~payload/" + firstRow(tx, "~task/").Key[len("~task/"):]) }, "has no row \"~payload/", false},
		"payload of no task": {func(tx engine.Tx) { tx.Put(engine.Row{Key: "~payload/0123456789abcdef", Value: "\x011"}) }, "is of no task", false},
		"payload unreadable": {spoil("~payload/"), "~payload/", true},
		"payload cut": {func(tx engine.Tx) {
			row := firstRow(tx, "~payload/")
			row.Value = string(row.Value[0]-1) + row.Value[2:]
			tx.Put(row)
		}, "bytes of payload", false},
		"result of no task": {func(tx engine.Tx) { tx.Put(engine.Row{Key: "~result/0123456789abcdef"}) }, "no such row", false},
		"result lost":       {remove("~result/"), "has no row \"~result/", false},
		"result of no use": {func(tx engine.Tx) {
			tx.Put(engine.Row{Key: "~result/" + firstRow(tx, "~task/").Key[len("~task/"):], Value: "1"})
		}, "no such row", false},
		"ready entry lost":   {remove("~ready/"), "has no row \"~ready/", false},
		"ready entry spoilt": {spoil("~ready/"), "~ready/", true},
		"ready record other": {func(tx engine.Tx) {
			row := firstRow(tx, "~ready/")
			row.Value = strings.Replace(row.Value, "\x01k", "\x01j", 1) // its idempotency key
			tx.Put(row)
		}, "has another record in row \"~ready/", false},
		"ready entry doubled": {func(tx engine.Tx) {
			row := firstRow(tx, "~ready/")
			row.Key = row.Key[:len(row.Key)-8] + "\x01234567\xff"
			tx.Put(row)
		}, "no such row", false},
		"delayed entry lost":     {remove("~delayed/"), "has no row \"~delayed/", false},
		"delayed entry doubled":  {double("~delayed/"), "no such row", false},
		"finished entry lost":    {remove("~completed/"), "has no row \"~completed/", false},
		"finished entry doubled": {double("~completed/"), "no such row", false},
		"dead entry lost":        {remove("~dead/"), "has no row \"~dead/", false},
		"dead entry doubled":     {double("~dead/"), "no such row", false},
		"entry too short":        {func(tx engine.Tx) { tx.Put(engine.Row{Key: "~delayed/x"}) }, "~delayed/x", true},
		"key lost":               {remove("~key/"), "has no row \"~key/", false},
		"key of another task": {func(tx engine.Tx) {
			row := firstRow(tx, "~key/")
			row.Value = strings.Repeat("\x01", 16) + row.Value[16:]
			tx.Put(row)
		}, "not found by its idempotency key", false},
		"key unreadable": {spoil("~key/"), "~key/", true},
		"key of no task": {func(tx engine.Tx) {
			row := firstRow(tx, "~key/")
			row.Key += "2"
			tx.Put(row)
		}, "no such row", false},
		"counts lost":       {remove("queue/"), "and no account", false},
		"counts unreadable": {spoil("queue/"), "queue/", true},
		"counts wrong": {func(tx engine.Tx) {
			row := firstRow(tx, "queue/")
			row.Value = row.Value[:1] + string(row.Value[1]+1) + row.Value[2:] // ready of priority 0
			tx.Put(row)
		}, "counts", false},
		"never due": {func(tx engine.Tx) {
			row := firstRow(tx, "queue/")
			row.Due = time.Time{}
			tx.Put(row)
		}, "is due at", false},
		"due too late": {func(tx engine.Tx) {
			row := firstRow(tx, "queue/")
			row.Due = row.Due.Add(100 * time.Hour)
			tx.Put(row)
		}, "is due at", false},
		"line begins too far": {func(tx engine.Tx) {
			row := firstRow(tx, "queue/")
			row.Value = row.Value[:2] + "\x7f" + row.Value[3:] // behind the format and the first count
			tx.Put(row)
		}, "below the lower bound", false},
		"cursor too far": {func(tx engine.Tx) {
			row := firstRow(tx, "~delayed/")
			tx.Touch(engine.Row{Key: "cursor/" + row.Key[:len(row.Key)-24], Value: "\xff"})
		}, "below the lower bound", false},
		"places given again": {func(tx engine.Tx) {
			row := firstRow(tx, "queue/")
			row.Value = row.Value[:len(row.Value)-17] + "\x00" + row.Value[len(row.Value)-16:] // before the actor
			tx.Put(row)
		}, "has place", false},
		"lease lost":              {remove("lease/queue\x00"), "leased: false", false},
		"lease of no task":        {func(tx engine.Tx) { copyLease(tx, uuid.NewString()) }, "is not claimed with it", false},
		"lease of no id":          {func(tx engine.Tx) { copyLease(tx, "task") }, "task", true},
		"place in one queue only": {remove("waiter/"), "has no place there", false},
		"claim waits at a full queue": {func(tx engine.Tx) {
			row := firstRow(tx, "queue/")
			row.Key = row.Key[:len(row.Key)-1] + "c"
			tx.Put(row)
		}, "which has a task ready", false},
	} {
		t.Run(name, func(t *testing.T) {
			inHouse(t, func(t *testing.T, h *house) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				h.everything(ctx)
				if err := h.faults(); err != nil {
					t.Fatalf("before: %v", err)
				}
				var was []engine.Row
				h.rows(func(tx engine.Tx) {
					for _, prefix := range []string{"", engine.Cold} {
						for row := range tx.Scan(prefix) {
							was = append(was, row)
						}
					}
					c.plant(tx)
				})
				err := h.faults()
				if err == nil || !strings.Contains(err.Error(), c.finds) || errors.Is(err, engine.ErrCorrupt) != c.corrupt {
					t.Errorf("finds: %v", err)
				}
				hot := c.corrupt && !strings.HasPrefix(c.finds, engine.Cold) && c.finds != "task"
				if err := h.Recover(t.Context()); hot != errors.Is(err, engine.ErrCorrupt) {
					t.Errorf("recover: %v", err)
				}
				h.rows(func(tx engine.Tx) { // so that the house can be closed
					for _, prefix := range []string{"", engine.Cold} {
						for row := range tx.Scan(prefix) {
							tx.Delete(row.Key)
						}
					}
					for _, row := range was {
						tx.Put(row)
					}
				})
			})
		})
	}
}

func copyLease(tx engine.Tx, key string) {
	row := firstRow(tx, "lease/queue\x00")
	row.Key = "lease/queue\x00" + key
	tx.Put(row)
}

// everything fills a house with something of everything.
func (h *house) everything(ctx context.Context) {
	h.t.Helper()
	w := h.worker("W1")
	h.enqueue(queue.NewTask{Queue: "a", Key: "k"})
	h.enqueue(queue.NewTask{Queue: "a", Delay: time.Hour})
	for range 3 {
		h.enqueue(queue.NewTask{Queue: "b", MaxAttempts: 1, Priority: 9})
	}
	done := w.claim(queue.Claim{Queues: []string{"b"}})
	if _, err := h.Submit(ctx, w.Holder, h.run, done.ID, done.Token, queue.Completed, jsonOf(1000)); err != nil {
		h.t.Fatal(err)
	}
	dead := w.claim(queue.Claim{Queues: []string{"b"}})
	if _, err := h.Abandon(ctx, w.Holder, h.run, dead.ID, dead.Token); err != nil {
		h.t.Fatal(err)
	}
	w.claim(queue.Claim{Queues: []string{"b"}, RequestID: "r"})
	go func() {
		_, _ = w.askCtx(ctx, queue.Claim{Queues: []string{"c", "d"}, Wait: 50 * time.Second})
	}()
	synctest.Wait()
}

package dispatch_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/enginetest"
)

// A countedEngine counts the rows that its largest transaction under the lock
// has read.
type countedEngine struct {
	engine.Engine
	most atomic.Int64
}

func (e *countedEngine) Update(ctx context.Context, fn func(engine.Tx) error) error {
	return e.Engine.Update(ctx, e.counting(fn))
}

func (e *countedEngine) View(ctx context.Context, fn func(engine.Tx) error) error {
	return e.Engine.View(ctx, e.counting(fn))
}

func (e *countedEngine) counting(fn func(engine.Tx) error) func(engine.Tx) error {
	return func(tx engine.Tx) error {
		counted := &enginetest.CountedTx{Tx: tx}
		defer func() { e.most.Store(max(e.most.Load(), int64(counted.Rows))) }() // one transaction at a time
		return fn(counted)
	}
}

// Whoever asks about an actor that holds many leases, or about a layer of a run
// with many, makes nobody wait for longer than if there were few.
func TestNoCallReadsAllThatLivesUnderTheLock(t *testing.T) {
	most := func(many int) map[string]int64 {
		count := &countedEngine{}
		reads := make(map[string]int64)
		home := &house{over: func(eng engine.Engine) engine.Engine {
			count.Engine = eng
			return count
		}}
		synctest.Test(t, func(t *testing.T) {
			home.t = t
			at(home, vfs.NewCrashableMem(), func(h *house) {
				_, token := h.add(dispatch.Root, "", "boss")
				boss := h.connect(dispatch.Credentials{Token: token}, 1)
				_, token = h.add(dispatch.Worker, "", "W1")
				w := h.connect(dispatch.Credentials{Token: token}, 2)
				for i := range many {
					h.take(w, dispatch.RunScope, fmt.Sprint("k", i), time.Hour)
					h.add(dispatch.Sublead, "", fmt.Sprint("S", i))
				}
				measure := func(what string, call func() error) {
					t.Helper()
					count.most.Store(0)
					if err := call(); err != nil {
						t.Errorf("%s: %v", what, err)
					}
					reads[what] = count.most.Load()
				}
				ctx := t.Context()
				measure("actor_status", func() error { _, err := boss.Status(ctx, "W1"); return err })
				measure("actor_wait", func() error { _, _, err := boss.Await(ctx, []string{"W1"}, true, time.Millisecond); return err })
				measure("lease check", func() error { _, err := h.CheckToken(ctx, "r", "", dispatch.LayerScope, "x", 1); return err })
				measure("store", func() error { _, err := h.RunStore(ctx, "r", ""); return err })
				measure("revoke", func() error {
					_, err := h.Revoke(ctx, "r", dispatch.Revocation{Key: "x", Scope: dispatch.LayerScope, Reason: "r"})
					return err
				})
				measure("end of a sub-agent", func() error { return w.EndParty(ctx, "p") })
			})
		})
		return reads
	}
	few, many := most(300), most(800)
	for what, n := range few {
		if many[what] > n {
			t.Errorf("%s: a transaction reads %d rows with 300 leases and layers, and %d with 800", what, n, many[what])
		}
	}
}

package registry_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/event"
	"github.com/leasehold/leasehold/registry"
)

// TestAPartialHoldIsNeverVisible lets parties that want a key of the run and one of a
// layer contend with those that want one of them. Whoever looks between any two commits
// sees both keys with one of the former, or none; and in the events nothing comes between
// its two grants.
func TestAPartialHoldIsNeverVisible(t *testing.T) {
	run := uuid.New()
	opts := registry.Options{LayerOf: func(registry.Tx, string) (uuid.UUID, string) { return run, "L" }}
	both := []registry.Want{{Scope: "run:" + run.String(), Key: "x"}, {Scope: "layer:1", Key: "y"}}
	inHouse(t, opts, func(t *testing.T, h *house) {
		ctx, stop := context.WithCancel(t.Context())
		var looking, working sync.WaitGroup
		looks := 0
		looking.Go(func() {
			watch := h.eng.Watch("")
			defer watch.Stop()
			for {
				h.view(func(tx registry.Tx) {
					var of []registry.Lease
					for _, want := range both {
						if l, ok := h.Registry(want.Scope).Get(tx, want.Key); ok && l.Holder.Path == "both" {
							of = append(of, l)
						}
					}
					if looks++; len(of) == 1 || len(of) == 2 && of[0].Holder != of[1].Holder {
						t.Errorf("of two keys that are taken together, these are held: %+v", of)
					}
				})
				select {
				case <-watch.C:
				case <-ctx.Done():
					return
				}
			}
		})
		var granted atomic.Int64
		for i := range 12 {
			working.Go(func() {
				rnd := rand.New(rand.NewPCG(7, uint64(i)))
				wants, p := both, h.party("both")
				if i%3 > 0 {
					wants, p = both[i%3-1:i%3], h.party("one")
				}
				for range 20 {
					time.Sleep(within(rnd, time.Second))
					list, err := h.AcquireAll(t.Context(), wants, registry.Request{Holder: p.Holder, TTL: 5 * time.Second, Wait: registry.MaxWait})
					if err != nil {
						continue // it has waited for as long as it may
					}
					if i%3 == 0 && i < 6 {
						time.Sleep(within(rnd, time.Second))
					}
					if len(list) == 2 {
						granted.Add(1)
					}
					if err := h.EndParty(t.Context(), p.Holder); err != nil { // gives back all in one commit
						t.Error(err)
					}
				}
			})
		}
		working.Wait()
		stop()
		looking.Wait()
		if granted.Load() < 20 || looks < 100 {
			t.Errorf("%d were granted both, and somebody looked %d times", granted.Load(), looks)
		}
		h.view(func(tx engine.Tx) {
			events, err := event.Read(tx, run, 0)
			if err != nil {
				t.Fatal(err)
			}
			pairs := 0
			var first *event.Event
			for e := range events {
				grant := e.Path == "both" && (e.Kind == event.LeaseGranted || e.Kind == event.LeaseHandedOver)
				switch {
				case first != nil && (!grant || e.Actor != first.Actor || e.Key == first.Key):
					t.Errorf("between the grants of %+v comes %+v", *first, e)
				case first != nil:
					first, pairs = nil, pairs+1
					continue
				}
				if first = nil; grant {
					first = &e
				}
			}
			if pairs != int(granted.Load()) || first != nil {
				t.Errorf("%d events of two grants, and %d were told", pairs, granted.Load())
			}
		})
	})
}

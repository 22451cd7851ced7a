package registry_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/call"
	"github.com/leasehold/leasehold/registry"
)

// A party waits for one key, and for it with another: neither place is in the way of the
// other, whichever came first.
func TestAPartyIsNotInItsOwnWay(t *testing.T) {
	for _, order := range []string{"one key first", "both first"} {
		inHouse(t, registry.Options{}, func(t *testing.T, h *house) {
			a, b, c, late := h.party("A"), h.party("B"), h.party("C"), h.party("L")
			x := a.acquire(registry.Request{Key: "x"})
			y, err := c.all(0, "z", "y")
			if err != nil {
				t.Fatal(err)
			}
			var both <-chan answers
			if order == "both first" {
				both = b.waitAll("x", "y")
			}
			single := b.wait(registry.Request{Key: "x"})
			if both == nil {
				both = b.waitAll("x", "y")
				c.release(y[1])
			}
			behind := late.wait(registry.Request{Key: "x"})
			a.release(x)
			one := granted(t, single)
			h.check()
			if order == "both first" {
				c.release(y[1])
			}
			synctest.Wait()
			select {
			case got := <-both:
				if got.err != nil || got.list[0].ID != one.ID {
					t.Errorf("%s: %+v %v", order, got.list, got.err)
				}
			default:
				t.Errorf("%s: both keys are the party's or free, and it waits for them", order)
			}
			waits(t, behind)
			h.check()
		})
	}
}

// A place whose call is gone is passed over. If nobody is behind it, and the client may
// come back, what has become free meanwhile is kept for it.
func TestAKeyThatIsFreedWhileACallIsCutOffIsKeptForIt(t *testing.T) {
	inHouse(t, registry.Options{}, func(t *testing.T, h *house) {
		a, b, c := h.party("A"), h.party("B"), h.party("C")
		a.acquire(registry.Request{Key: "x"})
		ctx, cut := context.WithCancelCause(t.Context())
		first := b.waitCtx(ctx, registry.Request{Key: "x"})
		err := h.eng.Update(t.Context(), func(tx engine.Tx) error {
			cut(call.ErrCutOff)
			h.EndSession(tx, a.Session, 10)
			return nil
		})
		if ans := <-first; err != nil || !errors.Is(ans.err, call.ErrCutOff) {
			t.Fatal(err, ans.err)
		}
		h.check()
		_, err = c.try(registry.Request{Key: "x"})
		if held := mustBe[*registry.HeldError](t, err); !held.Reserved || held.Holder.Session != b.Session {
			t.Errorf("kept for B: %+v", held)
		}
		b.acquire(registry.Request{Key: "x"})
	})
}

// What is reserved for a party goes with the lease beside which it could not be another's.
func TestAReservationThatEndsWithAnAdoptionServesTheLine(t *testing.T) {
	inHouse(t, registry.Options{}, func(t *testing.T, h *house) {
		a, b, c := h.party("A"), h.party("B"), h.party("C")
		mine := a.acquire(registry.Request{Key: "file:s/a"})
		other := c.acquire(registry.Request{Key: "file:s/b"})
		if _, err := a.try(registry.Request{Key: "file:s/**", Wait: time.Second}); err == nil {
			t.Fatal("granted")
		}
		waiting := b.wait(registry.Request{Key: "file:s/b"})
		c.release(other)
		waits(t, waiting) // file:s/** is kept for A
		if _, err := a.again().renew(mine, 0); err != nil {
			t.Fatal(err)
		}
		granted(t, waiting)
		h.check()
	})
}

// A party that was to have a key alone comes to share it: it gives up its place, and what
// was reserved for it there.
func TestWhoComesToShareAKeyWaitsForItAloneNoMore(t *testing.T) {
	inHouse(t, registry.Options{}, func(t *testing.T, h *house) {
		a, b := h.party("A"), h.party("B")
		next := a.again()
		g := a.acquire(registry.Request{Key: "x", Shared: true})
		if _, err := next.try(registry.Request{Key: "x", Wait: time.Second}); err == nil {
			t.Fatal("granted")
		}
		waiting := b.wait(registry.Request{Key: "x", Shared: true})
		waits(t, waiting)
		if _, err := next.renew(g, 0); err != nil {
			t.Fatal(err)
		}
		granted(t, waiting)
		h.check()
	})
}

// A lease lapses whose holder waits for its key together with another.
func TestWhatHadLapsedIsGrantedAnew(t *testing.T) {
	inHouse(t, registry.Options{}, func(t *testing.T, h *house) {
		a, b := h.party("A"), h.party("B")
		y, err := a.all(0, "z", "y")
		if err != nil {
			t.Fatal(err)
		}
		old := b.acquire(registry.Request{Key: "x", TTL: time.Second})
		both := b.waitAll("x", "y")
		time.Sleep(3 * time.Second)
		a.release(y[1])
		got := <-both
		if got.err != nil || got.list[0].Token <= old.Token {
			t.Fatal(got.list, got.err)
		}
		h.check()
		_, err = b.renew(old, 0)
		mustBe[*registry.LostError](t, err)
	})
}

// A call ends an expired lease that it comes upon, and with that its own party's place is
// served: what it knew of the place is no more.
func TestACallWhoseOwnPlaceIsServedByIt(t *testing.T) {
	for _, shared := range []bool{false, true} {
		for _, parked := range []bool{false, true} {
			inHouse(t, registry.Options{}, func(t *testing.T, h *house) {
				a, b := h.party("A"), h.party("B")
				a.acquire(registry.Request{Key: "x", TTL: 2 * time.Second})
				a.acquire(registry.Request{Key: "y"})
				waits(t, b.as("other").wait(registry.Request{Key: "y"}))
				older := b.wait(registry.Request{Key: "x"})
				if parked {
					ctx, cut := context.WithCancelCause(t.Context())
					older = b.waitCtx(ctx, registry.Request{Key: "x"})
					cut(call.ErrCutOff)
				}
				synctest.Wait()
				h.untended(func() {
					time.Sleep(3 * time.Second)
					_, err := b.try(registry.Request{Key: "x", Shared: shared})
					if err != nil {
						t.Errorf("shared %v, parked %v: %v", shared, parked, err)
					}
					h.check()
				})
				if ans := <-older; !parked && ans.err != nil {
					t.Error(ans.err)
				}
				h.check()
			})
		}
	}
}

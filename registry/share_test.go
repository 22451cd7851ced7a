package registry_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/leasehold/leasehold/registry"
)

// All who share a key are looked at under the lock when somebody asks for it. So
// their number is bounded, and whoever waits for a key that so many share is
// still served in turn.
func TestThoseWhoShareAKeyAreBounded(t *testing.T) {
	inHouse(t, registry.Options{}, func(t *testing.T, h *house) {
		a := h.party("A")
		as := func(n int) party { return a.as(fmt.Sprint(n)) }
		first := as(0).acquire(registry.Request{Key: "x", Shared: true, TTL: time.Hour})
		for n := range registry.MaxBelow {
			as(n + 1).acquire(registry.Request{Key: "x", Shared: true, TTL: time.Hour})
		}
		b, c := h.party("B"), h.party("C")
		_, err := c.try(registry.Request{Key: "x", Shared: true})
		if limit := mustBe[*registry.LimitError](t, err); limit.Which != "leases that share a key of a request" || limit.Max != registry.MaxBelow {
			t.Error(err)
		}
		for _, n := range []int{0, 500, registry.MaxBelow} {
			if again := as(n).acquire(registry.Request{Key: "x", Shared: true}); !again.Reentrant {
				t.Errorf("%d has %+v", n, again)
			}
		}
		_, err = b.try(registry.Request{Key: "x"})
		mustBe[*registry.HeldError](t, err)

		as(0).release(first)
		// B wants it alone. C waits behind B, and may share it once B has left.
		ctx, leave := context.WithCancel(t.Context())
		alone := b.waitCtx(ctx, registry.Request{Key: "x", Wait: registry.MaxWait})
		shares := c.wait(registry.Request{Key: "x", Shared: true, Wait: registry.MaxWait})
		leave()
		if got := <-alone; !errors.Is(got.err, context.Canceled) {
			t.Error(got.err)
		}
		granted(t, shares)
	})
}

// By adoption within its session a party may share a key twice. It has only that key.
func TestAPartyThatSharesAKeyTwiceHasOneKey(t *testing.T) {
	inHouse(t, registry.Options{}, func(t *testing.T, h *house) {
		w := h.party("W")
		a, b := w.as("a"), w.as("b")
		g := a.acquire(registry.Request{Key: "x", Shared: true})
		b.acquire(registry.Request{Key: "x", Shared: true})
		if _, err := b.renew(g, 0); err != nil {
			t.Fatal(err)
		}
		r := h.Registry("run:1")
		both := func() registry.Grant {
			list, err := h.AcquireAll(t.Context(), []registry.Want{r.Want("x", true), r.Want("y", false)}, registry.Request{Holder: b.Holder, RequestID: "q"})
			if err != nil {
				t.Fatal(err)
			}
			return list[1]
		}
		first := both()
		if again := both(); first.Reentrant || again.Reentrant || again.ID != first.ID {
			t.Errorf("y: %+v, and sent again %+v", first, again)
		}
	})
}

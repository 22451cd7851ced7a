package registry_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold/registry"
)

// wanted are the notices that somebody waits, in words.
func (p party) wanted() (texts []string) {
	p.h.t.Helper()
	for _, n := range p.notices() {
		if n.Kind == registry.Wanted {
			texts = append(texts, fmt.Sprintf("%s: %s of %d (%s)", n.Key, n.From.Path, n.Waiters, n.Reason))
		}
	}
	return texts
}

func (p party) isTold(want ...string) {
	p.h.t.Helper()
	if got := p.wanted(); !slices.Equal(got, want) {
		p.h.t.Errorf("%s is told %q, want %q", p.Path, got, want)
	}
}

// Whoever holds a lease reads once that somebody waits for it, who first, and why.
func TestAHolderIsToldOnceThatSomebodyWaits(t *testing.T) {
	inHouse(t, registry.Options{}, func(t *testing.T, h *house) {
		a, b, c := h.party("A"), h.party("B"), h.party("C")
		ga := a.acquire(registry.Request{Key: "x"})
		a.isTold()
		_, err := b.try(registry.Request{Key: "x"}) // does not wait
		mustBe[*registry.HeldError](t, err)
		a.isTold()
		next := b.wait(registry.Request{Key: "x", Reason: "fixing the build"})
		last := c.wait(registry.Request{Key: "x", Reason: "later"})
		a.isTold("x: B of 2 (fixing the build)")
		a.isTold()
		if _, err := a.renew(ga, 0); err != nil {
			t.Fatal(err)
		}
		fourth := h.party("D").wait(registry.Request{Key: "x"})
		a.isTold()

		// The next holder is told of those behind it.
		a.release(ga)
		gb := granted(t, next)
		b.isTold("x: C of 2 (later)")
		a.isTold()
		b.release(gb.Grant)
		gc := granted(t, last)
		c.isTold("x: D of 1 ()")
		c.release(gc.Grant)
		granted(t, fourth)
		h.check()
	})
}

// What is not so any more is not told: the lease is given back, or nobody waits.
func TestAHolderIsNotToldOfWhoWaitsNoMore(t *testing.T) {
	inHouse(t, registry.Options{}, func(t *testing.T, h *house) {
		a, b, c := h.party("A"), h.party("B"), h.party("C")
		ga := a.acquire(registry.Request{Key: "x"})
		b.wait(registry.Request{Key: "x"})
		a.release(ga)
		a.isTold()

		a.acquire(registry.Request{Key: "y"})
		ctx, cancel := context.WithCancel(t.Context())
		b.waitCtx(ctx, registry.Request{Key: "y"})
		third := c.wait(registry.Request{Key: "y", Reason: "still here"})
		cancel()
		waits(t, third)
		a.isTold("y: C of 1 (still here)") // B has left, and C is first

		a.acquire(registry.Request{Key: "z"})
		ctx, cancel = context.WithCancel(t.Context())
		gone := b.waitCtx(ctx, registry.Request{Key: "z"})
		cancel()
		if x := <-gone; x.err == nil {
			t.Error("granted")
		}
		h.check()
		a.isTold()
		c.wait(registry.Request{Key: "z", Reason: "now"}) // who comes after that is told of
		a.isTold("z: C of 1 (now)")
	})
}

// A holder that was silent for hours is told who waits now, also if others waited before and
// have left.
func TestASilentHolderIsToldWhoWaitsNow(t *testing.T) {
	inHouse(t, registry.Options{}, func(t *testing.T, h *house) {
		a, b, c := h.party("A"), h.party("B"), h.party("C")
		a.acquire(registry.Request{Key: "x", TTL: 4 * time.Hour})
		ctx, leave := context.WithCancel(t.Context())
		gone := b.waitCtx(ctx, registry.Request{Key: "x"})
		synctest.Wait()
		leave()
		<-gone
		time.Sleep(3 * time.Hour)
		c.wait(registry.Request{Key: "x", Reason: "now"})
		a.isTold("x: C of 1 (now)")
		h.endSession(a)
	})
}

// All who share a key are told that somebody wants it alone, and nobody of those who
// would share it. A session that adopts a lease is told anew, and so is everybody
// after a restart, once.
func TestEachHolderInTheWayIsTold(t *testing.T) {
	inHouse(t, registry.Options{}, func(t *testing.T, h *house) {
		a, b, w, r := h.party("A"), h.party("B"), h.party("W"), h.party("R")
		ga := a.acquire(registry.Request{Key: "x", Shared: true, TTL: time.Hour})
		b.acquire(registry.Request{Key: "x", Shared: true, TTL: time.Hour})
		w.wait(registry.Request{Key: "x", Reason: "writing"})
		r.wait(registry.Request{Key: "x", Shared: true})
		b.isTold("x: W of 2 (writing)")
		now := a.again()
		if _, err := now.renew(ga, 0); err != nil {
			t.Fatal(err)
		}
		h.check()
		now.isTold("x: W of 2 (writing)")
		a.isTold()

		h.crash()
		b.isTold("x: W of 2 (writing)")
		w.wait(registry.Request{Key: "x", Reason: "writing"})
		b.isTold()
		h.endSession(now)
		h.endSession(b)
		h.check()
	})
}

// A session that shares one key many times over ends, and is told of nothing.
func TestAManyfoldHolderInTheWayEnds(t *testing.T) {
	inHouse(t, registry.Options{}, func(t *testing.T, h *house) {
		a, w, r := h.party("A"), h.party("W"), h.party("R")
		for i := range 300 {
			a.as(fmt.Sprint("part", i)).acquire(registry.Request{Key: "x", Shared: true, TTL: time.Hour})
		}
		writer := w.wait(registry.Request{Key: "x"})
		reader := r.wait(registry.Request{Key: "x", Shared: true})
		h.check()
		if told := a.wanted(); len(told) != 100 {
			t.Errorf("told of %d leases", len(told))
		}
		h.endSession(a)
		h.check()
		granted(t, writer)
		waits(t, reader)
		w.isTold("x: R of 1 ()")
	})
}

// An answer that was not read has told nothing.
func TestThatSomebodyWaitsIsToldAgainIfTheAnswerIsNotRead(t *testing.T) {
	inHouse(t, registry.Options{}, func(t *testing.T, h *house) {
		a, b := h.party("A"), h.party("B")
		a.acquire(registry.Request{Key: "x", TTL: time.Hour})
		b.wait(registry.Request{Key: "x"})
		told := a.notices()
		err := h.eng.Update(t.Context(), func(tx registry.Tx) error { h.Retell(tx, a.Holder, told); return nil })
		if err != nil {
			t.Fatal(err)
		}
		a.isTold("x: B of 1 ()")
		time.Sleep(2 * time.Minute)
		h.check()
		a.isTold()
	})
}

// TestNoticesThatAnAnswerHasNoRoomForAreCounted, and come with the next one.
func TestNoticesThatAnAnswerHasNoRoomForAreCounted(t *testing.T) {
	inHouse(t, registry.Options{}, func(t *testing.T, h *house) {
		a := h.party("A")
		for _, key := range []string{"x", "y", "z"} {
			a.acquire(registry.Request{Key: key})
			h.party("waits for " + key).wait(registry.Request{Key: key})
		}
		for _, want := range [][2]int{{2, 1}, {1, 0}, {0, 0}} {
			err := h.eng.Update(t.Context(), func(tx registry.Tx) error {
				if list, more := h.TakeUntold(tx, a.Holder, 2, anyParty); len(list) != want[0] || more != want[1] {
					t.Errorf("told of %d and that there are %d more, want %v", len(list), more, want)
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		h.endSession(a)
	})
}

package registry_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold/registry"
)

func TestHandOverIsFirstInFirstOut(t *testing.T) {
	inHouse(t, registry.Options{}, func(t *testing.T, h *house) {
		held := h.party("holder").acquire(registry.Request{Key: "x"})
		holder := party{held.Holder, h}
		var line []<-chan answer
		var parties []party
		for range 20 {
			p := h.party("W")
			parties = append(parties, p)
			line = append(line, p.wait(registry.Request{Key: "x"}))
			time.Sleep(time.Millisecond)
		}
		for i, c := range line {
			h.check()
			holder.release(held)
			held = granted(t, c).Grant
			holder = parties[i]
			for _, later := range line[i+1:] {
				waits(t, later)
			}
		}
	})
}

func TestNobodyOvertakesTheLine(t *testing.T) {
	inHouse(t, registry.Options{}, func(t *testing.T, h *house) {
		a, b, c := h.party("A"), h.party("B"), h.party("C")
		g := a.acquire(registry.Request{Key: "x"})
		got := b.wait(registry.Request{Key: "x"})
		a.release(g)
		_, err := c.try(registry.Request{Key: "x"}) // right behind the release
		if held := mustBe[*registry.HeldError](t, err); held.Holder.Path != "B" {
			t.Errorf("held by %s, want B", held.Holder.Path)
		}
		granted(t, got)
	})
}

func TestTheEndOfASessionHandsOverAllItHeldAndNeverGrantsToIt(t *testing.T) {
	inHouse(t, registry.Options{}, func(t *testing.T, h *house) {
		a, b, dead := h.party("A"), h.party("B"), h.party("dead")
		x := a.acquire(registry.Request{Key: "x"})
		dead.acquire(registry.Request{Key: "y"})
		dead.acquire(registry.Request{Key: "z"})
		ghost := dead.wait(registry.Request{Key: "x"})
		y := b.wait(registry.Request{Key: "y"})
		z := h.party("C").wait(registry.Request{Key: "z"})
		behind := b.wait(registry.Request{Key: "x"})

		h.endSession(dead)
		granted(t, y)
		granted(t, z)
		a.release(x)
		granted(t, behind)
		if ans := <-ghost; !errors.Is(ans.err, registry.ErrSessionEnded) {
			t.Errorf("the ended session's wait says %v", ans.err)
		}
		if _, err := dead.try(registry.Request{Key: "new"}); !errors.Is(err, registry.ErrSessionEnded) {
			t.Errorf("an ended session acquires: %v", err)
		}
		_, err := dead.again().renew(registry.Grant{Lease: registry.Lease{ID: x.ID}}, 0)
		if !errors.Is(err, registry.ErrNotHolder) {
			t.Errorf("renewal of another's: %v", err)
		}
	})
}

func TestACancelledCallIsNeverGrantedAndLeavesNoPlace(t *testing.T) {
	inHouse(t, registry.Options{}, func(t *testing.T, h *house) {
		a, b, c := h.party("A"), h.party("B"), h.party("C")
		g := a.acquire(registry.Request{Key: "x"})
		ctx, cancel := context.WithCancel(t.Context())
		gone := b.waitCtx(ctx, registry.Request{Key: "x"})
		next := c.wait(registry.Request{Key: "x"})
		cancel()
		a.release(g) // races with the withdrawal: either way the call is gone
		granted(t, next)
		if ans := <-gone; !errors.Is(ans.err, context.Canceled) {
			t.Errorf("cancelled call says %v", ans.err)
		}
		h.view(func(tx registry.Tx) {
			if l, _ := h.Registry("run:1").Get(tx, "x"); l.Holder.Session != c.Session {
				t.Errorf("held by %s", l.Holder.Path)
			}
		})
	})
}

func TestACallCancelledInTheInstantOfItsGrantGivesItBack(t *testing.T) {
	inHouse(t, registry.Options{}, func(t *testing.T, h *house) {
		for range 200 {
			a, b := h.party("A"), h.party("B")
			g := a.acquire(registry.Request{Key: "x"})
			ctx, cancel := context.WithCancel(t.Context())
			got := b.waitCtx(ctx, registry.Request{Key: "x"})
			go cancel()
			a.release(g)
			ans := <-got
			if ans.err == nil {
				b.release(ans.Grant)
			}
			synctest.Wait()
			h.view(func(tx registry.Tx) {
				if l, ok := h.Registry("run:1").Get(tx, "x"); ok {
					t.Fatalf("a ghost of %s holds it", l.Holder.Path)
				}
			})
		}
	})
}

func TestAKeyIsReservedOnceForTheFirstWhoIsBetweenTwoCalls(t *testing.T) {
	inHouse(t, registry.Options{}, func(t *testing.T, h *house) {
		a, b, c, d := h.party("A"), h.party("B"), h.party("C"), h.party("D")
		g := a.acquire(registry.Request{Key: "x", TTL: time.Hour})
		_, err := b.try(registry.Request{Key: "x", Wait: time.Second})
		timeout := mustBe[*registry.WaitError](t, err)
		if timeout.Position != 1 || timeout.Holder.Path != "A" {
			t.Errorf("time-out says %+v", timeout)
		}
		first := c.wait(registry.Request{Key: "x"})
		second := d.wait(registry.Request{Key: "x"})

		// B is parked at the front: the key is kept for it, and C, who asks, is
		// served when it does not come.
		a.release(g)
		waits(t, first)
		_, err = h.party("E").try(registry.Request{Key: "x"})
		if held := mustBe[*registry.HeldError](t, err); !held.Reserved || held.Holder.Path != "B" || held.Waiters != 3 {
			t.Errorf("a newcomer is told %+v", held)
		}
		time.Sleep(registry.ReserveTime)
		waits(t, first)
		time.Sleep(time.Nanosecond)
		g = granted(t, first).Grant
		// B goes away again: nothing is reserved for it twice.
		_, err = b.try(registry.Request{Key: "x", Wait: time.Second})
		if again := mustBe[*registry.WaitError](t, err); again.Position != 1 || again.Ticket != timeout.Ticket {
			t.Errorf("the second time-out says %+v", again)
		}
		c.release(g)
		g = granted(t, second).Grant
		second = d.wait(registry.Request{Key: "x"}) // re-entry
		granted(t, second)
		second = c.wait(registry.Request{Key: "x"})
		// B comes back and is before C.
		back := b.wait(registry.Request{Key: "x"})
		c = d
		c.release(g)
		granted(t, back)
		waits(t, second)
	})
}

// A key is reserved against those behind. A party before, whose turn was spent while it
// was away, does not wait for the end of another's reservation.
func TestAReservationKeepsNobodyOutWhoIsBeforeIt(t *testing.T) {
	inHouse(t, registry.Options{}, func(t *testing.T, h *house) {
		a, b, c := h.party("A"), h.party("B"), h.party("C")
		g := a.acquire(registry.Request{Key: "x", TTL: time.Hour})
		for _, p := range []party{b, c} {
			_, err := p.try(registry.Request{Key: "x", Wait: time.Second})
			mustBe[*registry.WaitError](t, err)
		}
		a.release(g)
		time.Sleep(registry.ReserveTime + 1)
		_, err := a.try(registry.Request{Key: "x"})
		if held := mustBe[*registry.HeldError](t, err); !held.Reserved || held.Holder.Path != "C" {
			t.Errorf("A is told %+v", held)
		}
		g = b.acquire(registry.Request{Key: "x"})
		h.check()
		waiting := c.wait(registry.Request{Key: "x"})
		b.release(g)
		granted(t, waiting)
	})
}

func TestAPlaceIsKeptForItsPartyWithoutATicket(t *testing.T) {
	inHouse(t, registry.Options{}, func(t *testing.T, h *house) {
		a, b, c := h.party("A"), h.party("B"), h.party("C")
		g := a.acquire(registry.Request{Key: "x", TTL: time.Hour})
		for range 4 { // as a model does that asks again and again
			_, err := b.try(registry.Request{Key: "x", Wait: time.Second})
			if timeout := mustBe[*registry.WaitError](t, err); timeout.Position != 1 || timeout.Waiters != 1 {
				t.Errorf("time-out says %+v", timeout)
			}
		}
		other := c.wait(registry.Request{Key: "x"})
		a.release(g)
		waits(t, other)
		granted(t, b.wait(registry.Request{Key: "x"})) // it was reserved
		waits(t, other)
	})
}

func TestAParkedPlaceIsGivenUpInTheEnd(t *testing.T) {
	inHouse(t, registry.Options{}, func(t *testing.T, h *house) {
		a, b, c := h.party("A"), h.party("B"), h.party("C")
		a.acquire(registry.Request{Key: "x", TTL: time.Hour})
		_, err := b.try(registry.Request{Key: "x", Wait: time.Second})
		ticket := mustBe[*registry.WaitError](t, err).Ticket
		c.wait(registry.Request{Key: "x"})
		time.Sleep(registry.ParkTime + time.Second)
		_, err = b.try(registry.Request{Key: "x", Wait: time.Second, Ticket: ticket})
		if again := mustBe[*registry.WaitError](t, err); again.Position != 2 {
			t.Errorf("position %d after the place was given up, want 2", again.Position)
		}
		h.endSession(c)
	})
}

// The ticket alone keeps a place, as the answer that it came with says: a call with it need
// not wait.
func TestATicketKeepsThePlaceOfACallThatDoesNotWait(t *testing.T) {
	inHouse(t, registry.Options{}, func(t *testing.T, h *house) {
		a, b, c := h.party("A"), h.party("B"), h.party("C")
		g := a.acquire(registry.Request{Key: "x", TTL: time.Hour})
		_, err := b.try(registry.Request{Key: "x", Wait: time.Second})
		ticket := mustBe[*registry.WaitError](t, err).Ticket
		other := c.wait(registry.Request{Key: "x"})
		for range 2 {
			time.Sleep(registry.ParkTime - time.Second)
			_, err = b.try(registry.Request{Key: "x", Ticket: ticket})
			if again := mustBe[*registry.WaitError](t, err); again.Position != 1 || again.Ticket != ticket {
				t.Errorf("with the ticket it has position %d and ticket %s", again.Position, again.Ticket)
			}
		}
		if _, err = b.try(registry.Request{Key: "x"}); mustBe[*registry.HeldError](t, err).Waiters != 2 {
			t.Errorf("without the ticket: %v", err)
		}
		if got := <-other; got.err == nil {
			t.Error("the next in line was granted the lease")
		}
		a.release(g)
		b.acquire(registry.Request{Key: "x", Ticket: ticket})
	})
}

func TestATicketOfAnotherLeaseIsRefused(t *testing.T) {
	inHouse(t, registry.Options{}, func(t *testing.T, h *house) {
		a, b := h.party("A"), h.party("B")
		a.acquire(registry.Request{Key: "x"})
		a.acquire(registry.Request{Key: "y"})
		_, err := b.try(registry.Request{Key: "x", Wait: time.Second})
		ticket := mustBe[*registry.WaitError](t, err).Ticket
		_, err = b.try(registry.Request{Key: "y", Wait: time.Second, Ticket: ticket})
		if bad := mustBe[*registry.ArgumentError](t, err); bad.Argument != "ticket" {
			t.Errorf("names %q", bad.Argument)
		}
	})
}

func TestTwoCallsOfOneSessionGetTheOneLease(t *testing.T) {
	inHouse(t, registry.Options{}, func(t *testing.T, h *house) {
		a, b, c := h.party("A"), h.party("B"), h.party("C")
		g := a.acquire(registry.Request{Key: "x"})
		ctx, cancel := context.WithCancel(t.Context())
		one := b.waitCtx(ctx, registry.Request{Key: "x"})
		other := c.wait(registry.Request{Key: "x"})
		two := b.wait(registry.Request{Key: "x"})
		a.release(g)
		l1, l2 := granted(t, one), granted(t, two)
		if l1.ID != l2.ID || l1.Reentrant == l2.Reentrant {
			t.Errorf("got %+v and %+v", l1.Grant, l2.Grant)
		}
		cancel() // after the answer: takes nothing back
		waits(t, other)
		b.release(l1.Grant)
		granted(t, other)
	})
}

func TestLinesAreBoundedPerKeyAndPerActor(t *testing.T) {
	inHouse(t, registry.Options{MaxWaitersPerKey: 2, MaxWaitersPerActor: 1}, func(t *testing.T, h *house) {
		a, b, c, d := h.party("A"), h.party("B"), h.party("C"), h.party("D")
		a.acquire(registry.Request{Key: "x"})
		a.acquire(registry.Request{Key: "y"})
		b.wait(registry.Request{Key: "x"})
		_, err := b.again().try(registry.Request{Key: "y", Wait: time.Second})
		if limit := mustBe[*registry.LimitError](t, err); limit.Max != 1 {
			t.Errorf("limit %+v", limit)
		}
		c.wait(registry.Request{Key: "x"})
		_, err = d.try(registry.Request{Key: "x", Wait: time.Second})
		if limit := mustBe[*registry.LimitError](t, err); limit.Max != 2 {
			t.Errorf("limit %+v", limit)
		}
		h.endSession(b)
		d.wait(registry.Request{Key: "x"})
	})
}

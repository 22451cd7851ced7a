package registry_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/leasehold/leasehold/registry"
)

// counted is how many notices a party is told next, and how many others its session has.
func (p party) counted(tells func(registry.Notice) bool) (mine, others int) {
	p.h.view(func(tx registry.Tx) { mine, others = p.h.CountUntold(tx, p.Holder, tells) })
	return mine, others
}

// take is what a party is told in an answer with room for limit notices, and how many more
// there are.
func (p party) take(limit int, tells func(registry.Notice) bool) (list []registry.Notice, more int) {
	p.h.t.Helper()
	err := p.h.eng.Update(p.h.t.Context(), func(tx registry.Tx) error {
		list, more = p.h.TakeUntold(tx, p.Holder, limit, tells)
		return nil
	})
	if err != nil {
		p.h.t.Fatal(err)
	}
	return list, more
}

// noticeRows counts the rows of notices, and those that say what was not told.
func (h *house) noticeRows() (n int) {
	h.view(func(tx registry.Tx) {
		for _, prefix := range []string{"lost/", "count/untold/", "count/lost/"} {
			for range tx.Scan(prefix) {
				n++
			}
		}
	})
	return n
}

// A loss names who has the lease now. If that is the loser itself, it is told its new token
// instead: the party that lost the lease or, if its session has ended, a party of the same
// name in any session of its actor.
func TestALossNamesWhoHasTheLeaseNow(t *testing.T) {
	loser := func(_ *house, p party) party { return p }
	neighbour := func(_ *house, p party) party { return p.as("b") }
	sibling := func(_ *house, p party) party { return p.again() }
	stranger := func(h *house, _ party) party { return h.party("W2").as("a") }
	for name, c := range map[string]struct {
		ended bool
		taker func(*house, party) party
		want  string // "" for the loser itself
	}{
		"the loser":                         {false, loser, ""},
		"another party of the session":      {false, neighbour, "W1"},
		"another session":                   {false, sibling, "W1"},
		"another actor":                     {false, stranger, "W2"},
		"the next session":                  {true, loser, ""},
		"another party of the next session": {true, neighbour, "W1"},
		"another actor after the session":   {true, stranger, "W2"},
	} {
		t.Run(name, func(t *testing.T) {
			inHouse(t, registry.Options{}, func(t *testing.T, h *house) {
				p := h.party("W1").as("a")
				p.acquire(registry.Request{Key: "x", TTL: time.Minute})
				if c.ended {
					h.endSession(p)
					p = p.again()
				} else {
					time.Sleep(2 * time.Minute)
					other := h.party("W3")
					other.release(other.acquire(registry.Request{Key: "x"}))
				}
				g := c.taker(h, p).acquire(registry.Request{Key: "x", TTL: time.Hour})
				list := p.notices()
				if len(list) != 1 || list[0].SupersededBy != c.want || (list[0].Regained == g.Token) != (c.want == "") {
					t.Errorf("told %+v", list)
				}
			})
		})
	}
}

// A lease that is shared with the loser again is not one that another has now.
func TestALossThatIsSharedAgainNamesNobodyElse(t *testing.T) {
	inHouse(t, registry.Options{}, func(t *testing.T, h *house) {
		p, other := h.party("W1"), h.party("W2")
		shared := registry.Request{Key: "x", Shared: true}
		p.acquire(shared)
		h.endSession(p)
		p = p.again()
		other.acquire(shared)
		g := p.acquire(shared)
		if list := p.notices(); len(list) != 1 || list[0].SupersededBy != "" || list[0].Regained != g.Token {
			t.Errorf("it has token %d again, and is told %+v", g.Token, list)
		}
	})
}

// A loss is told to the session and the party that had the lease. Others of the actor may make
// the lease their own meanwhile.
func TestALossIsForItsSessionAndParty(t *testing.T) {
	inHouse(t, registry.Options{}, func(t *testing.T, h *house) {
		one := h.party("W1").as("a")
		two, three := one.again(), one.again()
		one.acquire(registry.Request{Key: "expires", TTL: time.Second})
		time.Sleep(time.Minute)
		if mine, others := two.counted(anyParty); mine+others > 0 {
			t.Errorf("another session counts %d and %d", mine, others)
		}
		if list, more := two.take(10, anyParty); len(list)+more > 0 {
			t.Errorf("another session is told %+v and that there are %d more", list, more)
		}

		for key, next := range map[string]party{"x": three, "y": one.as("b"), "z": one} {
			g := one.acquire(registry.Request{Key: key, TTL: time.Hour})
			if _, err := two.renew(g, 0); err != nil {
				t.Fatal(err)
			}
			_, err := next.renew(g, 0)
			if next == one { // it learns of its loss first
				mustBe[*registry.LostError](t, err)
			} else if err != nil {
				t.Errorf("a party that has not lost %s adopts it: %v", key, err)
			}
		}
	})
}

// An answer that is not read is told again to its own session, as long as nothing has
// changed, and then as long as any other notice.
func TestAnAnswerThatIsNotReadIsToldAgain(t *testing.T) {
	inHouse(t, registry.Options{}, func(t *testing.T, h *house) {
		one := h.party("W1")
		two, three := one.again(), one.again()
		g := one.acquire(registry.Request{Key: "x", TTL: 3 * time.Hour})
		adopt := func(p party) {
			if _, err := p.renew(g, 0); err != nil {
				t.Fatal(err)
			}
		}
		retell := func(p party, told []registry.Notice) {
			if err := h.eng.Update(t.Context(), func(tx registry.Tx) error { h.Retell(tx, p.Holder, told); return nil }); err != nil {
				t.Fatal(err)
			}
			h.check()
		}
		adopt(two)
		told := one.notices()
		adopt(three)
		if list := two.notices(); len(list) != 1 {
			t.Fatalf("two is told %+v", list)
		}
		retell(one, told) // by now two was told of its own loss of this lease
		if list := two.notices(); len(list) != 0 {
			t.Errorf("two is told again %+v", list)
		}

		h.party("B").wait(registry.Request{Key: "x"})
		retell(three, three.notices())
		time.Sleep(10 * time.Second) // the call waits for less than a minute
		three.isTold("x: B of 1 ()")
		c := h.party("C")
		offered := three.acquire(registry.Request{Key: "y", TTL: time.Hour})
		three.mustOffer(offered, &c, false)
		retell(c, c.notices())
		time.Sleep(30 * time.Minute)
		if list := c.notices(); len(list) != 1 {
			t.Errorf("half an hour later C is told %+v", list)
		}
	})
}

// A notice counts until it is told, or is void.
func TestANoticeCountsUntilItIsTold(t *testing.T) {
	inHouse(t, registry.Options{}, func(t *testing.T, h *house) {
		a, b := h.party("A"), h.party("B")
		for i, name := range []string{"a", "b", "a", "b", "b"} {
			a.as(name).acquire(registry.Request{Key: fmt.Sprint(i), TTL: time.Second})
		}
		time.Sleep(time.Minute)
		ofA := func(n registry.Notice) bool { return n.Party == "a" }
		if mine, others := a.counted(ofA); mine != 2 || others != 3 {
			t.Errorf("a counts %d and %d, want 2 and 3", mine, others)
		}
		if list, more := a.take(1, ofA); len(list) != 1 || more != 1 {
			t.Errorf("a is told %+v and that there are %d more, want 1", list, more)
		}
		if list := a.notices(); len(list) != 4 {
			t.Errorf("then %+v", list)
		}

		a.acquire(registry.Request{Key: "x"})
		ctx, leave := context.WithCancel(t.Context())
		gone := b.waitCtx(ctx, registry.Request{Key: "x"})
		if mine, _ := a.counted(anyParty); mine != 1 {
			t.Errorf("somebody waits, and %d notices count", mine)
		}
		leave()
		<-gone
		if mine, others := a.counted(anyParty); mine+others != 0 {
			t.Errorf("nobody waits, and %d and %d notices count", mine, others)
		}
		h.view(func(tx registry.Tx) {
			list, known := h.NewUntold(tx, a.Holder, nil)
			if len(list) != 0 {
				t.Errorf("nobody waits, and this is new: %+v", list)
			}
			if list, _ := h.NewUntold(tx, a.Holder, known); len(list) != 0 {
				t.Errorf("and then %+v", list)
			}
		})
	})
}

// TestLossesThatAreNotKeptAreCounted, and told once. Other notices are then left out.
func TestLossesThatAreNotKeptAreCounted(t *testing.T) {
	inHouse(t, registry.Options{}, func(t *testing.T, h *house) {
		a := h.party("A")
		const n = registry.MaxUntold + 50
		for i := range n {
			a.acquire(registry.Request{Key: fmt.Sprint(i), TTL: time.Second})
		}
		time.Sleep(time.Minute)
		a.acquire(registry.Request{Key: "x"})
		h.party("B").wait(registry.Request{Key: "x"})
		if mine, others := a.counted(anyParty); mine != n || others != 0 {
			t.Errorf("%d losses count as %d and %d", n, mine, others)
		}
		if list, more := a.take(20, anyParty); len(list) != 20 || more != n-20 {
			t.Errorf("told of %d and that there are %d more", len(list), more)
		}
		if mine, _ := a.counted(anyParty); mine != registry.MaxUntold-20 {
			t.Errorf("%d are left", mine)
		}
		h.check()
	})
}

// TestNoticesAreForgotten: a loss that nobody comes to hear when the session has ended for
// an hour; when they were told, those of which no call can ask by the id of a lease.
func TestNoticesAreForgotten(t *testing.T) {
	inHouse(t, registry.Options{}, func(t *testing.T, h *house) {
		a, b := h.party("A"), h.party("B")
		if err := h.eng.Update(t.Context(), func(tx registry.Tx) error { h.Forgot(tx, b.Actor, "restored"); return nil }); err != nil {
			t.Fatal(err)
		}
		g := a.acquire(registry.Request{Key: "x", TTL: 3 * time.Hour})
		a.mustOffer(g, &b, false)
		if list := b.notices(); len(list) != 2 {
			t.Errorf("told %+v", list)
		}
		time.Sleep(2 * time.Minute)
		if n := h.noticeRows(); n != 0 {
			t.Errorf("%d rows are kept of what was told", n)
		}
		a.mustOffer(g, nil, false)
		a.mustOffer(g, &b, false) // and B is silent
		time.Sleep(2 * time.Hour)
		if n := h.noticeRows(); n != 0 {
			t.Errorf("%d rows are kept of an offer that nobody heard", n)
		}
		a.release(g)

		c := h.party("C")
		c.acquire(registry.Request{Key: "y", TTL: time.Second})
		time.Sleep(59*time.Minute + 30*time.Second)
		h.endSession(c)
		time.Sleep(59 * time.Minute)
		if mine, _ := c.again().counted(anyParty); mine != 1 {
			t.Errorf("an hour after the session %d losses count", mine)
		}
		time.Sleep(2 * time.Minute)
		if n := h.noticeRows(); n != 0 {
			t.Errorf("%d rows are kept of a loss that nobody heard", n)
		}
	})
}

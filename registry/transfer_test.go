package registry_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine/call"
	"github.com/leasehold/leasehold/registry"
)

// offer offers a grant to another actor, nil: to nobody.
func (p party) offer(g registry.Grant, to *party) (accepted bool, err error) {
	p.h.t.Helper()
	var find func(registry.Tx, registry.Lease) (registry.Holder, error)
	if to != nil {
		find = func(registry.Tx, registry.Lease) (registry.Holder, error) { return to.Holder, nil }
	}
	accepted, err = p.h.Transfer(p.h.t.Context(), p.Holder, g.ID, find)
	p.h.check()
	return accepted, err
}

func (p party) mustOffer(g registry.Grant, to *party, accepted bool) {
	p.h.t.Helper()
	if got, err := p.offer(g, to); got != accepted || err != nil {
		p.h.t.Fatalf("offer: accepted %v %v, want %v", got, err, accepted)
	}
}

// notices are what a party is told now.
func (p party) notices() (list []registry.Notice) {
	p.h.t.Helper()
	err := p.h.eng.Update(p.h.t.Context(), func(tx registry.Tx) error {
		list, _ = p.h.TakeUntold(tx, p.Holder, 100, anyParty)
		return nil
	})
	if err != nil {
		p.h.t.Fatal(err)
	}
	p.h.check()
	return list
}

func (h *house) standing(key string) (s registry.Standing, ok bool) {
	h.view(func(tx registry.Tx) { s, ok = h.Registry("run:1").Standing(tx, key) })
	return s, ok
}

// Whoever a lease is offered to takes it before all who wait; they keep their places.
func TestAnOfferIsAcceptedByAcquiring(t *testing.T) {
	inHouse(t, registry.Options{}, func(t *testing.T, h *house) {
		a, b, c, d := h.party("A"), h.party("B"), h.party("C"), h.party("D")
		ga := a.acquire(registry.Request{Key: "x", Reason: "migrating"})
		c.wait(registry.Request{Key: "x"})
		d.wait(registry.Request{Key: "x"})
		a.mustOffer(ga, &b, false)
		a.mustOffer(ga, &b, false) // again changes nothing
		h.crash()
		first, second := c.wait(registry.Request{Key: "x"}), d.wait(registry.Request{Key: "x"})

		// It is A's until then.
		if err := h.fenced(ga, true); err != nil {
			t.Error(err)
		}
		if l, err := a.renew(ga, 0); err != nil || l.Token != ga.Token || l.Offer.Path != "B" {
			t.Errorf("renewed %+v %v", l, err)
		}
		if s, _ := h.standing("x"); s.Offer.Path != "B" || s.Holder.Path != "A" {
			t.Errorf("listed %+v", s)
		}
		told := b.notices()
		if len(told) != 1 || told[0].Kind != registry.Offered || told[0].From.Path != "A" || told[0].Key != "x" || told[0].Reason != "migrating" {
			t.Errorf("B is told %+v", told)
		}
		if again := b.notices(); len(again) != 0 {
			t.Errorf("B is told again: %+v", again)
		}
		_, err := h.party("E").try(registry.Request{Key: "x"})
		mustBe[*registry.HeldError](t, err)

		gb := b.again().acquire(registry.Request{Key: "x"}) // any session of the actor
		if gb.Reentrant || gb.Token <= ga.Token || gb.ID == ga.ID || gb.Offer != (registry.Holder{}) {
			t.Errorf("accepted: %+v", gb)
		}
		h.check()
		mustBe[*registry.StaleError](t, h.fenced(ga, false))
		_, err = a.renew(ga, 0)
		if lost := mustBe[*registry.LostError](t, err); lost.Reason != string(registry.Transferred) || lost.SupersededBy != "B" {
			t.Errorf("A's is gone: %+v", lost)
		}
		waits(t, first)
		waits(t, second)
		b.release(gb)
		gc := granted(t, first)
		waits(t, second)
		c.release(gc.Grant)
		granted(t, second)
		h.check()
	})
}

// A call that waits in line has asked already, wherever its place is.
func TestAnOfferToOneWhoWaitsIsAcceptedAtOnce(t *testing.T) {
	inHouse(t, registry.Options{}, func(t *testing.T, h *house) {
		a, b, c := h.party("A"), h.party("B"), h.party("C")
		ga := a.acquire(registry.Request{Key: "x"})
		first, second := c.wait(registry.Request{Key: "x"}), b.wait(registry.Request{Key: "x"})
		named := call.With(t.Context(), call.Call{Session: a.Session, Name: uuid.NewString()})
		to := func(registry.Tx, registry.Lease) (registry.Holder, error) { return b.Holder, nil }
		for range 2 { // the second is sent again
			if accepted, err := h.Transfer(named, a.Holder, ga.ID, to); !accepted || err != nil {
				t.Errorf("accepted %v %v", accepted, err)
			}
		}
		gb := granted(t, second)
		waits(t, first)
		h.check()
		if list := a.notices(); len(list) != 2 || list[0].Kind != registry.Loss || list[0].SupersededBy != "B" {
			// the first tells that C waits, while A held it
			if len(list) != 1 || list[0].Kind != registry.Loss {
				t.Errorf("A is told %+v", list)
			}
		}
		b.release(gb.Grant)
		granted(t, first)
	})
}

// An offer ends with the lease, at its deadline, and when it is taken back.
func TestAnOfferIsVoid(t *testing.T) {
	for name, end := range map[string]func(h *house, a party, g registry.Grant){
		"taken back":    func(_ *house, a party, g registry.Grant) { a.mustOffer(g, nil, false) },
		"to another":    func(h *house, a party, g registry.Grant) { c := h.party("C"); a.mustOffer(g, &c, false) },
		"released":      func(_ *house, a party, g registry.Grant) { a.release(g) },
		"expired":       func(*house, party, registry.Grant) { time.Sleep(2 * time.Minute) },
		"session ended": func(h *house, a party, _ registry.Grant) { h.endSession(a) },
		"revoked":       func(h *house, _ party, _ registry.Grant) { h.revoke(nil) },
		"adopted":       func(_ *house, a party, g registry.Grant) { _, _ = a.again().renew(g, 0) },
		"its actor ended": func(h *house, _ party, _ registry.Grant) {
			h.crash()
			offered, _ := h.standing("x")
			err := h.eng.Update(h.t.Context(), func(tx registry.Tx) error {
				h.WithdrawOffers(tx, offered.Offer.Actor, 1)
				return nil
			})
			if now, _ := h.standing("x"); err != nil || now.Offer.Path != "" {
				h.t.Errorf("it is offered to %q; %v", now.Offer.Path, err)
			}
		},
		"of a lost call": func(h *house, a party, g registry.Grant) { h.endSession(a); h.crash() },
	} {
		t.Run(name, func(t *testing.T) {
			inHouse(t, registry.Options{}, func(t *testing.T, h *house) {
				a, b := h.party("A"), h.party("B")
				g := a.acquire(registry.Request{Key: "x"})
				a.mustOffer(g, &b, false)
				end(h, a, g)
				h.check()
				if told := b.notices(); len(told) != 0 {
					t.Errorf("B is told %+v", told)
				}
				before, held := h.standing("x")
				_, err := b.try(registry.Request{Key: "x"})
				if held != (err != nil) {
					t.Errorf("held %v, and B gets %v", held, err)
				}
				if held {
					if now, _ := h.standing("x"); now.Token != before.Token || now.Holder.Path != "A" {
						t.Errorf("it was %+v and is %+v", before.Lease, now.Lease)
					}
				}
			})
		})
	}
	// Past its deadline the holder may renew it, and nobody else is offered it.
	inHouse(t, registry.Options{}, func(t *testing.T, h *house) {
		a, b := h.party("A"), h.party("B")
		g := a.acquire(registry.Request{Key: "x"})
		a.mustOffer(g, &b, false)
		h.untended(func() {
			time.Sleep(2 * time.Minute)
			if told := b.notices(); len(told) != 0 {
				t.Errorf("past the deadline B is told %+v", told)
			}
		})
		synctest.Wait()
		if l, err := a.renew(g, 0); err != nil || l.Offer != (registry.Holder{}) {
			t.Errorf("renewed %+v %v", l, err)
		}
		h.check()
		_, err := b.try(registry.Request{Key: "x"})
		mustBe[*registry.HeldError](t, err)
	})
}

func TestOffersOfWhatIsShared(t *testing.T) {
	inHouse(t, registry.Options{}, func(t *testing.T, h *house) {
		a, b, c, w := h.party("A"), h.party("B"), h.party("C"), h.party("W")
		ga := a.acquire(registry.Request{Key: "x", Shared: true})
		gc := c.acquire(registry.Request{Key: "x", Shared: true})
		a.mustOffer(ga, &b, false)
		writer := w.wait(registry.Request{Key: "x"})
		_, err := b.try(registry.Request{Key: "x"}) // C is in the way
		mustBe[*registry.HeldError](t, err)
		if gb := b.acquire(registry.Request{Key: "x", Shared: true}); gb.Token <= gc.Token { // ahead of the writer
			t.Errorf("B has %+v", gb)
		}
		mustBe[*registry.StaleError](t, h.fenced(ga, false))
		waits(t, writer)
		h.check()

		// One who takes it shared lets in those who wait to share it.
		alone := h.party("alone")
		g := alone.acquire(registry.Request{Key: "y"})
		d, e := h.party("D"), h.party("E")
		reader := e.wait(registry.Request{Key: "y", Shared: true})
		alone.mustOffer(g, &d, false)
		d.acquire(registry.Request{Key: "y", Shared: true})
		granted(t, reader)
		h.check()
	})
}

func TestWhoMayOfferALease(t *testing.T) {
	inHouse(t, registry.Options{}, func(t *testing.T, h *house) {
		a, b := h.party("A"), h.party("B")
		g := a.acquire(registry.Request{Key: "x"})
		if _, err := b.offer(g, &b); err != registry.ErrNotHolder {
			t.Errorf("of another's: %v", err)
		}
		own := a.again()
		_, err := a.offer(g, &own)
		if bad := mustBe[*registry.ArgumentError](t, err); bad.Argument != "to" {
			t.Errorf("names %q", bad.Argument)
		}
		a.again().mustOffer(g, &b, false) // any session of the actor
		a.release(g)
		if _, err := a.offer(g, &b); err != registry.ErrNotHolder {
			t.Errorf("of what was released: %v", err)
		}
		h.endSession(a)
		if _, err := a.offer(g, &b); err != registry.ErrSessionEnded {
			t.Errorf("by a session that has ended: %v", err)
		}
	})
}

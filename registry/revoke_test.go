package registry_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine/call"
	"github.com/leasehold/leasehold/registry"
)

// revoke takes "x" away in the operator's name.
func (h *house) revoke(more func(*registry.Revocation)) registry.Revoked {
	h.t.Helper()
	v := registry.Revocation{Key: "x", By: "operator", Reason: "it hangs"}
	if more != nil {
		more(&v)
	}
	done, err := h.Registry("run:1").Revoke(h.t.Context(), v)
	if err != nil {
		h.t.Fatalf("revoke: %v", err)
	}
	h.check()
	return done
}

// told are the reasons of the losses that a party is told of now.
func (p party) told() (reasons []string) {
	p.h.view(func(tx registry.Tx) {
		list, _ := p.h.NewUntold(tx, p.Holder, nil)
		for _, l := range list {
			if l.Kind != registry.Loss {
				continue
			}
			reasons = append(reasons, fmt.Sprintf("%s: %s", l.Key, l.Reason))
		}
	})
	return reasons
}

func TestARevokedLeaseGoesToTheNextInLineAtOnce(t *testing.T) {
	inHouse(t, registry.Options{}, func(t *testing.T, h *house) {
		a, b, c := h.party("A"), h.party("B"), h.party("C")
		ga := a.acquire(registry.Request{Key: "x", KeepAlive: true, RequestID: "once"})
		next, last := b.wait(registry.Request{Key: "x"}), c.wait(registry.Request{Key: "x"})
		done := h.revoke(nil)
		gb := granted(t, next)
		waits(t, last)
		if done.Count != 1 || done.Holders[0].Path != "A" || len(done.Next) != 1 || done.Next[0].Path != "B" {
			t.Errorf("revoked %+v", done)
		}
		if !(ga.Token < done.Token && done.Token < gb.Token) {
			t.Errorf("token %d, then %d of the revocation, then %d", ga.Token, done.Token, gb.Token)
		}
		// What was A's is refused everywhere, and A knows who did it and why, also
		// after a restart.
		mustBe[*registry.StaleError](t, h.fenced(ga, false))
		h.crash()
		if told := a.told(); len(told) != 1 || told[0] != `x: revoked by operator: "it hangs"` {
			t.Errorf("told %q", told)
		}
		_, err := a.renew(ga, 0)
		want := `lease "x" is no longer yours: revoked by operator: "it hangs", now held by B; acquire it again before you touch what it guards`
		if lost := mustBe[*registry.LostError](t, err); lost.Error() != want {
			t.Errorf("reads\n%s\nwant\n%s", lost, want)
		}
		_, err = a.try(registry.Request{Key: "x", KeepAlive: true, RequestID: "once"})
		mustBe[*registry.LostError](t, err)
		if released, why, err := h.Release(t.Context(), a.Holder, ga.ID); released || err != nil || !strings.HasPrefix(why, "revoked by") {
			t.Errorf("release: %v %q %v", released, why, err)
		}
	})
}

func TestARevokeOfWhatIsSharedTakesItFromAllOrFromOne(t *testing.T) {
	inHouse(t, registry.Options{}, func(t *testing.T, h *house) {
		a, b, c, w := h.party("A"), h.party("B"), h.party("C"), h.party("W")
		var grants []registry.Grant
		for _, p := range []party{a, b, c} {
			grants = append(grants, p.acquire(registry.Request{Key: "x", Shared: true}))
		}
		writer := w.wait(registry.Request{Key: "x"})
		done := h.revoke(func(v *registry.Revocation) { v.Holder = "D" })
		if done.Count != 0 || len(done.Next) != 3 {
			t.Errorf("of somebody who does not hold it: %+v", done)
		}
		done = h.revoke(func(v *registry.Revocation) { v.Holder = "B" })
		if done.Count != 1 || done.Holders[0].Path != "B" || len(done.Next) != 2 {
			t.Errorf("of one: %+v", done)
		}
		waits(t, writer)
		mustBe[*registry.StaleError](t, h.fenced(grants[1], false))
		if err := h.fenced(grants[0], true); err != nil {
			t.Error(err)
		}
		// C is somebody's who may not lose it.
		sparing := func(v *registry.Revocation) {
			v.May = func(_ registry.Tx, h registry.Holder) error {
				if h.Path == "C" {
					return errors.New("not yours")
				}
				return nil
			}
		}
		if done = h.revoke(sparing); done.Count != 1 || done.Spared != 1 || done.Next[0].Path != "C" {
			t.Errorf("of all but one: %+v", done)
		}
		waits(t, writer)
		if done = h.revoke(nil); done.Count != 1 || done.Next[0].Path != "W" {
			t.Errorf("of the last: %+v", done)
		}
		granted(t, writer)
	})
}

func TestWhoMayNotLoseALeaseKeepsIt(t *testing.T) {
	inHouse(t, registry.Options{}, func(t *testing.T, h *house) {
		a, b := h.party("A"), h.party("B")
		g := a.acquire(registry.Request{Key: "x"})
		line := b.wait(registry.Request{Key: "x"})
		refusal := errors.New("not yours")
		_, err := h.Registry("run:1").Revoke(t.Context(), registry.Revocation{
			Key: "x", By: "S1", Reason: "mine", May: func(registry.Tx, registry.Holder) error { return refusal },
		})
		if !errors.Is(err, refusal) {
			t.Errorf("error %v", err)
		}
		waits(t, line)
		if err := h.fenced(g, true); err != nil || len(a.told()) != 0 {
			t.Errorf("%v, told %q", err, a.told())
		}
		h.check()
	})
}

func TestALapsedLeaseIsRevokedAndAReservationIsNot(t *testing.T) {
	inHouse(t, registry.Options{}, func(t *testing.T, h *house) {
		a, b := h.party("A"), h.party("B")
		ga := a.acquire(registry.Request{Key: "x", TTL: time.Second})
		time.Sleep(2 * time.Second)
		if done := h.revoke(nil); done.Count != 1 || len(done.Next) != 0 {
			t.Errorf("lapsed: %+v", done)
		}
		if told := a.told(); len(told) != 1 || told[0] != `x: revoked by operator: "it hangs"` {
			t.Errorf("told %q", told)
		}
		_, err := a.renew(ga, 0)
		mustBe[*registry.LostError](t, err)

		// The key is kept for B, who is between two calls.
		ga = a.acquire(registry.Request{Key: "x"})
		_, err = b.try(registry.Request{Key: "x", Wait: time.Second})
		mustBe[*registry.WaitError](t, err)
		a.release(ga)
		if done := h.revoke(nil); done.Count != 0 || done.Token != 0 {
			t.Errorf("reserved: %+v", done)
		}
		if g := b.acquire(registry.Request{Key: "x"}); g.Reentrant {
			t.Error("it was not kept for B")
		}
		if done := h.revoke(func(v *registry.Revocation) { v.Key = "y" }); done.Count != 0 {
			t.Errorf("free: %+v", done)
		}
	})
}

// A call that is sent again takes nothing from those who were granted the key since,
// and one with more holders than one transaction revokes takes it from all.
func TestARevokeThatIsSentAgainRevokesOnce(t *testing.T) {
	inHouse(t, registry.Options{}, func(t *testing.T, h *house) {
		const readers = 300
		lead, a, b := h.party("lead"), h.party("A"), h.party("B")
		for i := range readers {
			a.as(fmt.Sprint("part", i)).acquire(registry.Request{Key: "x", Shared: true})
		}
		next := b.wait(registry.Request{Key: "x"})
		named := call.With(t.Context(), call.Call{Session: lead.Session, Name: uuid.NewString()})
		v := registry.Revocation{Key: "x", By: "lead", Reason: "it hangs"}
		var first registry.Revoked
		for i := range 3 {
			done, err := h.Registry("run:1").Revoke(named, v)
			if err != nil || done.Count != readers || len(done.Holders) != registry.MaxListed || done.Next[0].Path != "B" {
				t.Fatalf("sent %d times: %+v %v", i+1, done, err)
			}
			if i == 0 {
				first = done
				g := granted(t, next)
				if err := h.fenced(g.Grant, true); err != nil {
					t.Error(err)
				}
			} else if done.Token != first.Token {
				t.Errorf("token %d, then %d", first.Token, done.Token)
			}
			if i == 1 {
				h.crash()
			}
		}
		h.check()
	})
}

func TestARevocationNamesAKeyAndAReason(t *testing.T) {
	inHouse(t, registry.Options{}, func(t *testing.T, h *house) {
		for argument, v := range map[string]registry.Revocation{
			"key":    {Reason: "why"},
			"reason": {Key: "x"},
		} {
			v.By = "operator"
			_, err := h.Registry("run:1").Revoke(t.Context(), v)
			if bad := mustBe[*registry.ArgumentError](t, err); bad.Argument != argument {
				t.Errorf("names %q, want %q", bad.Argument, argument)
			}
		}
		for _, reason := range []string{strings.Repeat("x", registry.MaxReason+1), "a\nb"} {
			_, err := h.Registry("run:1").Revoke(t.Context(), registry.Revocation{Key: "x", Reason: reason})
			mustBe[*registry.ArgumentError](t, err)
		}
	})
}

package registry_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/call"
	"github.com/leasehold/leasehold/engine/pebble"
	"github.com/leasehold/leasehold/registry"
)

func TestRefusalNamesHolderPlaceAndTime(t *testing.T) {
	inHouse(t, registry.Options{}, func(t *testing.T, h *house) {
		w2, s2 := h.party("S1→W2"), h.party("S2")
		w2.acquire(registry.Request{Key: "output.json", TTL: 30 * time.Second})
		time.Sleep(2*time.Second + time.Millisecond)
		_, err := s2.try(registry.Request{Key: "output.json"})
		held := mustBe[*registry.HeldError](t, err)
		want := fmt.Sprintf("lease %q held by actor %s (S1→W2), expires in 28s", "output.json", w2.Actor)
		if held.Error() != want {
			t.Errorf("refusal reads\n%s\nwant\n%s", held, want)
		}
		if held.ID != uuid.Nil {
			t.Error("the refusal has the secret id of the lease")
		}
	})
}

func TestScopesAreApart(t *testing.T) {
	inHouse(t, registry.Options{}, func(t *testing.T, h *house) {
		a, b := h.party("S1"), h.party("S2")
		for _, scope := range []string{"layer:1", "layer:2", "layer:", "run:1"} {
			for i, p := range []party{a, b} {
				_, err := h.Registry(scope).Acquire(t.Context(), registry.Request{Key: "x", Holder: p.Holder})
				if granted := err == nil; granted != (i == 0) {
					t.Errorf("%s takes x in %s: %v", p.Path, scope, err)
				}
			}
		}
	})
}

func TestReentryKeepsTokenAndNeverShortens(t *testing.T) {
	inHouse(t, registry.Options{}, func(t *testing.T, h *house) {
		p := h.party("W1")
		first := p.acquire(registry.Request{Key: "x", TTL: time.Minute})
		again := p.acquire(registry.Request{Key: "x", TTL: time.Second})
		if !again.Reentrant || again.ID != first.ID || again.Token != first.Token || !again.Deadline.Equal(first.Deadline) {
			t.Errorf("re-entry gave %+v, want the same lease as %+v", again, first)
		}
		longer := p.acquire(registry.Request{Key: "x", TTL: time.Hour})
		if got := time.Until(longer.Deadline); got != time.Hour {
			t.Errorf("re-entry with a longer ttl leaves %v, want 1h", got)
		}
	})
}

func TestAnotherSessionOfTheActorIsAnotherPartyUntilItAdopts(t *testing.T) {
	inHouse(t, registry.Options{}, func(t *testing.T, h *house) {
		one := h.party("W1")
		two := one.again()
		g := one.acquire(registry.Request{Key: "x"})
		_, err := two.try(registry.Request{Key: "x"})
		mustBe[*registry.HeldError](t, err)

		l, err := two.renew(g, 0)
		if err != nil || l.Token <= g.Token || l.ID != g.ID || l.Holder.Session != two.Session {
			t.Fatalf("adoption: %+v %v", l, err)
		}
		h.view(func(tx registry.Tx) {
			news, _ := h.NewUntold(tx, one.Holder, nil)
			if len(news) != 1 || news[0].Token != g.Token || news[0].Reason != string(registry.Adopted) || news[0].SupersededBy != "W1" {
				t.Errorf("the session before is told %+v", news)
			}
			if news, _ := h.NewUntold(tx, two.Holder, nil); len(news) != 0 {
				t.Errorf("the one that adopted is told %+v", news)
			}
		})
		isTold := func(p party) {
			t.Helper()
			if err := h.eng.Update(t.Context(), func(tx registry.Tx) error {
				h.TakeUntold(tx, p.Holder, 10, anyParty)
				return nil
			}); err != nil {
				t.Fatal(err)
			}
		}
		for range 2 { // as a timer does, or a shim that sends a call again
			_, err = one.renew(g, 0)
			if lost := mustBe[*registry.LostError](t, err); lost.SupersededBy != "W1" || lost.Reason != string(registry.Adopted) {
				t.Errorf("the session before renews what it has not been told of: %+v", lost)
			}
		}
		isTold(one)
		if back, err := one.renew(g, 0); err != nil || back.Token <= l.Token {
			t.Errorf("the session before knows, and adopts it back: %+v %v", back, err)
		}
		if _, err = two.renew(g, 0); err == nil {
			t.Error("the other one has not been told, and adopts it")
		}
		isTold(two)
		if _, err = two.renew(g, 0); err != nil {
			t.Error(err)
		}
		h.endSession(one) // the late clean-up of the old session
		h.view(func(tx registry.Tx) {
			l, ok := h.Registry("run:1").Get(tx, "x")
			if !ok || l.Holder.Session != two.Session {
				t.Errorf("after the old session's end the lease is %+v %v, want it adopted", l, ok)
			}
		})
	})
}

func TestStrangersCanNeitherRenewNorRelease(t *testing.T) {
	inHouse(t, registry.Options{}, func(t *testing.T, h *house) {
		a, b := h.party("W1"), h.party("W2")
		g := a.acquire(registry.Request{Key: "x"})
		if _, err := b.renew(g, 0); !errors.Is(err, registry.ErrNotHolder) {
			t.Errorf("renew: %v", err)
		}
		if _, _, err := h.Release(t.Context(), b.Holder, g.ID); !errors.Is(err, registry.ErrNotHolder) {
			t.Errorf("release: %v", err)
		}
		if _, err := a.renew(registry.Grant{Lease: registry.Lease{ID: uuid.New()}}, 0); !errors.Is(err, registry.ErrNotHolder) {
			t.Errorf("renewal of an unknown lease: %v", err)
		}
	})
}

func TestReleaseIsIdempotentAndAnOldIDTouchesNothingNew(t *testing.T) {
	inHouse(t, registry.Options{}, func(t *testing.T, h *house) {
		p := h.party("W1")
		old := p.acquire(registry.Request{Key: "x"})
		p.release(old)
		fresh := p.acquire(registry.Request{Key: "x"})
		if fresh.Token <= old.Token {
			t.Errorf("token %d after %d", fresh.Token, old.Token)
		}
		released, why, err := h.Release(t.Context(), p.Holder, old.ID)
		if released || why != "not held" || err != nil {
			t.Errorf("second release: %v %q %v", released, why, err)
		}
		if _, err := p.renew(fresh, 0); err != nil {
			t.Errorf("the newer grant is gone: %v", err)
		}
	})
}

func TestExpiryIsStrictlyAfterTheDeadline(t *testing.T) {
	inHouse(t, registry.Options{}, func(t *testing.T, h *house) {
		a, b := h.party("W1"), h.party("W2")
		g := a.acquire(registry.Request{Key: "x", TTL: 10 * time.Second})
		got := b.wait(registry.Request{Key: "x"})
		time.Sleep(10*time.Second - 1)
		waits(t, got)
		if _, err := a.renew(g, time.Second); err != nil {
			t.Fatalf("renewal before the deadline: %v", err)
		}
		time.Sleep(time.Second + 1)
		ans := granted(t, got)
		if late := ans.AcquiredAt.Sub(g.AcquiredAt); late <= 11*time.Second-1 {
			t.Errorf("handed over %v after the grant, within its ttl", late)
		}
	})
}

func TestLateRenewalOfAnUnwantedLease(t *testing.T) {
	inHouse(t, registry.Options{}, func(t *testing.T, h *house) {
		// Nobody tends due rows here: the lease is past its deadline and
		// stands, because nobody has expired it.
		h.stop()
		<-h.done
		h.done <- nil
		a, b := h.party("W1"), h.party("W2")
		g := a.acquire(registry.Request{Key: "x", TTL: time.Second})
		time.Sleep(time.Minute)
		l, err := a.renew(g, time.Second)
		if err != nil || l.Token != g.Token {
			t.Fatalf("renewal of a lease nobody wants: %+v %v", l, err)
		}
		got := b.wait(registry.Request{Key: "x"})
		time.Sleep(2 * time.Second)
		_, err = a.renew(g, time.Second)
		lost := mustBe[*registry.LostError](t, err)
		if lost.Reason != string(registry.Expired) || lost.SupersededBy != "W2" {
			t.Errorf("lost: %+v", lost)
		}
		granted(t, got)
	})
}

func TestLossIsToldOnceWithItsCauseAndSuccessor(t *testing.T) {
	inHouse(t, registry.Options{}, func(t *testing.T, h *house) {
		a, b := h.party("W1"), h.party("W2")
		g := a.acquire(registry.Request{Key: "x", TTL: time.Second})
		got := b.wait(registry.Request{Key: "x"})
		time.Sleep(2 * time.Second)
		granted(t, got)
		_, err := a.renew(g, 0)
		lost := mustBe[*registry.LostError](t, err)
		if lost.Reason != "expired" || lost.SupersededBy != "W2" {
			t.Errorf("renewal says %+v", lost)
		}
		h.crash() // a restart must not silence it
		h.view(func(tx registry.Tx) {
			news, _ := h.NewUntold(tx, a.Holder, nil)
			if len(news) != 1 || news[0].LeaseID != g.ID {
				t.Errorf("untold: %+v", news)
			}
			if other, _ := h.NewUntold(tx, b.Holder, nil); len(other) != 0 {
				t.Errorf("told to another: %+v", other)
			}
		})
	})
}

// The current holder may hold a directory above what was lost, or a file in it.
func TestALossNamesWhoHoldsWhatOverlaps(t *testing.T) {
	for lost, taken := range map[string]string{"file:d/f": "file:d/**", "file:d/**": "file:d/f"} {
		inHouse(t, registry.Options{}, func(t *testing.T, h *house) {
			a, b := h.party("W1"), h.party("W2")
			g := a.acquire(registry.Request{Key: lost, TTL: time.Second})
			time.Sleep(2 * time.Second)
			b.acquire(registry.Request{Key: taken, TTL: time.Minute})
			_, err := a.renew(g, 0)
			if lost := mustBe[*registry.LostError](t, err); lost.SupersededBy != "W2" {
				t.Errorf("W2 has taken %q: renewal of %q says %+v", taken, lost.Key, lost)
			}
			h.view(func(tx registry.Tx) {
				if news, _ := h.NewUntold(tx, a.Holder, nil); len(news) != 1 || news[0].SupersededBy != "W2" {
					t.Errorf("untold: %+v", news)
				}
			})
		})
	}
}

func TestRequestIDGivesTheSameGrantAlsoAfterARestart(t *testing.T) {
	inHouse(t, registry.Options{}, func(t *testing.T, h *house) {
		p, q := h.party("W1"), h.party("W2")
		req := registry.Request{Key: "x", TTL: time.Minute, RequestID: "r1"}
		first := p.acquire(req)
		h.crash()
		again := p.acquire(req)
		if again.ID != first.ID || again.Token != first.Token {
			t.Errorf("again %+v, want %+v", again, first)
		}
		other := req
		other.Key = "y"
		if _, err := p.try(other); !errors.Is(err, registry.ErrRequestIDReused) {
			t.Errorf("other parameters under the id: %v", err)
		}
		other.Key = "z"
		q.acquire(other) // another session's request ids are its own

		p.release(first)
		_, err := p.try(req)
		if lost := mustBe[*registry.LostError](t, err); lost.Reason != "released" || lost.SupersededBy != "" {
			t.Errorf("after release: %+v", lost)
		}
		taken := q.acquire(registry.Request{Key: "x"})
		_, err = p.try(req)
		if lost := mustBe[*registry.LostError](t, err); lost.SupersededBy != "W2" || lost.LeaseID != first.ID {
			t.Errorf("once W2 holds it: %+v", lost)
		}
		q.release(taken)
		time.Sleep(11 * time.Minute)
		if g := p.acquire(req); g.Token <= first.Token {
			t.Errorf("forgotten id gave token %d after %d", g.Token, first.Token)
		}
	})
}

// A re-entry is an answer too: its request_id is used.
func TestRequestIDOfAReentryIsNotForAnotherRequest(t *testing.T) {
	inHouse(t, registry.Options{}, func(t *testing.T, h *house) {
		p := h.party("W1")
		first := p.acquire(registry.Request{Key: "x"})
		req := registry.Request{Key: "x", RequestID: "r1"}
		for range 2 {
			if again := p.acquire(req); again.ID != first.ID || !again.Reentrant {
				t.Errorf("again %+v, want %+v", again, first)
			}
			h.crash()
		}
		other := req
		other.Key = "y"
		if _, err := p.try(other); !errors.Is(err, registry.ErrRequestIDReused) {
			t.Errorf("other parameters under the id: %v", err)
		}
		p.release(first)
		_, err := p.try(req)
		if lost := mustBe[*registry.LostError](t, err); lost.Reason != "released" {
			t.Errorf("after release: %+v", lost)
		}
		time.Sleep(11 * time.Minute)
		p.acquire(other)
	})
}

// An Idempotency-Key makes a request_id of a call that has none. A request for several keys
// may re-enter some of them.
func TestACallThatIsSentAgainTellsItsReentriesAgain(t *testing.T) {
	inHouse(t, registry.Options{}, func(t *testing.T, h *house) {
		p := h.party("W1")
		p.acquire(registry.Request{Key: "x"})
		keyed := func(key string, print uint64) context.Context {
			return call.With(t.Context(), call.Call{}.Requested(p.Session, key, print))
		}
		all := func(ctx context.Context, keys ...string) (reentrant []bool, err error) {
			var wants []registry.Want
			for _, key := range keys {
				wants = append(wants, h.Registry("run:1").Want(key, false))
			}
			list, err := h.AcquireAll(ctx, wants, registry.Request{Holder: p.Holder})
			for _, g := range list {
				reentrant = append(reentrant, g.Reentrant)
			}
			return reentrant, err
		}
		for range 2 {
			if got, err := all(keyed("one", 1), "x"); err != nil || !slices.Equal(got, []bool{true}) {
				t.Errorf("x is reentrant: %v %v", got, err)
			}
			if got, err := all(keyed("some", 2), "z", "x", "a"); err != nil || !slices.Equal(got, []bool{false, true, false}) {
				t.Errorf("z, x and a are reentrant: %v %v", got, err)
			}
			h.crash()
		}
		for _, key := range []string{"one", "some"} {
			if _, err := all(keyed(key, 3), "y"); !errors.Is(err, registry.ErrRequestIDReused) {
				t.Errorf("another request under the Idempotency-Key %q: %v", key, err)
			}
		}
	})
}

func TestRestartKeepsAcknowledgedLeasesForAFullTTL(t *testing.T) {
	inHouse(t, registry.Options{}, func(t *testing.T, h *house) {
		p := h.party("W1")
		g := p.acquire(registry.Request{Key: "x", TTL: time.Minute})
		time.Sleep(50 * time.Second)
		h.crash()
		reopened := time.Now()
		_, err := h.party("W2").try(registry.Request{Key: "x"})
		held := mustBe[*registry.HeldError](t, err)
		if held.ExpiresIn < time.Minute-time.Second {
			t.Errorf("after the restart it has %v left, want its full ttl", held.ExpiresIn)
		}
		l, err := p.renew(g, 0)
		if err != nil || l.Token != g.Token {
			t.Fatalf("renewal after the restart: %+v %v", l, err)
		}
		time.Sleep(time.Until(reopened.Add(2 * time.Minute)))
		if g2 := h.party("W2").acquire(registry.Request{Key: "x"}); g2.Token <= g.Token {
			t.Errorf("token %d after %d", g2.Token, g.Token)
		}
	})
}

func TestRestartsDoNotKeepALongLeaseForEver(t *testing.T) {
	inHouse(t, registry.Options{}, func(t *testing.T, h *house) {
		p := h.party("W1")
		g := p.acquire(registry.Request{Key: "x", TTL: time.Hour})
		for range 70 { // each loses what came after the last beat
			time.Sleep(2 * time.Minute)
			h.crash()
		}
		if left := time.Since(g.Deadline); left < 0 {
			t.Fatalf("the story is too short: %v", left)
		}
		h.party("W2").acquire(registry.Request{Key: "x"})
	})
}

func TestARestartNeverCutsARenewedLongLeaseShort(t *testing.T) {
	inHouse(t, registry.Options{}, func(t *testing.T, h *house) {
		p := h.party("W1")
		g := p.acquire(registry.Request{Key: "x", TTL: time.Hour})
		time.Sleep(50 * time.Minute)
		l, err := p.renew(g, 2*time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		h.crash()
		time.Sleep(time.Until(l.Deadline))
		_, err = h.party("W2").try(registry.Request{Key: "x"})
		mustBe[*registry.HeldError](t, err)
	})
}

// TestARestartHonoursEveryRenewal has a long lease renewed so often that most
// renewals write nothing.
func TestARestartHonoursEveryRenewal(t *testing.T) {
	for _, every := range []time.Duration{time.Second, time.Minute, 7 * time.Minute} {
		inHouse(t, registry.Options{}, func(t *testing.T, h *house) {
			p := h.party("W1")
			g := p.acquire(registry.Request{Key: "x", TTL: 10 * time.Minute})
			for range 3 {
				var deadline time.Time
				for begun := time.Now(); time.Since(begun) < 20*time.Minute; time.Sleep(every) {
					l, err := p.renew(g, 0)
					if err != nil {
						t.Fatal(err)
					}
					deadline = l.Deadline
				}
				h.crash()
				time.Sleep(time.Until(deadline))
				_, err := h.party("W2").try(registry.Request{Key: "x"})
				mustBe[*registry.HeldError](t, err)
			}
		})
	}
}

func TestKeepAliveLastsAsLongAsItsSessionIsPresent(t *testing.T) {
	var present atomic.Bool
	present.Store(true)
	inHouse(t, registry.Options{Present: func(uuid.UUID) bool { return present.Load() }}, func(t *testing.T, h *house) {
		p := h.party("W1")
		p.acquire(registry.Request{Key: "x", TTL: 10 * time.Second, KeepAlive: true})
		for range 20 {
			time.Sleep(3 * time.Second)
			_, err := h.party("W2").try(registry.Request{Key: "x"})
			if held := mustBe[*registry.HeldError](t, err); held.ExpiresIn < 5*time.Second-time.Millisecond {
				t.Fatalf("only %v left of a lease that is kept alive", held.ExpiresIn)
			}
		}
		present.Store(false)
		time.Sleep(11 * time.Second)
		h.party("W2").acquire(registry.Request{Key: "x"})
	})
}

// The extension of a lease that is kept alive may come late: on a busy machine, or when
// its session came back just before the deadline. Until then nobody else gets it, and
// its holder does not lose it, though others wait.
func TestALateExtensionLosesNothing(t *testing.T) {
	for name, present := range map[string]bool{"its session is present": true, "its session is away": false} {
		t.Run(name, func(t *testing.T) {
			var here atomic.Bool
			here.Store(true)
			inHouse(t, registry.Options{Present: func(uuid.UUID) bool { return here.Load() }}, func(t *testing.T, h *house) {
				p := h.party("W1")
				take := func(key string) registry.Grant {
					return p.acquire(registry.Request{Key: key, TTL: time.Second, KeepAlive: true})
				}
				take("asked for")
				renewed, again := take("renewed"), take("taken again")
				waits := []<-chan answer{
					h.party("W3").wait(registry.Request{Key: "renewed", Wait: 40 * time.Second}),
					h.party("W3").wait(registry.Request{Key: "taken again", Wait: 40 * time.Second}),
				}
				synctest.Wait()
				here.Store(false)
				time.Sleep(600 * time.Millisecond) // now they are due at their deadlines
				h.untended(func() {
					time.Sleep(time.Second)
					here.Store(present)
					_, err := h.party("W2").try(registry.Request{Key: "asked for"})
					if held := (*registry.HeldError)(nil); errors.As(err, &held) != present {
						t.Errorf("another asks for it: %v", err)
					}
					l, err := p.renew(renewed, 0)
					if kept := err == nil && l.Token == renewed.Token; kept != present {
						t.Errorf("its holder renews it: %+v %v", l, err)
					}
					g, err := p.try(registry.Request{Key: "taken again"})
					if kept := err == nil && g.Reentrant && g.Token == again.Token; kept != present {
						t.Errorf("its holder takes it again: %+v %v", g, err)
					}
				})
				h.endSession(p)
				for _, w := range waits {
					granted(t, w)
				}
			})
		})
	}
}

func TestMassExpiryHandsOverEveryKey(t *testing.T) {
	inHouse(t, registry.Options{}, func(t *testing.T, h *house) {
		a, b := h.party("W1"), h.party("W2")
		const n = 90
		var got []<-chan answer
		for i := range n {
			a.acquire(registry.Request{Key: fmt.Sprint(i), TTL: time.Second})
		}
		for i := range n {
			got = append(got, b.wait(registry.Request{Key: fmt.Sprint(i)}))
		}
		time.Sleep(time.Second + 1)
		for _, c := range got {
			granted(t, c)
		}
	})
}

func TestArgumentsOutOfRangeAreNamedAndChangeNothing(t *testing.T) {
	inHouse(t, registry.Options{}, func(t *testing.T, h *house) {
		p := h.party("W1")
		for _, c := range []struct {
			argument string
			req      registry.Request
		}{
			{"ttl_secs", registry.Request{Key: "x", TTL: time.Second - 1}},
			{"ttl_secs", registry.Request{Key: "x", TTL: 24*time.Hour + 1}},
			{"ttl_secs", registry.Request{Key: "x", TTL: -time.Second}},
			{"wait_secs", registry.Request{Key: "x", Wait: -1}},
			{"wait_secs", registry.Request{Key: "x", Wait: registry.MaxWait + 1}},
			{"key", registry.Request{Key: ""}},
			{"key", registry.Request{Key: strings.Repeat("k", 513)}},
			{"key", registry.Request{Key: "a\x00b"}},
			{"key", registry.Request{Key: "a\nb"}},
			{"key", registry.Request{Key: "\xff"}},
			{"request_id", registry.Request{Key: "x", RequestID: strings.Repeat("r", 129)}},
		} {
			_, err := p.try(c.req)
			if bad := mustBe[*registry.ArgumentError](t, err); bad.Argument != c.argument {
				t.Errorf("%+v: names %s, want %s", c.req, bad.Argument, c.argument)
			}
		}
		h.view(func(tx registry.Tx) {
			if list := held(h, tx); len(list) != 0 {
				t.Errorf("leases %+v", list)
			}
		})
	})
}

// Two names must not look the same. Free text may have what names may not.
func TestWhatNobodySeesIsInNoName(t *testing.T) {
	inHouse(t, registry.Options{}, func(t *testing.T, h *house) {
		p := h.party("W1")
		for _, unseen := range []string{"\u034f", "\u115f", "\u1160", "\u180b", "\u200b", "\u2800", "\u3164", "\ufe00", "\uffa0", "\U000e0100", "\U000e01ef"} {
			_, err := p.try(registry.Request{Key: "a" + unseen})
			if bad := mustBe[*registry.ArgumentError](t, err); bad.Argument != "key" {
				t.Errorf("%q: %v", unseen, err)
			}
			if registry.CheckParty("a"+unseen) == nil {
				t.Errorf("%q is taken for a party", unseen)
			}
		}
		p.acquire(registry.Request{Key: "schön 名 ❤\ufe0f 한 é", Reason: "\ufe00"})
	})
}

func TestLeasesOfAScopeAreBounded(t *testing.T) {
	inHouse(t, registry.Options{MaxLeasesPerScope: 2}, func(t *testing.T, h *house) {
		p := h.party("W1")
		p.acquire(registry.Request{Key: "1"})
		g := p.acquire(registry.Request{Key: "2"})
		_, err := p.try(registry.Request{Key: "3"})
		mustBe[*registry.LimitError](t, err)
		p.release(g)
		p.acquire(registry.Request{Key: "3"})
		h.crash()
		_, err = p.try(registry.Request{Key: "4"})
		mustBe[*registry.LimitError](t, err)
	})
}

func TestListShowsHoldersAndTheLine(t *testing.T) {
	inHouse(t, registry.Options{}, func(t *testing.T, h *house) {
		a, b, c := h.party("S1"), h.party("S2"), h.party("S3")
		a.acquire(registry.Request{Key: "out/1"})
		a.acquire(registry.Request{Key: "other"})
		b.wait(registry.Request{Key: "out/1"})
		c.wait(registry.Request{Key: "out/1"})
		h.view(func(tx registry.Tx) {
			list, _ := h.Registry("run:1").List(tx, "out/", "", 10)
			if len(list) != 1 || list[0].Holder.Path != "S1" || len(list[0].Waiters) != 2 ||
				list[0].Waiters[0].Holder.Path != "S2" || list[0].Waiters[1].Holder.Path != "S3" {
				t.Errorf("list: %+v", list)
			}
		})
		synctest.Wait()
		h.endSession(b)
		h.endSession(c)
	})
}

// The disk fails every write from some moment on, and renewals go on: they
// make none.
func TestARenewalWritesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var broken atomic.Bool
		fs := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
			if broken.Load() && op.Kind.ReadOrWrite() == errorfs.OpIsWrite {
				return errors.New("the disk is gone")
			}
			return nil
		}))
		eng, err := pebble.Open(pebble.Options{Dir: "state", FS: fs})
		if err != nil {
			t.Fatal(err)
		}
		core := registry.New(eng, registry.Options{})
		holder := registry.Holder{Session: uuid.New(), Actor: uuid.New(), Path: "W1"}
		g, err := core.Registry("run").Acquire(t.Context(), registry.Request{Key: "x", Holder: holder})
		if err != nil {
			t.Fatal(err)
		}
		broken.Store(true)
		for range 1000 {
			time.Sleep(time.Second)
			if _, err := core.Renew(t.Context(), holder, g.ID, time.Minute); err != nil {
				t.Fatal(err)
			}
		}
		if _, _, err := core.Release(t.Context(), holder, g.ID); !errors.Is(err, engine.ErrFailed) {
			t.Errorf("a release, which must write, says %v", err)
		}
		eng.Close()
	})
}

// Losses are told in the order in which they came about, also if not all of them fit
// into one answer.
func TestLossesAreToldInTheirOrder(t *testing.T) {
	inHouse(t, registry.Options{}, func(t *testing.T, h *house) {
		p := h.party("W1")
		var want, got []string
		for i := range 9 {
			key := fmt.Sprint("file ", i)
			p.acquire(registry.Request{Key: key, TTL: time.Second})
			want = append(want, key)
			time.Sleep(time.Minute)
		}
		for more := 1; more > 0; {
			if err := h.eng.Update(t.Context(), func(tx registry.Tx) error {
				var news []registry.Notice
				news, more = h.TakeUntold(tx, p.Holder, 4, anyParty)
				for _, n := range news {
					got = append(got, n.Key)
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("told in the order %q", got)
		}
	})
}

// Another sub-agent of the session may release a lease by its id, too. The one that held
// it is told. What the session releases for its sub-agents is no loss.
func TestAReleaseByAnotherPartyIsTold(t *testing.T) {
	inHouse(t, registry.Options{}, func(t *testing.T, h *house) {
		session := h.party("W1")
		a, b := session.as("a"), session.as("b")
		for _, c := range []struct {
			holder, by party
			told       bool
		}{{a, b, true}, {session, b, true}, {a, session, false}, {a, a, false}} {
			g := c.holder.acquire(registry.Request{Key: "x", TTL: time.Minute})
			c.by.release(g)
			news, _ := session.take(10, anyParty)
			switch {
			case len(news) > 1, len(news) == 1 != c.told:
				t.Errorf("%q releases the lease of %q: told %+v", c.by.Party, c.holder.Party, news)
			case c.told && (news[0].Party != c.holder.Party || news[0].Token != g.Token || news[0].Reason != string(registry.ReleasedWithin)):
				t.Errorf("%q releases the lease of %q: told %+v", c.by.Party, c.holder.Party, news)
			}
		}
	})
}

// Another session of the actor may release a lease by its id. The session that held it
// is told, once: it would go on as if it held what somebody else may have by now.
func TestAReleaseByAnotherSessionIsTold(t *testing.T) {
	inHouse(t, registry.Options{}, func(t *testing.T, h *house) {
		told := func(p party) (news []registry.Notice) {
			t.Helper()
			if err := h.eng.Update(t.Context(), func(tx registry.Tx) error {
				news, _ = h.TakeUntold(tx, p.Holder, 10, anyParty)
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			return news
		}
		first := h.party("W1")
		second := first.again()
		g := first.acquire(registry.Request{Key: "x", TTL: time.Minute})
		second.release(g)
		h.party("W2").acquire(registry.Request{Key: "x", TTL: time.Minute})
		news := told(first)
		if len(news) != 1 || news[0].Token != g.Token || news[0].Reason != string(registry.ReleasedAside) || news[0].SupersededBy != "W2" {
			t.Errorf("the session that held it is told %+v", news)
		}
		if news := slices.Concat(told(first), told(second)); len(news) > 0 {
			t.Errorf("and then somebody is told %+v", news)
		}
		own := first.acquire(registry.Request{Key: "y", TTL: time.Minute})
		first.release(own)
		if news := told(first); len(news) > 0 {
			t.Errorf("after its own release it is told %+v", news)
		}
	})
}

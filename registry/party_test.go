package registry_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/call"
	"github.com/leasehold/leasehold/engine/event"
	"github.com/leasehold/leasehold/registry"
)

// as is a sub-agent of the same session.
func (p party) as(name string) party {
	p.Party = name
	return p
}

func TestPartiesOfOneSessionAreApart(t *testing.T) {
	inHouse(t, registry.Options{}, func(t *testing.T, h *house) {
		session := h.party("W1")
		a, b := session.as("a"), session.as("b")
		g := a.acquire(registry.Request{Key: "x", KeepAlive: true})
		for _, other := range []party{b, session} {
			_, err := other.try(registry.Request{Key: "x"})
			held := mustBe[*registry.HeldError](t, err)
			want := fmt.Sprintf(`lease "x" held by actor %s (W1), expires in 60s; for its agent "a"; kept alive while its holder is connected`, a.Actor)
			if held.Error() != want {
				t.Errorf("%q reads %s\nwant %s", other.Party, held, want)
			}
		}
		time.Sleep(time.Second)
		if again := a.acquire(registry.Request{Key: "x"}); !again.Reentrant || again.HeldFor != time.Second || again.Token != g.Token {
			t.Errorf("re-entry: %+v", again)
		}
		// The session may speak for its parties; another party adopts.
		if l, err := session.renew(g, 0); err != nil || l.Token != g.Token || l.Holder.Party != "a" {
			t.Errorf("renewed by the session: %+v %v", l, err)
		}
		l, err := b.renew(g, 0)
		if err != nil || l.Token <= g.Token || l.Holder.Party != "b" {
			t.Errorf("adopted: %+v %v", l, err)
		}
		h.view(func(tx registry.Tx) {
			if news, _ := h.NewUntold(tx, session.Holder, nil); len(news) != 1 || news[0].Party != "a" || news[0].Token != g.Token {
				t.Errorf("the session is told %+v", news)
			}
		})
	})
}

// A sub-agent that is refused is told which sub-agent of its own session is before it in
// line: by the path alone, that would be itself.
func TestWhoIsBeforeAPartyInLineIsNamed(t *testing.T) {
	inHouse(t, registry.Options{}, func(t *testing.T, h *house) {
		session := h.party("W1")
		h.party("W2").acquire(registry.Request{Key: "x", Shared: true})
		session.as("a").wait(registry.Request{Key: "x", Wait: time.Second})
		_, err := session.as("b").try(registry.Request{Key: "x", Shared: true})
		const want = `; W1 (as a) waits for it, and is before you in line for "x"`
		if held := mustBe[*registry.HeldError](t, err); !strings.HasSuffix(held.Error(), want) {
			t.Errorf("it reads %s\nwant %s", held, want)
		}
		time.Sleep(time.Second)
	})
}

// A sub-agent that has lost a lease to another one of its session, or to one of another
// session of its actor, is told to which: by the path alone, that would be itself.
func TestAPartyIsToldWhichOtherHasWhatItLost(t *testing.T) {
	inHouse(t, registry.Options{}, func(t *testing.T, h *house) {
		session := h.party("W1")
		a := session.as("a")
		for by, want := range map[party]string{
			session.as("b"):         `W1 (as b)`,
			session.again().as("a"): `W1 (as a)`,
			h.party("W2").as("b"):   `W2 (as b)`,
		} {
			g := a.acquire(registry.Request{Key: "x", TTL: time.Second})
			time.Sleep(2 * time.Second)
			taken := by.acquire(registry.Request{Key: "x"})
			_, err := a.renew(g, 0)
			lost := mustBe[*registry.LostError](t, err)
			if !strings.Contains(lost.Error(), ", now held by "+want+";") || lost.SupersededBy != by.Path {
				t.Errorf("a reads %s\nwant %s", lost, want)
			}
			by.release(taken)
		}
	})
}

// The record of a deadlock between sub-agents names them. By the path alone, one would
// wait for itself.
func TestADeadlockOfPartiesIsOnRecordWithTheirNames(t *testing.T) {
	run := uuid.New()
	opts := registry.Options{LayerOf: func(registry.Tx, string) (uuid.UUID, string) { return run, "" }}
	inHouse(t, opts, func(t *testing.T, h *house) {
		session := h.party("W1")
		ask := func(by party, key string) error {
			_, err := h.Registry("layer:1").Acquire(t.Context(), registry.Request{Key: key, Holder: by.Holder, Wait: time.Second})
			return err
		}
		a, b := session.as("a"), session.as("b")
		if err := errors.Join(ask(a, "x"), ask(b, "y")); err != nil {
			t.Fatal(err)
		}
		go func() { _ = ask(a, "y") }()
		synctest.Wait()
		mustBe[*registry.DeadlockError](t, ask(b, "x"))
		const want = `W1 (as b) would wait for lease "x", held by W1 (as a); W1 (as a) waits for lease "y", held by W1 (as b)`
		h.view(func(tx registry.Tx) {
			events, err := event.Read(tx, run, 0)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for e := range events {
				if e.Kind == event.Deadlock {
					got = append(got, e.Cause)
				}
			}
			if len(got) != 1 || got[0] != want {
				t.Errorf("on record is %q\nwant %s", got, want)
			}
		})
		time.Sleep(time.Second)
	})
}

func TestTheEndOfAPartyReleasesWhatItHasAndNothingElse(t *testing.T) {
	inHouse(t, registry.Options{}, func(t *testing.T, h *house) {
		session, other := h.party("W1"), h.party("W2")
		a, b := session.as("a"), session.as("b")
		const n = 300 // more than one transaction ends
		for i := range n {
			a.acquire(registry.Request{Key: fmt.Sprint("a", i)})
		}
		kept := b.acquire(registry.Request{Key: "b"})
		waiting := other.wait(registry.Request{Key: "a0"})
		a.wait(registry.Request{Key: "b", Wait: time.Second})
		if err := h.EndParty(t.Context(), a.Holder); err != nil {
			t.Fatal(err)
		}
		granted(t, waiting)
		h.view(func(tx registry.Tx) {
			if list := held(h, tx); len(list) != 2 {
				t.Errorf("%d leases are left", len(list))
			}
			news, _ := h.NewUntold(tx, session.Holder, nil)
			for _, n := range news {
				if n.Kind == registry.Loss {
					t.Errorf("the session is told %+v", n)
				}
			}
		})
		if _, err := b.renew(kept, 0); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Second)
	})
}

// Eight wait and the daemon is killed. They come back in any order, two newcomers
// before them, and are served in the order in which they had asked.
func TestALineKeepsItsOrderThroughARestart(t *testing.T) {
	for _, holderStays := range []bool{true, false} {
		t.Run(fmt.Sprint("holder stays ", holderStays), func(t *testing.T) {
			inHouse(t, registry.Options{}, func(t *testing.T, h *house) {
				holder := h.party("holder")
				g := holder.acquire(registry.Request{Key: "x", TTL: time.Hour})
				var line []party
				for i := range 8 {
					p := h.party(fmt.Sprint("W", i))
					line = append(line, p)
					ctx, cut := context.WithCancelCause(call.With(t.Context(), call.Call{Session: p.Session, Name: "1"}))
					c := p.waitCtx(ctx, registry.Request{Key: "x"})
					defer func() { <-c }()
					defer cut(call.ErrCutOff)
				}
				time.Sleep(10 * time.Millisecond) // a place is on the disk soon after its call, which waits on
				h.crash()
				if !holderStays {
					h.endSession(holder)
				}
				got := make([]<-chan answer, 10)
				for i := range 2 {
					got[8+i] = h.party(fmt.Sprint("new", i)).wait(registry.Request{Key: "x"})
				}
				for _, i := range []int{3, 7, 0, 5, 1, 2, 6, 4} {
					ctx := call.With(t.Context(), call.Call{Session: line[i].Session, Name: "1"})
					got[i] = line[i].waitCtx(ctx, registry.Request{Key: "x"})
					h.check()
				}
				if holderStays {
					holder.release(g)
				}
				for i, c := range got {
					a := granted(t, c)
					for _, later := range got[i+1:] {
						waits(t, later)
					}
					p := party{a.Holder, h}
					p.release(a.Grant)
				}
			})
		})
	}
}

// A call may be cancelled before its transaction, after it, or in a wait. Whatever
// it did is undone, unless another call was told of it.
func TestACancelledCallLeavesNothingBehind(t *testing.T) {
	named := func(p party, name string) context.Context {
		return call.With(p.h.t.Context(), call.Call{Session: p.Session, Name: name})
	}
	nothing := func(t *testing.T, h *house) {
		t.Helper()
		h.check()
		h.view(func(tx registry.Tx) {
			if list := held(h, tx); len(list) != 0 {
				t.Errorf("it left %+v", list)
			}
			for row := range tx.Scan(call.Prefix) {
				t.Errorf("it left %q", row.Key)
			}
		})
	}
	undo := func(h *house, ctx context.Context) (undone bool) {
		err := h.eng.Update(context.Background(), func(tx engine.Tx) error {
			a, ok := call.Of(ctx).Take(tx, registry.CallKind)
			if ok && a.Kind == registry.CallKind {
				h.Undo(tx, a)
			}
			undone = ok
			return nil
		})
		if err != nil {
			h.t.Fatal(err)
		}
		return undone
	}
	// granted is a lease of a call "1".
	granted := func(t *testing.T, h *house, req registry.Request) (party, context.Context, registry.Grant) {
		t.Helper()
		p := h.party("W1")
		ctx := named(p, "1")
		g, err := p.tryCtx(ctx, req)
		if err != nil {
			t.Fatal(err)
		}
		return p, ctx, g
	}
	for _, requestID := range []string{"", "r"} {
		t.Run("request_id "+requestID, func(t *testing.T) {
			t.Run("before", func(t *testing.T) {
				inHouse(t, registry.Options{}, func(t *testing.T, h *house) {
					ctx, cancel := context.WithCancel(named(h.party("W1"), "1"))
					cancel()
					if _, err := h.party("W1").tryCtx(ctx, registry.Request{Key: "x", RequestID: requestID}); !errors.Is(err, context.Canceled) {
						t.Error(err)
					}
					nothing(t, h)
				})
			})
			t.Run("after the commit", func(t *testing.T) {
				inHouse(t, registry.Options{}, func(t *testing.T, h *house) {
					req := registry.Request{Key: "x", RequestID: requestID}
					p, ctx, g := granted(t, h, req)
					if !undo(h, ctx) {
						t.Fatal("not undone")
					}
					nothing(t, h)
					if _, err := p.renew(g, 0); !errors.Is(err, registry.ErrNotHolder) {
						t.Errorf("renewal: %v", err)
					}
					if again, err := p.tryCtx(named(p, "2"), req); err != nil || again.Token <= g.Token {
						t.Errorf("the request_id is not free: %+v %v", again, err)
					}
				})
			})
			t.Run("in a wait", func(t *testing.T) {
				inHouse(t, registry.Options{}, func(t *testing.T, h *house) {
					holder, p := h.party("W1"), h.party("W2")
					holder.acquire(registry.Request{Key: "x"})
					ctx, cancel := context.WithCancel(named(p, "1"))
					c := p.waitCtx(ctx, registry.Request{Key: "x", RequestID: requestID})
					cancel()
					<-c
					h.endSession(holder)
					nothing(t, h)
				})
			})
			t.Run("told to another call", func(t *testing.T) {
				inHouse(t, registry.Options{}, func(t *testing.T, h *house) {
					req := registry.Request{Key: "x", RequestID: requestID}
					p, ctx, g := granted(t, h, req)
					if again, err := p.tryCtx(named(p, "2"), req); err != nil || again.ID != g.ID {
						t.Fatalf("again: %+v %v", again, err)
					}
					undo(h, ctx)
					if _, err := p.renew(g, 0); err != nil {
						t.Errorf("it was taken from the call that has it: %v", err)
					}
				})
			})
			t.Run("sent again instead", func(t *testing.T) {
				inHouse(t, registry.Options{}, func(t *testing.T, h *house) {
					req := registry.Request{Key: "x", RequestID: requestID, TTL: time.Minute}
					p, ctx, g := granted(t, h, req)
					time.Sleep(10 * time.Second)
					again, err := p.tryCtx(ctx, req)
					if err != nil || again.ID != g.ID || again.Reentrant || again.ExpiresIn != 50*time.Second || again.HeldFor != 10*time.Second {
						t.Errorf("again: %+v %v", again, err)
					}
					h.crash()
					again, err = p.tryCtx(ctx, req)
					if err != nil || again.Token != g.Token || again.Reentrant || again.ExpiresIn != time.Minute {
						t.Errorf("after the restart: %+v %v", again, err)
					}
				})
			})
		})
	}
}

// A call whose connection is lost is sent again, and has its place.
func TestACallThatIsCutOffKeepsItsPlace(t *testing.T) {
	inHouse(t, registry.Options{}, func(t *testing.T, h *house) {
		a, b, c := h.party("A"), h.party("B"), h.party("C")
		g := a.acquire(registry.Request{Key: "x"})
		ctx, cut := context.WithCancelCause(call.With(t.Context(), call.Call{Session: b.Session, Name: "1"}))
		first := b.waitCtx(ctx, registry.Request{Key: "x"})
		second := c.wait(registry.Request{Key: "x"})
		cut(call.ErrCutOff)
		if ans := <-first; !errors.Is(ans.err, call.ErrCutOff) {
			t.Errorf("the call that is cut off says %v", ans.err)
		}
		a.release(g)
		waits(t, second)
		back := b.waitCtx(call.With(t.Context(), call.Call{Session: b.Session, Name: "1"}), registry.Request{Key: "x"})
		granted(t, back)
		waits(t, second)
	})
}

// A client that cancels a call that was cut off may send it once more, together with
// the cancel, and that may come before the call waits again.
func TestACallThatIsCutOffAndThenCancelledLeavesTheLine(t *testing.T) {
	for _, restart := range []bool{false, true} {
		t.Run(fmt.Sprint("restart ", restart), func(t *testing.T) {
			inHouse(t, registry.Options{}, func(t *testing.T, h *house) {
				a, b, c := h.party("A"), h.party("B"), h.party("C")
				g := a.acquire(registry.Request{Key: "x"})
				first, second := call.Call{Session: b.Session, Name: "1"}, call.Call{Session: b.Session, Name: "2"}
				var cut []func()
				for _, asked := range []call.Call{first, second} { // both wait in one place, which is now the second's
					ctx, end := context.WithCancelCause(call.With(t.Context(), asked))
					c := b.waitCtx(ctx, registry.Request{Key: "x"})
					cut = append(cut, func() { end(call.ErrCutOff); <-c })
				}
				behind := c.wait(registry.Request{Key: "x"})
				if restart {
					time.Sleep(10 * time.Millisecond) // a place is on the disk soon after its call waits
					h.crash()
					<-behind
				}
				for _, end := range cut {
					end()
				}
				if restart {
					behind = c.wait(registry.Request{Key: "x"})
				}
				leave := func(asked call.Call, left int) {
					err := h.eng.Update(t.Context(), func(tx engine.Tx) error {
						h.Leave(tx, b.Actor, asked)
						return nil
					})
					if err != nil {
						t.Fatal(err)
					}
					h.view(func(tx registry.Tx) {
						if s, _ := h.Registry("run:1").Standing(tx, "x"); s.InLine != left {
							t.Errorf("after the cancel of call %s: in line: %+v", asked.Name, s)
						}
					})
				}
				waits(t, behind)
				leave(first, 2)
				leave(second, 1)
				a.release(g)
				granted(t, behind)
			})
		})
	}
}

func TestOnePartyHasOnePlaceHoweverOftenItAsks(t *testing.T) {
	inHouse(t, registry.Options{MaxWaitersPerKey: 2, MaxWaitersPerActor: 1}, func(t *testing.T, h *house) {
		a, b, c := h.party("A"), h.party("B"), h.party("C")
		g := a.acquire(registry.Request{Key: "x"})
		var calls []<-chan answer
		for range 20 {
			calls = append(calls, b.wait(registry.Request{Key: "x"}))
		}
		last := c.wait(registry.Request{Key: "x"})
		h.view(func(tx registry.Tx) {
			s, _ := h.Registry("run:1").Standing(tx, "x")
			if s.InLine != 2 || len(s.Waiters) != 2 || s.Waiters[0].Holder.Path != "B" || s.Waiters[1].Holder.Path != "C" {
				t.Errorf("in line: %+v", s)
			}
		})
		a.release(g)
		for _, c := range calls { // they are one party
			if a := granted(t, c); a.Holder.Path != "B" {
				t.Errorf("granted to %s", a.Holder.Path)
			}
		}
		waits(t, last)
	})
}

func TestALapsedLeaseIsItsHoldersUntilAnotherTakesIt(t *testing.T) {
	inHouse(t, registry.Options{MaxLeasesPerActor: 1}, func(t *testing.T, h *house) {
		a, b := h.party("A"), h.party("B")
		g := a.acquire(registry.Request{Key: "x", TTL: time.Second})
		time.Sleep(10 * time.Second)
		h.check()
		h.view(func(tx registry.Tx) {
			if list := held(h, tx); len(list) != 0 {
				t.Errorf("listed: %+v", list)
			}
			if news, _ := h.NewUntold(tx, a.Holder, nil); len(news) != 1 || news[0].Reason != string(registry.Expired) {
				t.Errorf("told: %+v", news)
			}
		})
		h.crash()
		if l, err := a.renew(g, time.Second); err != nil || l.Token != g.Token || l.ExpiresIn != time.Second {
			t.Fatalf("renewed: %+v %v", l, err)
		}
		h.view(func(tx registry.Tx) {
			if news, _ := h.NewUntold(tx, a.Holder, nil); len(news) != 0 {
				t.Errorf("it has it again, and is told %+v", news)
			}
		})
		time.Sleep(10 * time.Second)
		a.acquire(registry.Request{Key: "y"}) // x does not count
		taken := b.acquire(registry.Request{Key: "x", TTL: time.Minute})
		_, err := a.renew(g, 0)
		if lost := mustBe[*registry.LostError](t, err); lost.SupersededBy != "B" || lost.Reason != string(registry.Expired) {
			t.Errorf("lost: %+v", lost)
		}
		b.release(taken)
		h.party("C").acquire(registry.Request{Key: "x"})
		_, err = a.renew(g, 0)
		if lost := mustBe[*registry.LostError](t, err); lost.SupersededBy != "C" {
			t.Errorf("the holder of now is %q", lost.SupersededBy)
		}
	})
}

// TestALossIsToldAgainIfItsAnswerMayBeLost: to the next session, if the last one
// ended within a minute of being told.
func TestALossIsToldAgainIfItsAnswerMayBeLost(t *testing.T) {
	for after, again := range map[time.Duration]int{time.Second: 1, 2 * time.Minute: 0} {
		inHouse(t, registry.Options{}, func(t *testing.T, h *house) {
			one := h.party("W1")
			one.acquire(registry.Request{Key: "x", TTL: time.Second})
			time.Sleep(10 * time.Minute)
			take := func(p party) (list []registry.Notice) {
				t.Helper()
				err := h.eng.Update(t.Context(), func(tx engine.Tx) error {
					list, _ = h.TakeUntold(tx, p.Holder, 20, anyParty)
					return nil
				})
				if err != nil {
					t.Fatal(err)
				}
				return list
			}
			if list := take(one); len(list) != 1 {
				t.Fatalf("told %+v", list)
			}
			time.Sleep(after)
			h.over.add(one.Session)
			err := h.eng.Update(t.Context(), func(tx engine.Tx) error {
				h.EndSession(tx, one.Session, 100)
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			h.check()
			next := one.again()
			if list := take(next); len(list) != again {
				t.Errorf("told %v before the end, and the next session is told %+v", after, list)
			}
			if list := take(next); len(list) != 0 {
				t.Errorf("told twice: %+v", list)
			}
			h.check()
		})
	}
}

// A restart shortly after a loss was told may have lost the answer, so it is told again.
// Any later restart tells it to nobody: its holder may have the lease again.
func TestARestartTellsNoLossAgainThatWasToldLongAgo(t *testing.T) {
	for after, again := range map[time.Duration]int{time.Second: 1, 2 * time.Minute: 0, 50 * time.Minute: 0} {
		inHouse(t, registry.Options{}, func(t *testing.T, h *house) {
			one := h.party("W1")
			lost := one.acquire(registry.Request{Key: "x", TTL: time.Second})
			time.Sleep(2 * time.Second)
			two := h.party("W2")
			two.release(two.acquire(registry.Request{Key: "x", TTL: time.Minute}))
			take := func() (list []registry.Notice) {
				t.Helper()
				err := h.eng.Update(t.Context(), func(tx engine.Tx) error {
					list, _ = h.TakeUntold(tx, one.Holder, 20, anyParty)
					return nil
				})
				if err != nil {
					t.Fatal(err)
				}
				return list
			}
			if list := take(); len(list) != 1 {
				t.Fatalf("told %+v", list)
			}
			one.acquire(registry.Request{Key: "x", TTL: time.Hour})
			time.Sleep(after)
			h.crash()
			h.check()
			if list := take(); len(list) != again {
				t.Errorf("told %v before a restart, and after it %+v", after, list)
			}
			// Whoever asks by the id is told nevertheless.
			_, err := one.renew(lost, 0)
			if e := mustBe[*registry.LostError](t, err); e.Reason != "expired" {
				t.Errorf("renewing the lost lease: %v", e)
			}
			time.Sleep(3 * time.Hour)
			h.check()
			for _, n := range take() { // what it acquired since has expired
				if n.Token == lost.Token {
					t.Errorf("told %+v", n)
				}
			}
		})
	}
}

// A spentTx has run for as long as it may.
type spentTx struct{ engine.Tx }

func (spentTx) Spent() bool { return true }

// The end of a session leaves what is left to another transaction, and gets on in
// each.
func TestTheEndOfASessionHoldsUpNobody(t *testing.T) {
	inHouse(t, registry.Options{}, func(t *testing.T, h *house) {
		one := h.party("W1")
		for i := range 5 {
			one.acquire(registry.Request{Key: fmt.Sprint(i), TTL: time.Hour})
		}
		h.over.add(one.Session)
		steps := 0
		for done := false; !done; steps++ {
			err := h.eng.Update(t.Context(), func(tx engine.Tx) error {
				done = h.EndSession(spentTx{tx}, one.Session, 100)
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		h.check()
		if steps < 5 || steps > 20 {
			t.Errorf("5 leases were given back in %d steps", steps)
		}
	})
}

func TestLossesPassToTheNextSessionAndAreBounded(t *testing.T) {
	inHouse(t, registry.Options{}, func(t *testing.T, h *house) {
		one := h.party("W1")
		expired := one.acquire(registry.Request{Key: "expired", TTL: time.Second})
		time.Sleep(2 * time.Second)
		const n = registry.MaxUntold + 50
		for i := range n {
			one.acquire(registry.Request{Key: fmt.Sprint(i), TTL: time.Hour})
		}
		// Its end goes in steps.
		h.over.add(one.Session)
		steps, done := 0, false
		for !done {
			steps++
			err := h.eng.Update(t.Context(), func(tx engine.Tx) error {
				done = h.EndSession(tx, one.Session, 100)
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		if steps < n/100 {
			t.Errorf("ended in %d steps", steps)
		}
		h.check()
		h.crash()
		next := one.again()
		told := make(map[string]bool)
		for {
			var list []registry.Notice
			var more int
			err := h.eng.Update(t.Context(), func(tx engine.Tx) error {
				list, more = h.TakeUntold(tx, next.Holder, 20, anyParty)
				return nil
			})
			if err != nil || len(list) > 20 {
				t.Fatalf("%d at once: %v", len(list), err)
			}
			for _, l := range list {
				if told[l.Key] {
					t.Errorf("%q is told twice", l.Key)
				}
				told[l.Key] = true
			}
			if more == 0 {
				break
			}
		}
		if len(told) != registry.MaxUntold || !told["expired"] {
			t.Errorf("%d losses are told, the one from before: %v", len(told), told["expired"])
		}
		h.check()
		if _, err := next.renew(expired, 0); err == nil {
			t.Error("the end of a session keeps its lapsed lease")
		}
		time.Sleep(2 * time.Hour)
		h.view(func(tx registry.Tx) {
			for _, prefix := range []string{"lost/", "count/lost/"} {
				for row := range tx.Scan(prefix) {
					t.Errorf("kept: %q", row.Key)
				}
			}
		})
	})
}

func TestLeasesOfAnActorAreBounded(t *testing.T) {
	inHouse(t, registry.Options{MaxLeasesPerActor: 2}, func(t *testing.T, h *house) {
		p := h.party("W1")
		g := p.acquire(registry.Request{Key: "1"})
		p.again().acquire(registry.Request{Key: "2"})
		_, err := p.as("sub").try(registry.Request{Key: "3"})
		if limit := mustBe[*registry.LimitError](t, err); limit.Max != 2 {
			t.Errorf("limit: %v", limit)
		}
		h.crash()
		_, err = p.try(registry.Request{Key: "3"})
		mustBe[*registry.LimitError](t, err)
		p.release(g)

		// A request for several is refused with the limit, not with what it would leave.
		r := h.Registry("run:1")
		_, err = h.AcquireAll(t.Context(), []registry.Want{r.Want("3", false), r.Want("4", false)}, registry.Request{Holder: p.Holder})
		if limit := mustBe[*registry.LimitError](t, err); limit.Max != 2 {
			t.Errorf("limit: %v", limit)
		}
		_, err = h.AcquireAll(t.Context(), []registry.Want{r.Want("3", false), r.Want("4", false), r.Want("5", false), r.Want("6", false)}, registry.Request{Holder: p.Holder})
		mustBe[*registry.LimitError](t, err)
		p.acquire(registry.Request{Key: "3"})
	})
}

func TestListingsComeInPages(t *testing.T) {
	inHouse(t, registry.Options{}, func(t *testing.T, h *house) {
		p := h.party("W1")
		for i := range 25 {
			p.acquire(registry.Request{Key: fmt.Sprintf("k/%02d", i)})
		}
		p.acquire(registry.Request{Key: "other"})
		h.view(func(tx registry.Tx) {
			var keys []string
			after, more := "", true
			for more {
				var page []registry.Standing
				page, more = h.Registry("run:1").List(tx, "k/", after, 10)
				for _, s := range page {
					keys = append(keys, s.Key)
				}
				after = page[len(page)-1].Cursor()
			}
			if len(keys) != 25 || keys[0] != "k/00" || keys[24] != "k/24" {
				t.Errorf("keys: %q", keys)
			}
		})
	})
}

func TestKeepAliveThatIsAskedForLaterSurvivesARestart(t *testing.T) {
	inHouse(t, registry.Options{}, func(t *testing.T, h *house) {
		p := h.party("W1")
		p.acquire(registry.Request{Key: "x", TTL: 10 * time.Second})
		p.acquire(registry.Request{Key: "x", TTL: 10 * time.Second, KeepAlive: true})
		h.crash()
		time.Sleep(time.Minute)
		_, err := h.party("W2").try(registry.Request{Key: "x"})
		mustBe[*registry.HeldError](t, err)
	})
}

func TestTokensNeverGoBack(t *testing.T) {
	inHouse(t, registry.Options{}, func(t *testing.T, h *house) {
		p := h.party("W1")
		g := p.acquire(registry.Request{Key: "x"})
		err := h.eng.Update(t.Context(), func(tx engine.Tx) error {
			tx.Delete(engine.Mark + "token")
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		err = registry.New(h.eng, registry.Options{}).Recover(t.Context())
		if !errors.Is(err, engine.ErrCorrupt) {
			t.Errorf("leases without a record of tokens: %v", err)
		}
		err = h.eng.Update(t.Context(), func(tx engine.Tx) error {
			tx.Delete("number") // which a restart forgets
			tx.Touch(engine.Row{Key: engine.Mark + "token", Value: string(make([]byte, 8))})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := h.Recover(t.Context()); err != nil {
			t.Fatal(err)
		}
		if next := p.acquire(registry.Request{Key: "y"}); next.Token <= g.Token {
			t.Errorf("token %d after %d", next.Token, g.Token)
		}
	})
}

// A record that is damaged while the daemon runs affects only its key.
func TestACorruptLeaseAffectsOnlyItsKey(t *testing.T) {
	inHouse(t, registry.Options{}, func(t *testing.T, h *house) {
		p := h.party("W1")
		p.acquire(registry.Request{Key: "bad", TTL: time.Second})
		g := p.acquire(registry.Request{Key: "good", TTL: time.Minute})
		var was engine.Row
		damage := func(fix bool) {
			err := h.eng.Update(t.Context(), func(tx engine.Tx) error {
				row, _ := tx.Get("lease/run:1\x00bad")
				if fix {
					row = was
				} else {
					was, row.Value = row, "?"
				}
				tx.Put(row)
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		damage(false)
		time.Sleep(10 * time.Second) // it falls due
		if _, err := p.try(registry.Request{Key: "bad"}); !errors.Is(err, engine.ErrCorrupt) {
			t.Errorf("the key with the damaged record: %v", err)
		}
		if _, err := p.renew(g, 0); err != nil {
			t.Error(err)
		}
		p.acquire(registry.Request{Key: "other"})
		damage(true)
		synctest.Wait()
	})
}

func anyParty(registry.Notice) bool { return true }

// TestARequestThatItsRepetitionOvertookTakesNothing: the client has the answer of the
// repetition, and may have released the lease when the first request arrives.
func TestARequestThatItsRepetitionOvertookTakesNothing(t *testing.T) {
	inHouse(t, registry.Options{}, func(t *testing.T, h *house) {
		p := h.party("W1")
		c := call.Call{Session: p.Session, Name: "1"}
		take := func(c call.Call) (registry.Grant, error) {
			return p.tryCtx(call.With(t.Context(), c), registry.Request{Key: "x"})
		}
		g, err := take(c)
		if err != nil {
			t.Fatal(err)
		}
		p.release(g)
		if _, err := take(c.Original()); mustBe[*registry.LostError](t, err).Reason != string(registry.Released) {
			t.Error(err)
		}
		if _, err := take(c); err != nil {
			t.Errorf("a client that repeats the call waits for an answer: %v", err)
		}
	})
}

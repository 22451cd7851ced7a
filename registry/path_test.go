package registry_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold/registry"
)

func TestATreeAndWhatIsBelowItKeepEachOtherOut(t *testing.T) {
	inHouse(t, registry.Options{}, func(t *testing.T, h *house) {
		a, b := h.party("A"), h.party("B")
		for _, pair := range [][2]string{
			{"file:src/**", "file:src/app.ts"},
			{"file:src/**", "file:src/deep/er/app.ts"},
			{"file:src/**", "file:src"},
			{"file:src/**", "file:src/deep/**"},
			{"file:**", "file:src/app.ts"},
			{"file:**", "file:."},
			{"file:**", "file:src/**"},
			{"file:/etc/**", "file:/etc/hosts"},
			{"file:/**", "file:/etc/**"},
		} {
			for _, p := range [][2]string{pair, {pair[1], pair[0]}} {
				ga := a.acquire(registry.Request{Key: p[0], Shared: true})
				_, err := b.try(registry.Request{Key: p[1]})
				want := fmt.Sprintf("lease %q held by actor %s (A), expires in 60s; shared; %q overlaps with it", p[0], a.Actor, p[1])
				if held := mustBe[*registry.HeldError](t, err); held.Error() != want {
					t.Errorf("refusal reads\n%s\nwant\n%s", held, want)
				}
				gb := b.acquire(registry.Request{Key: p[1], Shared: true})
				h.check()
				a.release(ga)
				b.release(gb)
				// Both are the party's own: it does not keep itself out.
				ga, gb = a.acquire(registry.Request{Key: p[0]}), a.acquire(registry.Request{Key: p[1]})
				if gb.Reentrant {
					t.Errorf("%q and %q are one lease", p[0], p[1])
				}
				a.release(ga)
				a.release(gb)
			}
		}
		for _, pair := range [][2]string{
			{"file:src/**", "file:src2"},
			{"file:src/**", "file:lib/**"},
			{"file:src/**", "file:source"},
			{"file:src/**", "src/app.ts"},
			{"file:**", "file:/etc/hosts"},
			{"file:**", "file:/**"},
			{"file:src", "file:src/app.ts"},
			{"file:src-x/**", "file:src/a"},
		} {
			ga, gb := a.acquire(registry.Request{Key: pair[0]}), b.acquire(registry.Request{Key: pair[1]})
			h.check()
			a.release(ga)
			b.release(gb)
		}
		for _, key := range []string{"file:", "file:./a", "file:a/", "file:../a", "file:a//b", "file:a/*.ts", "file:**/a", "file:/..", "file:cafe\u0301", "file:./**"} {
			_, err := a.try(registry.Request{Key: key})
			if bad := mustBe[*registry.ArgumentError](t, err); bad.Argument != "key" {
				t.Errorf("%q: %v", key, err)
			}
		}
	})
}

// A tree waits until all below it is free, and nobody who came after it slips in there.
func TestLinesOfPathsThatOverlapAreOneLine(t *testing.T) {
	inHouse(t, registry.Options{}, func(t *testing.T, h *house) {
		a, b, tree, late, aside := h.party("A"), h.party("B"), h.party("T"), h.party("L"), h.party("N")
		ga := a.acquire(registry.Request{Key: "file:src/a"})
		gb := b.acquire(registry.Request{Key: "file:src/b"})
		whole := tree.wait(registry.Request{Key: "file:src/**"})
		below := late.wait(registry.Request{Key: "file:src/c"})
		aside.acquire(registry.Request{Key: "file:lib/c"})
		_, err := aside.try(registry.Request{Key: "file:src/d"})
		want := fmt.Sprintf(`lease "file:src/a" held by actor %s (A), expires in 60s; T waits for it, and is before you in line for "file:src/d"`, a.Actor)
		if held := mustBe[*registry.HeldError](t, err); held.Error() != want {
			t.Errorf("refusal reads\n%s\nwant\n%s", held, want)
		}
		if list := h.list(); list[1].Key != "file:src/a" || list[1].InLine != 1 || list[1].Waiters[0].Holder.Path != "T" {
			t.Errorf("listed: %+v", list[1])
		}
		a.release(ga)
		waits(t, whole)
		waits(t, below)
		b.release(gb)
		g := granted(t, whole)
		waits(t, below)
		tree.release(g.Grant)
		granted(t, below)
	})
}

// Reservation, expiry, lapse and restart know of what overlaps, too.
func TestWhatOverlapsIsReservedAndExpiresAlike(t *testing.T) {
	inHouse(t, registry.Options{}, func(t *testing.T, h *house) {
		a, tree := h.party("A"), h.party("T")
		ga := a.acquire(registry.Request{Key: "file:src/a"})
		_, err := tree.try(registry.Request{Key: "file:src/**", Wait: time.Second})
		wait := mustBe[*registry.WaitError](t, err)
		a.release(ga)
		_, err = a.try(registry.Request{Key: "file:src/a"})
		if held := mustBe[*registry.HeldError](t, err); !held.Reserved || held.Key != "file:src/**" {
			t.Errorf("kept for T: %+v", held)
		}
		h.crash()
		g, err := tree.try(registry.Request{Key: "file:src/**", Ticket: wait.Ticket, TTL: 2 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		// It lapses; its holder may renew it until somebody takes what it covers.
		time.Sleep(3 * time.Second)
		if _, err := tree.renew(g, 2*time.Second); err != nil {
			t.Error(err)
		}
		time.Sleep(3 * time.Second)
		ga = a.acquire(registry.Request{Key: "file:src/a"})
		if _, err = tree.renew(g, 0); mustBe[*registry.LostError](t, err).Reason != string(registry.Expired) {
			t.Error(err)
		}
		a.release(ga)
		_, err = tree.renew(g, 0)
		mustBe[*registry.LostError](t, err)

		// Whoever waits for what a lease covers gets it at the lease's deadline.
		tree.acquire(registry.Request{Key: "file:**", TTL: 10 * time.Second})
		below := a.wait(registry.Request{Key: "file:src/a"})
		time.Sleep(11 * time.Second)
		granted(t, below)
	})
}

// More than one transaction should end.
func TestATreeIsTakenOverManyExpiredFiles(t *testing.T) {
	inHouse(t, registry.Options{}, func(t *testing.T, h *house) {
		a, tree := h.party("A"), h.party("T")
		var old registry.Grant
		for i := range 600 {
			old = a.acquire(registry.Request{Key: fmt.Sprint("file:src/", i), TTL: time.Second})
		}
		time.Sleep(2 * time.Second)
		tree.acquire(registry.Request{Key: "file:src/**"})
		_, err := a.renew(old, 0)
		mustBe[*registry.LostError](t, err)
		if list := h.list(); len(list) != 1 {
			t.Errorf("%d are held", len(list))
		}
	})
}

func TestATokenOfATreeIsGoodForWhatIsBelowIt(t *testing.T) {
	inHouse(t, registry.Options{}, func(t *testing.T, h *house) {
		a := h.party("A")
		g := a.acquire(registry.Request{Key: "file:src/**"})
		for key, want := range map[string]bool{"file:src/a": true, "file:src/b/**": true, "file:src/**": true, "file:**": false, "file:lib/a": false} {
			g := g
			g.Key = key
			if err := h.fenced(g, true); (err == nil) != want {
				t.Errorf("%q: %v", key, err)
			}
		}
		a.release(g)
		g.Key = "file:src/a"
		mustBe[*registry.StaleError](t, h.fenced(g, false))
	})
}

func (p party) all(wait time.Duration, keys ...string) ([]registry.Grant, error) {
	var wants []registry.Want
	for i, key := range keys {
		wants = append(wants, p.h.Registry([]string{"run:1", "layer:1"}[i%2]).Want(key, false))
	}
	return p.h.AcquireAll(p.h.t.Context(), wants, registry.Request{Holder: p.Holder, Wait: wait})
}

type answers struct {
	list []registry.Grant
	err  error
}

func (p party) waitAll(keys ...string) <-chan answers {
	c := make(chan answers, 1)
	go func() {
		list, err := p.all(registry.MaxWait, keys...)
		c <- answers{list, err}
	}()
	time.Sleep(time.Millisecond)
	return c
}

// A party that waits for a key alone and also together with others is one in that line.
func TestAPartyIsCountedOnceInALine(t *testing.T) {
	inHouse(t, registry.Options{}, func(t *testing.T, h *house) {
		for _, key := range []string{"x", "file:src/x"} {
			other := "with " + key
			a, b := h.party("A"), h.party("B")
			x := a.acquire(registry.Request{Key: key})
			y, err := h.Registry("layer:1").Acquire(t.Context(), registry.Request{Holder: a.Holder, Key: other})
			if err != nil {
				t.Fatal(err)
			}
			alone := b.wait(registry.Request{Key: key})
			together, more := b.waitAll(key, other), b.waitAll(key, other, "file:else/"+key)
			last := h.party("C").wait(registry.Request{Key: key})
			inLine := func(want int) {
				t.Helper()
				for _, s := range h.list() {
					if s.Key == key && (s.InLine != want || len(s.Waiters) != want) {
						t.Errorf("%d wait, %d are listed, want %d: %+v", s.InLine, len(s.Waiters), want, s.Waiters)
					}
				}
				_, err := h.party("D").try(registry.Request{Key: key, Wait: time.Millisecond})
				if timeout := mustBe[*registry.WaitError](t, err); timeout.Position != want+1 || timeout.Waiters != want+1 {
					t.Errorf("a newcomer is told %+v", timeout)
				}
				h.check()
			}
			inLine(2)
			if err := h.Recover(t.Context()); err != nil { // it counts anew, and may run again
				t.Fatal(err)
			}
			inLine(3) // the newcomer before is parked
			a.release(x)
			g := granted(t, alone)
			if _, _, err := h.Release(t.Context(), a.Holder, y.ID); err != nil {
				t.Fatal(err)
			}
			for _, several := range []<-chan answers{together, more} {
				if got := <-several; got.err != nil {
					t.Fatal(got.err)
				}
			}
			b.release(g.Grant)
			granted(t, last)
			h.check()
			h.crash()
		}
	})
}

func TestSeveralKeysAreGrantedTogetherOrNotAtAll(t *testing.T) {
	inHouse(t, registry.Options{}, func(t *testing.T, h *house) {
		a, b, c := h.party("A"), h.party("B"), h.party("C")
		list, err := a.all(0, "x", "y", "w")
		if err != nil || len(list) != 3 || list[0].Key != "x" || list[1].Scope != "layer:1" || list[2].Key != "w" {
			t.Fatalf("%+v %v", list, err)
		}
		// What the party has, it has again.
		again, err := a.all(0, "w", "y", "z")
		if err != nil || !again[0].Reentrant || again[0].ID != list[2].ID || !again[1].Reentrant || again[2].Reentrant {
			t.Errorf("%+v %v", again, err)
		}
		_, err = b.all(0, "v", "y")
		if held := mustBe[*registry.HeldError](t, err); held.Key != "y" {
			t.Error(err)
		}
		b.release(b.acquire(registry.Request{Key: "v"})) // it got no part
		waiting := b.waitAll("v", "y")
		single := c.wait(registry.Request{Key: "v"}) // behind it, though v is free
		waits(t, single)
		h.check()
		a.release(list[0])
		if _, _, err := h.Release(t.Context(), a.Holder, list[1].ID); err != nil {
			t.Fatal(err)
		}
		got := <-waiting
		if got.err != nil || len(got.list) != 2 || got.list[0].Key != "v" || got.list[1].Key != "y" {
			t.Fatalf("%+v", got)
		}
		waits(t, single)
		b.release(got.list[0])
		granted(t, single)

		for _, keys := range [][]string{{}, {"x", "y", "x"}, slices.Repeat([]string{"k"}, 17)} {
			_, err := a.all(0, keys...)
			if bad := mustBe[*registry.ArgumentError](t, err); bad.Argument != "leases" {
				t.Error(err)
			}
		}
	})
}

// A wait for several keys that is cancelled, or whose daemon dies, blocks nobody.
func TestAPlaceInSeveralLinesIsOnePlace(t *testing.T) {
	inHouse(t, registry.Options{}, func(t *testing.T, h *house) {
		a, b, c := h.party("A"), h.party("B"), h.party("C")
		held := a.acquire(registry.Request{Key: "x"})
		_, err := b.all(time.Second, "x", "y", "z")
		wait := mustBe[*registry.WaitError](t, err)
		if wait.Position != 1 || wait.Key != "x" {
			t.Errorf("%+v", wait)
		}
		h.crash()
		late := c.wait(registry.Request{Key: "z"})
		waits(t, late) // B keeps its place
		a.release(held)
		got, err := b.all(0, "x", "y", "z")
		if err != nil || len(got) != 3 {
			t.Fatalf("kept for B: %+v %v", got, err)
		}
		h.endSession(b)
		granted(t, late)
		h.check()
	})
}

// A directory that becomes free serves a place once that waits for two files in it.
func TestAPlaceInSeveralLinesIsServedOnce(t *testing.T) {
	inHouse(t, registry.Options{}, func(t *testing.T, h *house) {
		a, b := h.party("A"), h.party("B")
		dir := a.acquire(registry.Request{Key: "file:s/**"})
		a.acquire(registry.Request{Key: "x"})
		b.wait(registry.Request{Key: "x"})
		got := make(chan []registry.Grant, 1)
		go func() {
			r := h.Registry("run:1")
			list, err := h.AcquireAll(t.Context(), []registry.Want{r.Want("file:s/a", false), r.Want("file:s/b", false)}, registry.Request{Holder: b.Holder, Wait: registry.MaxWait})
			if err != nil {
				t.Error(err)
			}
			got <- list
		}()
		synctest.Wait()
		h.view(func(tx registry.Tx) {
			if s, _ := h.Registry("run:1").Standing(tx, "file:s/**"); len(s.Waiters) != 1 || s.InLine != 1 {
				t.Errorf("%d in line, shown %v", s.InLine, s.Waiters)
			}
		})
		a.release(dir)
		if list := <-got; len(list) != 2 || list[0].Reentrant {
			t.Errorf("granted %v", list)
		}
		h.check()
	})
}

// A party may hold a directory alone and share a file in it. Two may not: with one of
// the leases goes the other, whichever way it is that the first goes to another party.
func TestWhatOverlapsStaysWithOneParty(t *testing.T) {
	for _, how := range []string{"adopted", "passed on"} {
		for _, first := range []int{0, 1, 2} {
			inHouse(t, registry.Options{}, func(t *testing.T, h *house) {
				a, b := h.party("A"), h.party("B")
				one := []registry.Grant{
					a.acquire(registry.Request{Key: "file:src/a", Shared: true}),
					a.acquire(registry.Request{Key: "file:src/**"}),
					a.acquire(registry.Request{Key: "file:src/b", Shared: true}),
				}
				apart := a.acquire(registry.Request{Key: "file:lib/a"})
				next := a.again()
				if how == "adopted" {
					if _, err := next.renew(one[first], 0); err != nil {
						t.Fatal(err)
					}
				} else if ok, err := h.Pass(t.Context(), one[first].ID, a.Holder, next.Holder); !ok || err != nil {
					t.Fatal(ok, err)
				}
				h.check()
				for _, key := range []string{"file:src/a", "file:src/**", "file:src/b"} {
					if s, ok := h.standing(key); !ok || s.Holder.Session != next.Session {
						t.Errorf("%s %d: %s is held by %v", how, first, key, s.Holder)
					}
				}
				if s, ok := h.standing("file:lib/a"); !ok || s.Holder.Session != a.Session || s.Token != apart.Token {
					t.Errorf("%s %d: what is apart went, too: %v", how, first, s)
				}
				if _, err := b.try(registry.Request{Key: "file:src/a", Shared: true}); err == nil {
					t.Errorf("%s %d: another has it", how, first)
				}
			})
		}
	}
}

// A lease that has lapsed does not move, and cannot be renewed any more beside one that has.
func TestWhatLapsedOverAMovedLeaseIsOver(t *testing.T) {
	for _, how := range []string{"adopted", "passed on"} {
		inHouse(t, registry.Options{}, func(t *testing.T, h *house) {
			a := h.party("A")
			tree := a.acquire(registry.Request{Key: "file:src/**", TTL: time.Second})
			file := a.acquire(registry.Request{Key: "file:src/a", TTL: time.Hour})
			time.Sleep(10 * time.Second)
			next := a.again()
			if how == "adopted" {
				if _, err := next.renew(file, 0); err != nil {
					t.Fatal(err)
				}
			} else if ok, err := h.Pass(t.Context(), file.ID, a.Holder, next.Holder); !ok || err != nil {
				t.Fatal(ok, err)
			}
			h.check()
			if l, err := a.renew(tree, 0); err == nil {
				t.Errorf("%s: renewed beside another's: %+v", how, l)
			}
			if l, err := next.renew(tree, 0); err == nil {
				t.Errorf("%s: its new holder renews it: %+v", how, l)
			}
		})
	}
}

// Who waits for one key and gets it together with another waits no more: when it gives
// the key back, the next has it at once.
func TestWhoHasWhatItWaitsForLeavesTheLine(t *testing.T) {
	inHouse(t, registry.Options{}, func(t *testing.T, h *house) {
		a, b, c := h.party("A"), h.party("B"), h.party("C")
		held := a.acquire(registry.Request{Key: "x"})
		if _, err := b.try(registry.Request{Key: "x", Wait: time.Second}); err == nil {
			t.Fatal("granted")
		}
		waits := b.wait(registry.Request{Key: "x", Wait: 20 * time.Second})
		synctest.Wait()
		both := b.waitAll("x", "y")
		synctest.Wait()
		a.release(held)
		if got := <-waits; got.err != nil {
			t.Fatal(got.err)
		}
		got := <-both
		if got.err != nil {
			t.Fatal(got.err)
		}
		h.check()

		// The same without a call that waits in the place.
		d := h.party("D")
		if _, err := d.try(registry.Request{Key: "x", Wait: time.Second}); err == nil {
			t.Fatal("granted")
		}
		for _, g := range got.list {
			b.release(g)
		}
		if _, err := d.all(0, "x", "y"); err != nil {
			t.Fatal(err)
		}
		h.check()
		mine, _ := h.standing("x")
		if _, _, err := h.Release(t.Context(), d.Holder, mine.ID); err != nil {
			t.Fatal(err)
		}
		if _, err := c.try(registry.Request{Key: "x"}); err != nil {
			t.Errorf("kept for who has had it: %v", err)
		}
		h.check()
	})
}

// TestACallThatWaitsForSeveralKeysIsCountedOnce, as it has one place.
func TestACallThatWaitsForSeveralKeysIsCountedOnce(t *testing.T) {
	inHouse(t, registry.Options{}, func(t *testing.T, h *house) {
		a, b := h.party("A"), h.party("B")
		if _, err := a.all(0, "x", "y"); err != nil {
			t.Fatal(err)
		}
		waited := b.waitAll("x", "y")
		h.view(func(tx registry.Tx) {
			var holders []string
			for l := range h.Awaits(tx, b.Session) {
				holders = append(holders, l.Holder.Path)
			}
			if !slices.Equal(holders, []string{"A"}) {
				t.Errorf("it waits for %q", holders)
			}
		})
		h.endSession(a)
		if got := <-waited; got.err != nil {
			t.Error(got.err)
		}
	})
}

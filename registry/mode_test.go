package registry_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold/registry"
)

func TestAKeyIsSharedOrHeldAlone(t *testing.T) {
	inHouse(t, registry.Options{}, func(t *testing.T, h *house) {
		a, b, c := h.party("A"), h.party("B"), h.party("C")
		ga := a.acquire(registry.Request{Key: "x", Shared: true, Reason: "reading the schema"})
		gb := b.acquire(registry.Request{Key: "x", Shared: true})
		if gb.Token <= ga.Token || ga.ID == gb.ID || !ga.Shared || !gb.Shared {
			t.Errorf("granted %+v and %+v", ga.Lease, gb.Lease)
		}
		_, err := c.try(registry.Request{Key: "x"})
		want := fmt.Sprintf(`lease "x" held by actor %s (A), expires in 60s; shared; reason: "reading the schema"`, a.Actor)
		if held := mustBe[*registry.HeldError](t, err); held.Error() != want {
			t.Errorf("refusal reads\n%s\nwant\n%s", held, want)
		}
		c.acquire(registry.Request{Key: "xy"}) // the key next to it is another
		// A party has one lease, and cannot have it both ways.
		if again := a.acquire(registry.Request{Key: "x", Shared: true}); !again.Reentrant || again.ID != ga.ID || again.Reason != "reading the schema" {
			t.Errorf("again: %+v", again)
		}
		_, err = a.try(registry.Request{Key: "x"})
		if bad := mustBe[*registry.ArgumentError](t, err); bad.Argument != "mode" {
			t.Errorf("names %q", bad.Argument)
		}
		// Both are current; both survive a restart; each ends by itself.
		for _, g := range []registry.Grant{ga, gb} {
			if err := h.fenced(g, true); err != nil {
				t.Error(err)
			}
		}
		h.crash()
		if list := h.list(); len(list) != 3 || list[0].Token != ga.Token || list[1].Token != gb.Token || list[0].Reason != "reading the schema" || !list[1].Shared {
			t.Errorf("after the restart: %+v", list)
		}
		a.release(ga)
		mustBe[*registry.StaleError](t, h.fenced(ga, false))
		if _, err = c.try(registry.Request{Key: "x"}); mustBe[*registry.HeldError](t, err).Holder.Path != "B" {
			t.Error(err)
		}
		b.release(gb)
		gc := c.acquire(registry.Request{Key: "x"})
		if again := c.acquire(registry.Request{Key: "x", Shared: true}); !again.Reentrant || again.Shared || again.Token != gc.Token {
			t.Errorf("who holds it alone and asks for it shared gets %+v", again)
		}
		_, err = a.try(registry.Request{Key: "x", Shared: true})
		mustBe[*registry.HeldError](t, err)
	})
}

func (h *house) list() (list []registry.Standing) {
	h.view(func(tx registry.Tx) { list = held(h, tx) })
	return list
}

// Those who came after a writer wait behind it, however many readers there are.
func TestReadersDoNotStarveAWriter(t *testing.T) {
	inHouse(t, registry.Options{}, func(t *testing.T, h *house) {
		r1, r2, w := h.party("R1"), h.party("R2"), h.party("W")
		g1 := r1.acquire(registry.Request{Key: "x", Shared: true})
		g2 := r2.acquire(registry.Request{Key: "x", Shared: true})
		writer := w.wait(registry.Request{Key: "x"})
		_, err := h.party("R3").try(registry.Request{Key: "x", Shared: true})
		if held := mustBe[*registry.HeldError](t, err); held.Waiters != 1 || !held.Shared {
			t.Errorf("a reader who would overtake is told %+v", held)
		}
		if again := r1.acquire(registry.Request{Key: "x", Shared: true}); !again.Reentrant {
			t.Error("a reader does not keep what it has")
		}
		r3, r4, w2, r5 := h.party("R3"), h.party("R4"), h.party("W2"), h.party("R5")
		third := r3.wait(registry.Request{Key: "x", Shared: true})
		fourth := r4.wait(registry.Request{Key: "x", Shared: true})
		second := w2.wait(registry.Request{Key: "x"})
		fifth := r5.wait(registry.Request{Key: "x", Shared: true})
		h.check()
		r1.release(g1)
		waits(t, writer)
		r2.release(g2)
		g := granted(t, writer)
		waits(t, third)
		h.check()
		w.release(g.Grant)
		g3, g4 := granted(t, third), granted(t, fourth) // together
		waits(t, second)
		waits(t, fifth)
		h.check()
		r3.release(g3.Grant)
		waits(t, second)
		h.endSession(r4)
		g = granted(t, second)
		waits(t, fifth)
		w2.release(g.Grant)
		granted(t, fifth)
		_ = g4
	})
}

// Whoever waited behind a writer that goes away is served at once.
func TestAWriterThatLeavesLetsTheReadersBehindItIn(t *testing.T) {
	for name, leave := range map[string]func(h *house, w party, cancel func()){
		"cancelled":     func(_ *house, _ party, cancel func()) { cancel() },
		"session ended": func(h *house, w party, _ func()) { h.endSession(w) },
		"party ended": func(h *house, w party, _ func()) {
			if err := h.EndParty(context.Background(), w.Holder); err != nil {
				h.t.Error(err)
			}
		},
		"away for too long": func(*house, party, func()) { time.Sleep(2*time.Second + registry.ParkTime + 1) },
		"asks to share": func(h *house, w party, _ func()) {
			time.Sleep(3 * time.Second) // until its wait is over
			w.acquire(registry.Request{Key: "x", Shared: true})
		},
	} {
		t.Run(name, func(t *testing.T) {
			inHouse(t, registry.Options{}, func(t *testing.T, h *house) {
				h.party("R1").acquire(registry.Request{Key: "x", Shared: true, TTL: time.Hour})
				w := h.party("W")
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				w.waitCtx(ctx, registry.Request{Key: "x", Wait: 2 * time.Second})
				reader := h.party("R2").wait(registry.Request{Key: "x", Shared: true})
				waits(t, reader)
				leave(h, w, cancel)
				granted(t, reader)
				h.check()
			})
		})
	}
}

// A key is reserved in the mode in which the first in line wants it.
func TestAReservationIsShared(t *testing.T) {
	inHouse(t, registry.Options{}, func(t *testing.T, h *house) {
		a, b := h.party("A"), h.party("B")
		g := a.acquire(registry.Request{Key: "x", TTL: time.Hour})
		_, err := b.try(registry.Request{Key: "x", Wait: time.Second, Shared: true})
		mustBe[*registry.WaitError](t, err)
		reader := h.party("R").wait(registry.Request{Key: "x", Shared: true})
		writer := h.party("W").wait(registry.Request{Key: "x"})
		a.release(g)
		r := granted(t, reader) // beside the reservation
		h.check()
		p := party{r.Holder, h}
		p.release(r.Grant)
		waits(t, writer) // it is reserved for B
		granted(t, b.wait(registry.Request{Key: "x", Shared: true}))
		waits(t, writer)
		h.endSession(b)
		granted(t, writer)
	})
}

func TestSharedLeasesLapseAndAreAdoptedOneByOne(t *testing.T) {
	inHouse(t, registry.Options{}, func(t *testing.T, h *house) {
		a, b := h.party("A"), h.party("B")
		ga := a.acquire(registry.Request{Key: "x", Shared: true, TTL: 2 * time.Second})
		gb := b.acquire(registry.Request{Key: "x", Shared: true, TTL: time.Minute})
		time.Sleep(3 * time.Second)
		if list := h.list(); len(list) != 1 || list[0].Token != gb.Token {
			t.Errorf("held: %+v", list)
		}
		h.view(func(tx registry.Tx) {
			if lost, _ := h.NewUntold(tx, a.Holder, nil); len(lost) != 1 || lost[0].SupersededBy != "B" && lost[0].SupersededBy != "" {
				t.Errorf("told: %+v", lost)
			}
		})
		if l, err := a.renew(ga, 0); err != nil || l.Token != ga.Token || !l.Shared {
			t.Errorf("renewed: %+v %v", l, err)
		}
		// Another session of the actor adopts it, and has one of its own already.
		other := a.again()
		own := other.acquire(registry.Request{Key: "x", Shared: true, TTL: time.Minute})
		l, err := other.renew(ga, time.Minute)
		if err != nil || l.Token <= own.Token || l.ID != ga.ID {
			t.Errorf("adopted: %+v %v", l, err)
		}
		h.check()
		h.crash()
		if list := h.list(); len(list) != 3 {
			t.Errorf("held: %+v", list)
		}
		// Once all have lapsed, who wants it alone takes it.
		time.Sleep(2 * time.Minute)
		h.party("W").acquire(registry.Request{Key: "x"})
		_, err = b.renew(gb, 0)
		if lost := mustBe[*registry.LostError](t, err); lost.SupersededBy != "W" {
			t.Errorf("lost: %+v", lost)
		}
		synctest.Wait()
	})
}

func TestALineOfReadersAndWritersSurvivesARestart(t *testing.T) {
	inHouse(t, registry.Options{}, func(t *testing.T, h *house) {
		holder := h.party("holder")
		g := holder.acquire(registry.Request{Key: "x", TTL: time.Hour})
		parties := []party{h.party("R1"), h.party("R2"), h.party("W"), h.party("R3")}
		for _, p := range parties {
			_, err := p.try(registry.Request{Key: "x", Wait: time.Second, Shared: p.Path != "W"})
			mustBe[*registry.WaitError](t, err)
		}
		h.crash()
		var got []<-chan answer
		for _, i := range []int{3, 2, 1, 0} {
			got = append([]<-chan answer{parties[i].wait(registry.Request{Key: "x", Shared: parties[i].Path != "W"})}, got...)
		}
		h.check()
		holder.release(g)
		r1, r2 := granted(t, got[0]), granted(t, got[1])
		waits(t, got[2])
		waits(t, got[3])
		parties[0].release(r1.Grant)
		parties[1].release(r2.Grant)
		w := granted(t, got[2])
		parties[2].release(w.Grant)
		granted(t, got[3])
	})
}

// A listing goes on within a key that many share.
func TestPagesOfOneSharedKey(t *testing.T) {
	inHouse(t, registry.Options{}, func(t *testing.T, h *house) {
		for range 25 {
			h.party("R").acquire(registry.Request{Key: "k", Shared: true})
		}
		h.party("S").acquire(registry.Request{Key: "l"})
		h.view(func(tx registry.Tx) {
			seen := make(map[uint64]bool)
			after, more := "", true
			for more {
				var page []registry.Standing
				page, more = h.Registry("run:1").List(tx, "", after, 10)
				for _, s := range page {
					if seen[s.Token] {
						t.Errorf("token %d is listed twice", s.Token)
					}
					seen[s.Token] = true
				}
				after = page[len(page)-1].Cursor()
			}
			if len(seen) != 26 {
				t.Errorf("%d leases", len(seen))
			}
			for l := range h.Registry("run:1").Leases(tx, "", registry.BehindKey("k")) {
				if l.Key != "l" {
					t.Errorf("behind k: %q", l.Key)
				}
			}
		})
	})
}

// A reservation is told of where nobody holds the key: of one that some share already, and
// others are kept places for, the holders are told. That of a directory is told of to who
// asks about a file in it.
func TestReservationsOfSharedKeysAndDirectories(t *testing.T) {
	inHouse(t, registry.Options{}, func(t *testing.T, h *house) {
		a, b, c := h.party("A"), h.party("B"), h.party("C")
		x, dir := a.acquire(registry.Request{Key: "x"}), a.acquire(registry.Request{Key: "file:src/**"})
		for _, req := range []registry.Request{{Key: "x", Shared: true}, {Key: "file:src/**"}} {
			req.Wait = time.Second
			_, err := b.try(req)
			mustBe[*registry.WaitError](t, err)
		}
		sharer := c.wait(registry.Request{Key: "x", Shared: true})
		y := a.acquire(registry.Request{Key: "file:lib/y"})
		_, err := c.try(registry.Request{Key: "file:lib/y", Wait: time.Second})
		mustBe[*registry.WaitError](t, err)
		a.release(x)
		a.release(dir)
		granted(t, sharer)
		a.release(y)
		c.acquire(registry.Request{Key: "file:lib/**"}) // it has the place for the file still
		h.view(func(tx registry.Tx) {
			list := h.Registry("run:1").Reserved(tx, "", 10)
			if len(list) != 1 || list[0].Key != "file:src/**" || list[0].Holder.Path != "B" {
				t.Errorf("reserved are %+v", list)
			}
			for key, want := range map[string]bool{"file:src/a": true, "file:src/**": true, "file:lib/a": false, "file:**": false, "x": false} {
				if s := (registry.Requirement{Scope: "run:1", Key: key, Token: 1}).Standing(tx); (s.Reserved != nil) != want {
					t.Errorf("%s: %+v", key, s)
				}
			}
		})
	})
}

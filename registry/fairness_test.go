package registry_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/registry"
)

// Those who want several keys, one key, or a directory, ask again as soon as they have
// given back what they had. Whoever asks waits at most for one turn of each of the others.
// Nobody ever sees that somebody has some of the keys that it asked for together.
func TestSeveralKeysAndSingleKeysDoNotStarveEachOther(t *testing.T) {
	inHouse(t, registry.Options{}, func(t *testing.T, h *house) {
		run, layer := h.Registry("run:1"), h.Registry("layer:1")
		clients := [][]registry.Want{
			{run.Want("x", false), layer.Want("y", false), run.Want("file:s/a", false)},
			{run.Want("x", false), layer.Want("y", true)},
			{run.Want("file:s/**", false)},
			{run.Want("file:s/a", false)},
			{run.Want("file:s/b", true), layer.Want("y", true)},
			{run.Want("x", false)},
			{run.Want("x", false)},
			{layer.Want("y", false)},
		}
		const hold, turns = 10 * time.Millisecond, 100
		var mu sync.Mutex
		asks := make(map[uuid.UUID]int) // how many keys each session asks for
		stopped := make(chan struct{})
		var wg, watch sync.WaitGroup
		for i, wants := range clients {
			wg.Go(func() {
				for range turns {
					p := h.party(fmt.Sprint("P", i))
					mu.Lock()
					asks[p.Session] = len(wants)
					mu.Unlock()
					began := time.Now()
					list, err := h.AcquireAll(t.Context(), wants, registry.Request{Holder: p.Holder, Wait: registry.MaxWait})
					if took := time.Since(began); err != nil || took > time.Duration(len(clients))*hold {
						t.Errorf("P%d waited %v: %v", i, took, err)
						return
					}
					for j, g := range list {
						if g.Scope != wants[j].Scope || g.Key != wants[j].Key {
							t.Errorf("P%d got %v, wants %v", i, list, wants)
						}
					}
					time.Sleep(hold)
					h.endSession(p) // gives back all in one transaction
				}
			})
		}
		watch.Go(func() {
			for {
				select {
				case <-stopped:
					return
				case <-time.After(hold/10 + 1):
					h.view(func(tx registry.Tx) {
						has := make(map[uuid.UUID]int)
						for _, r := range []*registry.Registry{run, layer} {
							for l := range r.Leases(tx, "", "") {
								has[l.Holder.Session]++
							}
						}
						mu.Lock()
						defer mu.Unlock()
						for session, n := range has {
							if n != asks[session] {
								t.Errorf("a party has %d keys of %d", n, asks[session])
							}
						}
					})
				}
			}
		})
		wg.Wait()
		close(stopped)
		watch.Wait()
	})
}

// A wait for several keys holds none of them: neither a refusal nor a listing, a token or
// a notice says that it does, though nobody overtakes it.
func TestWhoWaitsForSeveralKeysHoldsNone(t *testing.T) {
	inHouse(t, registry.Options{}, func(t *testing.T, h *house) {
		a, b, c := h.party("A"), h.party("B"), h.party("C")
		y, err := a.all(0, "z", "y")
		if err != nil {
			t.Fatal(err)
		}
		both := b.waitAll("x", "y")
		if _, ok := h.standing("x"); ok || len(h.list()) != 1 {
			t.Errorf("held: %+v", h.list())
		}
		_, err = c.try(registry.Request{Key: "x"})
		if held := mustBe[*registry.HeldError](t, err); held.Holder.Path != "A" || held.Before != "B" {
			t.Errorf("refused: %v", err)
		}
		h.view(func(tx registry.Tx) {
			for token := range uint64(10) {
				if s := h.Registry("run:1").Requirement("x", token).Standing(tx); s.Current || s.Held {
					t.Errorf("token %d of a key that nobody holds is %+v", token, s)
				}
			}
		})
		b.isTold() // that C asked
		a.isTold("y: B of 1 ()")
		a.release(y[1])
		got := <-both
		if got.err != nil || got.list[0].Acquired != got.list[1].Acquired || got.list[0].Token != got.list[1].Token+1 {
			t.Errorf("%+v", got)
		}
	})
}

// A refusal because of a place in line says so, also if what keeps that waiting is in the
// end a lease of the same party, which it got meanwhile: no key overlaps with another then.
func TestARefusalNamesThePlaceOfWhoHoldsTheLease(t *testing.T) {
	inHouse(t, registry.Options{}, func(t *testing.T, h *house) {
		a, b, c, d := h.party("A"), h.party("B"), h.party("C"), h.party("D")
		x := a.acquire(registry.Request{Key: "x"})
		c.waitAll("x", "z")
		_, err := b.all(time.Second, "y", "z")
		mustBe[*registry.WaitError](t, err)
		if _, err := h.Transfer(t.Context(), a.Holder, x.ID, func(registry.Tx, registry.Lease) (registry.Holder, error) { return b.Holder, nil }); err != nil {
			t.Fatal(err)
		}
		b.acquire(registry.Request{Key: "x"})
		_, err = d.try(registry.Request{Key: "y"})
		held := mustBe[*registry.HeldError](t, err)
		if held.Key != "x" || held.Holder.Path != "B" || held.Before != "B" || strings.Contains(err.Error(), "overlaps") {
			t.Errorf("refused: %v", err)
		}
	})
}

// A directory and the files in it: whoever is in the way is told who waits, in both
// directions, and only once for each lease.
func TestAHolderIsToldOfWhoWaitsForWhatOverlaps(t *testing.T) {
	for _, keys := range [][2]string{{"file:dir/**", "file:dir/sub/f"}, {"file:dir/f", "file:dir/**"}, {"file:**", "file:dir/**"}} {
		inHouse(t, registry.Options{}, func(t *testing.T, h *house) {
			a, b, c, aside := h.party("A"), h.party("B"), h.party("C"), h.party("N")
			held := a.acquire(registry.Request{Key: keys[0], Reason: "holding"})
			aside.acquire(registry.Request{Key: "file:/other/f"})
			first := b.wait(registry.Request{Key: keys[1], Reason: "first"})
			second := c.wait(registry.Request{Key: keys[1], Reason: "second"})
			a.isTold(keys[0] + ": B of 2 (first)")
			a.isTold()
			aside.isTold()
			// Another session of the holder's actor has it, and is told.
			next := a.again()
			if ok, err := h.Pass(t.Context(), held.ID, a.Holder, next.Holder); !ok || err != nil {
				t.Fatal(ok, err)
			}
			next.isTold(keys[0] + ": B of 2 (first)")
			a.isTold()
			h.check()
			h.endSession(next)
			got := granted(t, first)
			b.isTold(keys[1] + ": C of 1 (second)")
			b.release(got.Grant)
			granted(t, second)
			c.isTold()
			h.check()
		})
	}
}

// Leases that are offered are accepted together with others, or with none.
func TestOffersAmongSeveralKeys(t *testing.T) {
	inHouse(t, registry.Options{}, func(t *testing.T, h *house) {
		a, b, c, late := h.party("A"), h.party("B"), h.party("C"), h.party("L")
		x := a.acquire(registry.Request{Key: "x"})
		dir := a.acquire(registry.Request{Key: "file:s/**"})
		file := a.acquire(registry.Request{Key: "file:s/a"})
		y, err := c.all(0, "z", "y")
		if err != nil {
			t.Fatal(err)
		}
		behind := late.wait(registry.Request{Key: "x"})
		all := make(chan answers, 1)
		go func() {
			r := h.Registry("run:1")
			list, err := h.AcquireAll(t.Context(), []registry.Want{r.Want("x", false), h.Registry("layer:1").Want("y", false), r.Want("file:s/a", false)},
				registry.Request{Holder: b.Holder, Wait: registry.MaxWait})
			all <- answers{list, err}
		}()
		synctest.Wait()
		a.mustOffer(x, &b, false)    // y is held
		a.mustOffer(file, &b, false) // and so is the directory
		c.release(y[1])
		synctest.Wait()
		if len(all) > 0 {
			t.Fatalf("A holds the directory: %+v", <-all)
		}
		a.release(dir)
		got := <-all
		if got.err != nil || len(got.list) != 3 || got.list[0].Token <= x.Token || got.list[2].Token <= file.Token {
			t.Fatalf("%+v", got)
		}
		waits(t, behind)
		if _, err = a.renew(x, 0); !errors.As(err, new(*registry.LostError)) {
			t.Error(err)
		}
		reasons := a.told()
		slices.Sort(reasons)
		if !slices.Equal(reasons, []string{"file:s/a: " + string(registry.Transferred), "x: " + string(registry.Transferred)}) {
			t.Errorf("A is told %q", reasons)
		}
		b.release(got.list[0])
		granted(t, behind)
		h.check()
	})
}

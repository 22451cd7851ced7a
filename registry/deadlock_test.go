package registry_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/enginetest"
	"github.com/leasehold/leasehold/registry"
	"github.com/leasehold/leasehold/registry/filekey"
)

func TestTwoWhoWouldWaitForEachOtherAreTold(t *testing.T) {
	inHouse(t, registry.Options{}, func(t *testing.T, h *house) {
		a, b, c := h.party("A"), h.party("S1→W2"), h.party("C")
		ga := a.acquire(registry.Request{Key: "a"})
		b.acquire(registry.Request{Key: "file:src/**"})
		b.wait(registry.Request{Key: "a"})
		_, err := a.try(registry.Request{Key: "file:src/x", Wait: time.Second})
		want := `deadlock: you would wait for lease "file:src/x", which overlaps with "file:src/**" of S1→W2; S1→W2 waits for lease "a", held by you: release lease "a" first, then ask again`
		if dead := mustBe[*registry.DeadlockError](t, err); dead.Error() != want || len(dead.Cycle) != 2 {
			t.Errorf("reads\n%s\nwant\n%s", dead, want)
		}
		_, err = a.try(registry.Request{Key: "file:src/x"})
		mustBe[*registry.HeldError](t, err) // who does not wait is only refused
		c.wait(registry.Request{Key: "file:src/x"})
		h.check()
		// A part of a session is a party of its own.
		a.as("part").wait(registry.Request{Key: "file:src/y"})
		a.release(ga)
		h.check()
	})
}

func TestAnActorThatWaitsForAnotherIsInTheGraph(t *testing.T) {
	inHouse(t, registry.Options{}, func(t *testing.T, h *house) {
		lead, w1, w2 := h.party("root"), h.party("W1"), h.party("W2")
		lead.acquire(registry.Request{Key: "x"})
		w1.wait(registry.Request{Key: "x"})
		wait := func(all bool) (func(), error) {
			return h.AwaitActors(t.Context(), lead.Holder, []uuid.UUID{w1.Actor, w2.Actor}, []string{"W1", "W2"}, all)
		}
		_, err := wait(true)
		want := `deadlock: you would wait for the end of actor W1; W1 waits for lease "x", held by you: release lease "x" first, then ask again`
		if dead := mustBe[*registry.DeadlockError](t, err); dead.Error() != want {
			t.Errorf("reads\n%s\nwant\n%s", dead, want)
		}
		done, err := wait(false) // W2 may end
		if err != nil {
			t.Fatal(err)
		}
		_, err = w2.try(registry.Request{Key: "x", Wait: time.Second})
		want = `deadlock: you would wait for lease "x", held by root; root waits for the end of actor W2: finish without it, as root waits for you, or ask with wait_secs 0`
		if dead := mustBe[*registry.DeadlockError](t, err); dead.Error() != want {
			t.Errorf("reads\n%s\nwant\n%s", dead, want)
		}
		done()
		granted := w2.wait(registry.Request{Key: "x"})
		waits(t, granted)
		h.endSession(lead)
		h.check()
	})
}

// TestAWaitBeforeAnotherClosesACycle, although nobody in the cycle holds the lease; and a
// place that is kept for the next call is given up if that call is refused.
func TestAWaitBeforeAnotherClosesACycle(t *testing.T) {
	inHouse(t, registry.Options{}, func(t *testing.T, h *house) {
		a, b, c := h.party("A"), h.party("B"), h.party("C")
		c.acquire(registry.Request{Key: "x"})
		b.acquire(registry.Request{Key: "y"})
		a.wait(registry.Request{Key: "x"})
		behind := b.wait(registry.Request{Key: "x"})
		_, err := a.try(registry.Request{Key: "y", Wait: time.Second})
		want := `deadlock: you would wait for lease "y", held by B; B waits for lease "x", for which you wait before: end your wait for lease "x" first, then ask again`
		if dead := mustBe[*registry.DeadlockError](t, err); dead.Error() != want {
			t.Errorf("reads\n%s\nwant\n%s", dead, want)
		}
		h.endSession(a)
		time.Sleep(registry.MaxWait)
		mustBe[*registry.WaitError](t, (<-behind).err)
		c.wait(registry.Request{Key: "y"})
		_, err = b.try(registry.Request{Key: "x", Wait: time.Second})
		mustBe[*registry.DeadlockError](t, err)
		if s, ok := h.standing("x"); !ok || len(s.Waiters) != 0 {
			t.Errorf("a place is kept for a call that was refused: %+v", s.Waiters)
		}
		h.endSession(c)
	})
}

// Who is offered a key need not wait in its line; others whom the same line keeps waiting do.
func TestAnOfferHidesNoCycle(t *testing.T) {
	inHouse(t, registry.Options{}, func(t *testing.T, h *house) {
		a, b, c := h.party("A"), h.party("B"), h.party("C")
		r := h.Registry("run:1")
		y := a.acquire(registry.Request{Key: "y"})
		wait := func(p party, wants ...registry.Want) {
			go func() {
				_, _ = h.AcquireAll(t.Context(), wants, registry.Request{Holder: p.Holder, Wait: registry.MaxWait})
			}()
			synctest.Wait()
		}
		wait(b, r.Want("x", false), r.Want("y", true))
		wait(c, r.Want("x", true), r.Want("y", false))
		a.mustOffer(y, &c, false) // it waits for B, in line for x
		_, err := a.try(registry.Request{Key: "x", Wait: time.Second})
		if dead := mustBe[*registry.DeadlockError](t, err); len(dead.Cycle) != 2 || dead.Cycle[1].Waiter.Path != "B" {
			t.Error(err)
		}
	})
}

// A clinch is what a brute-force model knows of parties that wait for one another.
type clinch struct {
	actors []int // of each party
	held   []held1
	waits  []*wait1 // in the order in which they began
}

type held1 struct {
	party int
	registry.Want
	offered int // to this actor, if it is not 0
}

type wait1 struct {
	party  int
	wants  []registry.Want
	actors []int // that it waits for instead
	any    bool
	over   chan error
	end    func()
}

func clash(a, b registry.Want) bool {
	return a.Scope == b.Scope && !(a.Shared && b.Shared) && filekey.Overlap(a.Key, b.Key)
}

func (m *clinch) has(party int, want registry.Want) bool {
	return slices.ContainsFunc(m.held, func(h held1) bool { return h.party == party && h.Scope == want.Scope && h.Key == want.Key })
}

// offered reports whether a lease is offered to a party that asks for its very key.
func (m *clinch) offered(h held1, party int, want registry.Want) bool {
	return h.offered == m.actors[party] && h.Scope == want.Scope && h.Key == want.Key
}

// keepers are the parties that a wait is kept waiting by.
func (m *clinch) keepers(w *wait1) (list []int) {
	for _, want := range w.wants {
		its := m.has(w.party, want)
		for _, h := range m.held {
			switch offered := m.offered(h, w.party, want); {
			case offered:
				its = true
			case h.party != w.party && clash(h.Want, want):
				list = append(list, h.party)
			}
		}
		for _, other := range m.waits {
			if other == w || its {
				break
			}
			if other.party != w.party && slices.ContainsFunc(other.wants, func(o registry.Want) bool { return clash(o, want) }) {
				list = append(list, other.party)
			}
		}
	}
	return list
}

// stuck gives the waits of parties that could never go on: not even if everybody who can
// finishes and gives back what it has, again and again.
func (m *clinch) stuck() map[int]*wait1 {
	stuck := make(map[int]*wait1)
	for _, w := range m.waits {
		stuck[w.party] = w
	}
	for changed := true; changed; {
		changed = false
		for p, w := range stuck {
			goes := !slices.ContainsFunc(m.keepers(w), func(p int) bool { return stuck[p] != nil })
			ends := func(actor int) bool {
				for p := range stuck {
					if m.actors[p] == actor {
						return false
					}
				}
				return true
			}
			switch {
			case w.actors != nil && w.any:
				goes = slices.ContainsFunc(w.actors, ends)
			case w.actors != nil:
				goes = !slices.ContainsFunc(w.actors, func(a int) bool { return !ends(a) })
			}
			if goes {
				delete(stuck, p)
				changed = true
			}
		}
	}
	return stuck
}

// move gives a lease to another party, and with it what two parties could not have.
func (m *clinch) move(i, to int) {
	from := m.held[i].party
	m.held[i].party, m.held[i].offered = to, 0
	for j, other := range m.held {
		if other.party == from && clash(other.Want, m.held[i].Want) {
			m.move(j, to)
		}
	}
}

// settle gives what is free to those who wait, and says whose waits are over.
func (m *clinch) settle() (over []*wait1) {
	for again := true; again; {
		again = false
		for i, w := range m.waits {
			if w.actors == nil && len(m.keepers(w)) == 0 {
				for _, want := range w.wants {
					if !m.has(w.party, want) {
						m.held = slices.DeleteFunc(m.held, func(h held1) bool { return m.offered(h, w.party, want) })
						m.held = append(m.held, held1{party: w.party, Want: want})
					}
				}
				m.waits = slices.Delete(m.waits, i, i+1)
				over = append(over, w)
				again = true
				break
			}
		}
	}
	return over
}

// TestEveryCycleIsRefusedAndNothingElse compares the refusals of waits, of up to 8
// parties for 5 keys in two scopes and for one another, with a model that tries what
// could still happen. Leases are offered, accepted, and adopted by other sessions of their
// actor meanwhile. That may close a cycle, as may an offer that is taken back: nobody asks
// then who could be refused, and the waits end with their time.
func TestEveryCycleIsRefusedAndNothingElse(t *testing.T) {
	s := *seed
	if s == 0 {
		s = rand.Uint64()
	}
	t.Logf("-seed=%d -rounds=%d", s, *rounds)
	for _, atOnce := range []int{0, 1} { // nearly all are found in the transaction, or nearly none
		inHouse(t, registry.Options{SearchedAtOnce: atOnce}, func(t *testing.T, h *house) {
			refused := 0
			for round := range *rounds / 100 {
				refused += clinchRound(t, h, rand.New(rand.NewPCG(s, uint64(round))), round)
				if t.Failed() {
					t.Errorf("with SearchedAtOnce %d", atOnce)
					return
				}
			}
			if refused == 0 {
				t.Error("there was no cycle")
			}
		})
	}
}

func clinchRound(t *testing.T, h *house, rnd *rand.Rand, round int) (refused int) {
	run, layer := fmt.Sprint("run:", round), fmt.Sprint("layer:", round)
	keys := []registry.Want{{Scope: run, Key: "x"}, {Scope: layer, Key: "y"}, {Scope: run, Key: "file:s/**"}, {Scope: run, Key: "file:s/a"}, {Scope: layer, Key: "file:s/a"}}
	var parties []party
	m := &clinch{}
	for i := range 2 + rnd.IntN(7) {
		p, actor := h.party(fmt.Sprint("P", i)), i+1
		if i > 0 && rnd.IntN(4) == 0 {
			p, actor = parties[i-1].again(), m.actors[i-1]
		}
		parties, m.actors = append(parties, p), append(m.actors, actor)
	}
	for range 30 {
		p := rnd.IntN(len(parties))
		if rnd.IntN(6) == 0 {
			clinchMove(t, h, m, parties, rnd, p)
		} else if i := slices.IndexFunc(m.waits, func(w *wait1) bool { return w.party == p }); i >= 0 {
			if rnd.IntN(4) == 0 {
				w := m.waits[i]
				w.end()
				<-w.over
				m.waits = slices.Delete(m.waits, i, i+1)
			}
		} else if what := rnd.IntN(8); what == 0 {
			if i := slices.IndexFunc(m.held, func(h held1) bool { return h.party == p }); i >= 0 {
				for _, g := range allGrants(h, parties[p], []registry.Want{m.held[i].Want}) {
					parties[p].release(g)
				}
				m.held = slices.Delete(m.held, i, i+1)
			}
		} else {
			w := &wait1{party: p, over: make(chan error, 1)}
			if what == 1 {
				for _, q := range rnd.Perm(len(parties))[:1+rnd.IntN(2)] {
					if a := m.actors[q]; a != m.actors[p] && !slices.Contains(w.actors, a) {
						w.actors = append(w.actors, a)
					}
				}
				w.any = len(w.actors) > 1 && rnd.IntN(2) == 0
			} else {
				for _, k := range rnd.Perm(len(keys))[:1+rnd.IntN(3)] {
					want := keys[k]
					want.Shared = rnd.IntN(3) == 0
					i := slices.IndexFunc(m.held, func(h held1) bool { return h.party == p && h.Scope == want.Scope && h.Key == want.Key })
					want.Shared = want.Shared || i >= 0 && m.held[i].Shared // nobody makes it exclusive
					w.wants = append(w.wants, want)
				}
			}
			if w.actors == nil && w.wants == nil {
				continue
			}
			refused += clinchWait(t, h, m, parties, w)
		}
		clinchSettle(t, m, parties)
		for stuck := m.stuck(); len(stuck) > 0; stuck = m.stuck() {
			for _, w := range stuck {
				w.end()
				<-w.over
				m.waits = slices.DeleteFunc(m.waits, func(other *wait1) bool { return other == w })
				break
			}
			clinchSettle(t, m, parties)
		}
		for _, w := range m.waits {
			if len(w.over) > 0 {
				t.Errorf("%v waits for %v %v no more: %v", parties[w.party].Path, w.wants, w.actors, <-w.over)
			}
		}
		h.check()
		if t.Failed() {
			return refused
		}
	}
	for _, w := range m.waits {
		w.end()
		<-w.over
	}
	for _, p := range parties {
		h.endSession(p)
	}
	return refused
}

// clinchSettle compares who has got now what it waits for.
func clinchSettle(t *testing.T, m *clinch, parties []party) {
	for _, w := range m.settle() {
		synctest.Wait()
		select {
		case err := <-w.over:
			if err != nil {
				t.Errorf("%v for %v: %v", parties[w.party].Path, w.wants, err)
			}
		default:
			t.Errorf("%v has not got %v", parties[w.party].Path, w.wants)
		}
	}
	synctest.Wait()
}

// clinchMove offers a lease of a party, takes the offer back, or has the lease adopted.
func clinchMove(t *testing.T, h *house, m *clinch, parties []party, rnd *rand.Rand, p int) {
	i := slices.IndexFunc(m.held, func(h held1) bool { return h.party == p })
	if i < 0 {
		return
	}
	g := allGrants(h, parties[p], []registry.Want{m.held[i].Want})[0]
	q := rnd.IntN(len(parties))
	switch {
	case q != p && m.actors[q] == m.actors[p]:
		mixed := func(w *wait1) bool { // it would come to share what it waits for alone
			return w.party == q && slices.ContainsFunc(w.wants, func(want registry.Want) bool { return !want.Shared })
		}
		if m.has(q, m.held[i].Want) || slices.ContainsFunc(m.waits, mixed) {
			return
		}
		parties[q].notices() // else it would not know of an adoption that took it from this party
		if _, err := parties[q].renew(g, 0); err != nil {
			t.Error(err)
		}
		m.move(i, q)
	case q == p:
		m.held[i].offered = 0
		if _, err := parties[p].offer(g, nil); err != nil {
			t.Error(err)
		}
	default:
		m.held[i].offered = m.actors[q]
		if _, err := parties[p].offer(g, &parties[q]); err != nil {
			t.Error(err)
		}
	}
}

// Leads of which each waits until any one of its workers ends, and holds what a worker of
// each other lead waits for, are many ways to the same cycle.
func TestACycleOfManyAlternativesIsFound(t *testing.T) {
	const leads = 8
	inHouse(t, registry.Options{}, func(t *testing.T, h *house) {
		var all []party
		for i := range leads {
			all = append(all, h.party(fmt.Sprint("S", i)))
			all[i].acquire(registry.Request{Key: fmt.Sprint("L", i)})
		}
		for i, lead := range all {
			var ids []uuid.UUID
			var paths []string
			for j := range all {
				if j == i {
					continue
				}
				w := h.party(fmt.Sprintf("S%d→W%d", i, j))
				w.wait(registry.Request{Key: fmt.Sprint("L", j), Wait: registry.MaxWait})
				ids, paths = append(ids, w.Actor), append(paths, w.Path)
			}
			done, err := h.AwaitActors(t.Context(), lead.Holder, ids, paths, false)
			if i == leads-1 {
				mustBe[*registry.DeadlockError](t, err)
			} else if err != nil {
				t.Fatalf("S%d: %v", i, err)
			} else {
				defer done()
			}
		}
	})
}

// allGrants are the grants that a party has, which it is given again.
func allGrants(h *house, p party, wants []registry.Want) []registry.Grant {
	list, err := h.AcquireAll(h.t.Context(), wants, registry.Request{Holder: p.Holder})
	if err != nil {
		h.t.Errorf("again: %v", err)
	}
	return list
}

// clinchWait begins a wait, and compares whether it is refused.
func clinchWait(t *testing.T, h *house, m *clinch, parties []party, w *wait1) (refused int) {
	p := parties[w.party]
	ctx, cancel := context.WithCancel(t.Context())
	if w.actors != nil {
		var ids []uuid.UUID
		var paths []string
		for _, a := range w.actors {
			q := parties[slices.Index(m.actors, a)]
			ids, paths = append(ids, q.Actor), append(paths, q.Path)
		}
		done, err := h.AwaitActors(ctx, p.Holder, ids, paths, !w.any)
		w.end = func() { done(); cancel(); w.over <- nil }
		if err != nil {
			w.over <- err
		}
	} else {
		go func() {
			_, err := h.AcquireAll(ctx, w.wants, registry.Request{Holder: p.Holder, TTL: registry.MaxTTL, Wait: registry.MaxWait})
			w.over <- err
		}()
		w.end = cancel
	}
	synctest.Wait()
	m.waits = append(m.waits, w)
	hopeless := m.stuck()[w.party] != nil
	var err error
	if len(w.over) > 0 && hopeless {
		err = <-w.over
	}
	dead, is := err.(*registry.DeadlockError)
	if is && slices.ContainsFunc(dead.Cycle, func(l registry.Link) bool { return l.Waiter.Path == "" || l.Key == l.Actor }) {
		t.Errorf("somebody waits for nothing in %+v", dead.Cycle)
	}
	if is != hopeless {
		t.Errorf("%s waits for %v %v (any %v): %v, and its being hopeless is %v; held %v, actors %v", p.Path, w.wants, w.actors, w.any, err, hopeless, m.held, m.actors)
		for _, w := range m.waits {
			t.Logf("waits: P%d for %v %v (any %v)", w.party, w.wants, w.actors, w.any)
		}
	}
	if hopeless {
		cancel()
		m.waits = m.waits[:len(m.waits)-1]
		return 1
	}
	return 0
}

// TestADeadlockAmongManyIsFound: of 500 agents that share a key, the last waits for
// whoever would wait for all of them.
func TestADeadlockAmongManyIsFound(t *testing.T) {
	inHouse(t, registry.Options{}, func(t *testing.T, h *house) {
		lead := h.party("root")
		lead.acquire(registry.Request{Key: "y"})
		var last party
		for i := range 500 {
			last = h.party(fmt.Sprintf("W%03d", i))
			last.acquire(registry.Request{Key: "x", Shared: true})
		}
		last.wait(registry.Request{Key: "y"})
		_, err := lead.try(registry.Request{Key: "x", Wait: time.Second})
		mustBe[*registry.DeadlockError](t, err)
	})
}

// countedReads is an engine that notes how many rows its transactions read.
type countedReads struct {
	engine.Engine
	most int // in one Update

	snapshots int
}

func (e *countedReads) Update(ctx context.Context, fn func(engine.Tx) error) error {
	return e.Engine.Update(ctx, func(tx engine.Tx) error {
		counted := &enginetest.CountedTx{Tx: tx}
		defer func() { e.most = max(e.most, counted.Rows) }()
		return fn(counted)
	})
}

func (e *countedReads) Snapshot(ctx context.Context, fn func(engine.Tx) error) error {
	e.snapshots++
	return e.Engine.Snapshot(ctx, fn)
}

// TestALargeCycleIsFoundWithoutTheLock: 500 agents each wait for the next one, and the
// last of them closes the cycle.
func TestALargeCycleIsFoundWithoutTheLock(t *testing.T) {
	inHouse(t, registry.Options{}, func(t *testing.T, h *house) {
		eng := &countedReads{Engine: h.eng}
		h.Core = registry.New(eng, h.opts)
		link := func(i int) registry.Request { return registry.Request{Key: fmt.Sprintf("k%03d", i)} }
		var all []party
		for i := range 500 {
			all = append(all, h.party(fmt.Sprintf("W%03d", i)))
			all[i].acquire(link(i))
		}
		for i := range 499 {
			all[i].wait(link(i + 1))
		}
		closing := link(0)
		closing.Wait = time.Second
		_, err := all[499].try(closing)
		if refusal := mustBe[*registry.DeadlockError](t, err); len(refusal.Cycle) != 500 {
			t.Errorf("a cycle of %d", len(refusal.Cycle))
		}
		if eng.most > 700 {
			t.Errorf("a transaction read %d rows", eng.most)
		}
		h.check()
	})
}

// TestALongLineIsNotSearched: everybody in it holds something for which nobody waits.
func TestALongLineIsNotSearched(t *testing.T) {
	inHouse(t, registry.Options{}, func(t *testing.T, h *house) {
		eng := &countedReads{Engine: h.eng}
		h.Core = registry.New(eng, h.opts)
		h.party("first").acquire(registry.Request{Key: "hot"})
		join := func(i int) {
			p := h.party(fmt.Sprintf("W%03d", i))
			p.acquire(registry.Request{Key: fmt.Sprintf("own%03d", i)})
			p.wait(registry.Request{Key: "hot"})
		}
		join(0)
		first := eng.most
		for i := range 500 {
			join(i + 1)
		}
		if eng.snapshots > 0 || eng.most > first+10 {
			t.Errorf("%d waits were searched, and one transaction has read %d rows instead of %d", eng.snapshots, eng.most, first)
		}
	})
}

// TestADirectoryWithTooManyLeasesIsRefused, since all of them would have to be looked at
// under the lock.
func TestADirectoryWithTooManyLeasesIsRefused(t *testing.T) {
	inHouse(t, registry.Options{}, func(t *testing.T, h *house) {
		a, b := h.party("A"), h.party("B")
		whole := registry.Request{Key: "file:src/**", Shared: true}
		for i := range 1000 {
			a.acquire(registry.Request{Key: fmt.Sprintf("file:src/%04d", i), Shared: true})
		}
		b.release(b.acquire(whole))
		above := a.acquire(registry.Request{Key: "file:src/more", Shared: true})
		_, err := b.try(whole)
		mustBe[*registry.LimitError](t, err)
		_, err = b.try(registry.Request{Key: "file:src/**"})
		mustBe[*registry.HeldError](t, err) // the first that it meets is enough
		a.release(above)
		b.acquire(whole)
	})
}

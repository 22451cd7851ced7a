package registry_test

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/call"
	"github.com/leasehold/leasehold/registry"
)

var histories = flag.Int("histories", 3, "seeds of TestHistoriesAreLinearizable")

// A grip is one lease as the model of histories has it.
type grip struct {
	want     registry.Want
	by       registry.Holder
	offered  uuid.UUID // to this actor
	ttl      time.Duration
	deadline time.Time
}

// A hold is the state of that model: the leases that have not ended, by token, and the
// greatest token that was issued. A lease past its deadline is there until something
// that overlaps with it is granted to another.
type hold struct {
	grips map[uint64]grip
	last  uint64
}

// An op is one call with its answer.
type op struct {
	kind    string
	by      registry.Holder
	want    registry.Want
	grants  []registry.Grant
	token   uint64
	ok      bool
	strict  bool
	offered uuid.UUID
	lease   registry.Lease
	at      time.Time
}

func (o op) String() string {
	const clock = "15:04:05.000"
	var s strings.Builder
	s.WriteString(fmt.Sprintf("%s %s %s (shared %v) token %d ok %v strict %v at %s until %s offered %.4s (is %.4s)", o.by.Path, o.kind, o.want.Key, o.want.Shared, o.token, o.ok, o.strict,
		o.at.Format(clock), o.lease.Deadline.Format(clock), o.offered, o.by.Actor))
	for _, g := range o.grants {
		s.WriteString(fmt.Sprintf(" [%s shared %v token %d from %s until %s]", g.Key, g.Shared, g.Token, g.Acquired.Format(clock), g.Deadline.Format(clock)))
	}
	return s.String()
}

// conflict reports whether a lease keeps a party from a key, but for its deadline.
func (g *grip) conflict(by registry.Holder, want registry.Want) bool {
	return !same(g.by, by) && clash(g.want, want)
}

// step is the model. A grant may end what is in its way if that is past its deadline, or
// was offered to the one who is granted the very key.
func (h hold) step(o op) (ok bool, next hold) {
	next = hold{maps.Clone(h.grips), h.last}
	switch o.kind {
	case "grant":
		for _, g := range o.grants {
			now, there := next.grips[g.Token]
			switch {
			case there && same(now.by, o.by) && now.want.Key == g.Key:
				if g.Deadline.Add(-g.TTL).After(now.deadline) { // its deadline took the offer with it
					now.offered = uuid.Nil
				}
				now.deadline, now.ttl = later(now.deadline, g.Deadline), max(now.ttl, g.TTL)
				next.grips[g.Token] = now
				continue
			case g.Token <= h.last:
				return false, h
			}
			want := registry.Want{Scope: g.Scope, Key: g.Key, Shared: g.Shared}
			for token, other := range next.grips {
				past := g.Acquired.After(other.deadline)
				given := other.offered == o.by.Actor && other.want.Key == g.Key && !past
				inTheWay := other.conflict(o.by, want) || same(other.by, o.by) && other.want.Key == g.Key
				switch {
				case given, inTheWay && past:
					delete(next.grips, token)
				case inTheWay:
					return false, h
				}
			}
			next.grips[g.Token] = grip{want: want, by: o.by, ttl: g.TTL, deadline: g.Deadline}
		}
		for _, g := range o.grants {
			next.last = max(next.last, g.Token)
		}
		return true, next
	case "refused":
		for _, g := range h.grips {
			if g.conflict(o.by, o.want) {
				return true, h
			}
		}
		return false, h
	case "restart": // gives each lease its ttl again
		for token, g := range next.grips {
			if !o.at.After(g.deadline) {
				g.deadline = later(g.deadline, o.at.Add(g.ttl))
				next.grips[token] = g
			}
		}
		return true, next
	case "end":
		maps.DeleteFunc(next.grips, func(_ uint64, g grip) bool { return g.by.Session == o.by.Session })
		return true, next
	case "revoke":
		maps.DeleteFunc(next.grips, func(_ uint64, g grip) bool { return g.want.Key == o.want.Key })
		return true, next
	}
	g, there := next.grips[o.token]
	past := o.at.After(g.deadline)
	switch {
	case !there:
		return !o.ok, h
	case !o.ok && o.strict && past:
		return true, h
	case !o.ok:
		delete(next.grips, o.token) // somebody who waits may have ended it
		return past, next
	}
	switch o.kind {
	case "renew":
		if past {
			g.offered = uuid.Nil
		}
		g.deadline, g.ttl = later(g.deadline, o.lease.Deadline), max(g.ttl, o.lease.TTL)
		next.grips[o.token] = g
	case "release":
		delete(next.grips, o.token)
	case "offer":
		if past { // it is renewed with that
			g.deadline = o.at.Add(g.ttl)
		}
		g.offered = o.offered
		next.grips[o.token] = g
	case "write":
		return !o.strict || !past, next
	}
	return true, next
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

var holds = porcupine.Model{
	Init: func() any { return hold{grips: make(map[uint64]grip)} },
	Step: func(state, in, _ any) (bool, any) { return state.(hold).step(in.(op)) },
	Equal: func(a, b any) bool {
		return a.(hold).last == b.(hold).last && maps.Equal(a.(hold).grips, b.(hold).grips)
	},
}

// A tape records calls in the order of their beginnings and ends.
type tape struct {
	mu    sync.Mutex
	clock atomic.Int64
	ops   []porcupine.Operation
}

func (t *tape) note(from int64, o op) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ops = append(t.ops, porcupine.Operation{ClientId: len(t.ops), Input: o, Call: from, Return: t.clock.Add(1)})
}

// TestHistoriesAreLinearizable lets 32 clients acquire, shared and several at once and
// of directories, renew, release, revoke, offer, write, pause, die, and send calls
// again, while the daemon crashes. What they were answered could have happened one
// call after the other, and no write was accepted of a holder who was superseded.
func TestHistoriesAreLinearizable(t *testing.T) {
	s := *seed
	if s == 0 {
		s = rand.Uint64()
	}
	accepted, refused, ops := 0, 0, 0
	for i := range *histories {
		t.Run(fmt.Sprint("seed=", s+uint64(i)), func(t *testing.T) {
			inHouse(t, registry.Options{}, func(t *testing.T, h *house) {
				c := &contest{daemon: newDaemon(h)}
				c.play(s + uint64(i))
				accepted += int(c.accepted.Load())
				refused += int(c.refused.Load())
				ops += len(c.ops)
				got, info := porcupine.CheckOperationsVerbose(holds, c.ops, time.Hour)
				if got == porcupine.Illegal {
					explained := len(slices.MaxFunc(info.PartialLinearizations()[0], func(a, b []int) int { return cmp.Compare(len(a), len(b)) }))
					slices.SortFunc(c.ops, func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
					for i, o := range c.ops[:min(explained+5, len(c.ops))] {
						t.Logf("%d: %d to %d: %v", i+1, o.Call, o.Return, o.Input)
					}
					t.Errorf("no order explains what the clients were told after the first %d calls or so", explained)
				}
			})
		})
	}
	t.Logf("-seed=%d -histories=%d: %d calls, %d writes accepted, %d refused", s, *histories, ops, accepted, refused)
	if accepted == 0 || refused == 0 {
		t.Errorf("%d writes were accepted, and %d refused", accepted, refused)
	}
}

// A contest is one history in the making.
type contest struct {
	*daemon
	tape
	accepted, refused atomic.Int64
}

var contested = []registry.Want{
	{Scope: "run:1", Key: "x"},
	{Scope: "layer:1", Key: "y"},
	{Scope: "run:1", Key: "file:s/**"},
	{Scope: "run:1", Key: "file:s/a"},
	{Scope: "run:1", Key: "file:s/b"},
}

func (c *contest) play(seed uint64) {
	const clients, each = 32, 8
	uuid.SetRand(&source{rnd: rand.NewChaCha8([32]byte(fmt.Appendf(nil, "%032d", seed)))})
	defer uuid.SetRand(nil)
	var parties []party
	for i := range clients {
		parties = append(parties, c.party(fmt.Sprint("P", i)))
	}
	stopped := make(chan struct{})
	var crashes, wg sync.WaitGroup
	crashes.Go(func() {
		rnd := rand.New(rand.NewPCG(seed, clients))
		for {
			select {
			case <-stopped:
				return
			case <-time.After(within(rnd, 20*time.Second)):
				from := c.clock.Add(1)
				c.restart()
				c.note(from, op{kind: "restart", at: time.Now()})
			}
		}
	})
	for i := range parties {
		rnd := rand.New(rand.NewPCG(seed, uint64(i)))
		wg.Go(func() {
			time.Sleep(within(rnd, 3*time.Second))
			p, had := parties[i], []registry.Grant(nil)
			for n := 0; n < each && !c.t.Failed(); n++ {
				p, had = c.turn(rnd, p, had, parties)
			}
			c.kill(p)
		})
	}
	wg.Wait()
	close(stopped)
	crashes.Wait()
}

// within is a time that no other is like: what two clients do at one time would go in any
// order, and a seed would say less.
func within(rnd *rand.Rand, most time.Duration) time.Duration {
	return 1 + time.Duration(rnd.Int64N(int64(most)))
}

// A source is where the ids of a history come from, as they are part of the order of rows.
type source struct {
	mu  sync.Mutex
	rnd *rand.ChaCha8
}

func (s *source) Read(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rnd.Read(b)
}

// turn is one thing that a client does, and who goes on with what it has had.
func (c *contest) turn(rnd *rand.Rand, p party, had []registry.Grant, parties []party) (party, []registry.Grant) {
	defer time.Sleep(within(rnd, 1500*time.Millisecond))
	if len(had) == 0 || rnd.IntN(4) == 0 {
		return p, append(had, c.acquires(rnd, p)...)
	}
	g := had[rnd.IntN(len(had))]
	from := c.clock.Add(1)
	o := op{by: p.Holder, token: g.Token, want: registry.Want{Scope: g.Scope, Key: g.Key, Shared: g.Shared}}
	c.do(func() {
		ctx := context.Background()
		o.at = time.Now()
		var err error
		switch what := rnd.IntN(12); {
		case what < 5: // perhaps after a pause
			o.kind, o.strict = "write", rnd.IntN(2) == 0
			o.ok, err = c.write(o)
		case what < 7:
			o.kind = "release"
			o.ok, _, err = c.Release(ctx, p.Holder, g.ID)
		case what < 9:
			o.kind = "renew"
			o.lease, err = c.Renew(ctx, p.Holder, g.ID, 2*time.Second)
			o.ok, err = kept(err)
		case what == 9:
			o.kind = "revoke"
			_, err = c.Registry(g.Scope).Revoke(ctx, registry.Revocation{Key: g.Key, By: "root", Reason: "enough"})
		default:
			var to func(registry.Tx, registry.Lease) (registry.Holder, error) // nil: takes the offer back
			if other := parties[rnd.IntN(len(parties))].Holder; other.Actor != p.Actor {
				to = func(registry.Tx, registry.Lease) (registry.Holder, error) { return other, nil }
				o.offered = other.Actor
			}
			o.kind = "offer"
			_, err = c.Transfer(ctx, p.Holder, g.ID, to)
			o.ok, err = kept(err)
		}
		if err != nil {
			c.t.Errorf("%v: %v", o, err)
		}
	})
	c.note(from, o)
	switch rnd.IntN(10) {
	case 0:
		c.kill(p)
		return c.party(p.Path), nil
	case 1: // a pause
		time.Sleep(within(rnd, 6*time.Second))
	}
	return p, had
}

// kept reports whether an answer says that the lease was still there.
func kept(err error) (ok bool, fault error) {
	var lost *registry.LostError
	if errors.As(err, &lost) || errors.Is(err, registry.ErrNotHolder) {
		return false, nil
	}
	return err == nil, err
}

func (c *contest) kill(p party) {
	from := c.clock.Add(1)
	c.do(func() { c.endSession(p) })
	c.note(from, op{kind: "end", by: p.Holder})
}

// acquires asks for one key or for several, and perhaps once more, as if the answer
// had been lost.
func (c *contest) acquires(rnd *rand.Rand, p party) (list []registry.Grant) {
	var wants []registry.Want
	for _, i := range rnd.Perm(len(contested))[:1+max(0, rnd.IntN(4)-1)] {
		want := contested[i]
		want.Shared = rnd.IntN(3) == 0
		wants = append(wants, want)
	}
	req := registry.Request{Holder: p.Holder, TTL: time.Second + within(rnd, 4*time.Second)}
	if rnd.IntN(4) > 0 {
		req.Wait = within(rnd, 4*time.Second)
	}
	named := call.With(context.Background(), call.Call{Session: p.Session, Name: uuid.NewString()})
	for range 1 + rnd.IntN(2) {
		from := c.clock.Add(1)
		granted, err := c.acquireAll(named, wants, req)
		var held *registry.HeldError
		var wait *registry.WaitError
		var mode *registry.ArgumentError
		var dead *registry.DeadlockError
		switch {
		case err == nil:
			c.note(from, op{kind: "grant", by: p.Holder, grants: granted})
			list = granted
		case errors.As(err, &wait), errors.As(err, &mode), errors.As(err, &dead):
		case errors.As(err, &held):
			if len(wants) == 1 && !held.Reserved && held.Before == "" {
				c.note(from, op{kind: "refused", by: p.Holder, want: wants[0]})
			}
		default:
			c.t.Errorf("%s: %v", p.Path, err)
		}
	}
	return list
}

// acquireAll sends a call again as often as it is cut off.
func (c *contest) acquireAll(ctx context.Context, wants []registry.Want, req registry.Request) (list []registry.Grant, err error) {
	for again := true; again; again = errors.Is(err, call.ErrCutOff) {
		c.do(func() {
			ctx, cancel := context.WithCancelCause(ctx)
			defer cancel(nil)
			stop := context.AfterFunc(c.ctx, func() { cancel(call.ErrCutOff) })
			defer stop()
			list, err = c.AcquireAll(ctx, wants, req)
		})
	}
	return list, err
}

// write writes what needs a lease. It holds the token against that of the last write that was
// accepted, as a resource would that knows nothing else.
func (c *contest) write(o op) (ok bool, err error) {
	need := c.Registry(o.want.Scope).Requirement(o.want.Key, o.token)
	err = c.eng.Update(context.Background(), func(tx engine.Tx) error {
		var stale *registry.StaleError
		if err := (registry.Fence{Leases: []registry.Requirement{need}, Strict: o.strict}).Check(tx); errors.As(err, &stale) {
			c.refused.Add(1)
			return nil
		} else if err != nil {
			return err
		}
		ok = true
		c.accepted.Add(1)
		row := engine.Row{Key: "written/" + o.want.Scope + o.want.Key}
		if was, there := tx.Get(row.Key); there && was.Value > fmt.Sprintf("%20d", o.token) && !o.want.Shared {
			c.t.Errorf("a write with token %d was accepted after %s", o.token, was.Value)
		}
		row.Value = fmt.Sprintf("%20d", o.token)
		tx.Put(row)
		return nil
	})
	return ok, err
}

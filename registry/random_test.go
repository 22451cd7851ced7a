package registry_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine/call"
	"github.com/leasehold/leasehold/registry"
)

var (
	rounds = flag.Int("rounds", 5_000, "operations of TestRandomOperationsAgainstAModel")
	seed   = flag.Uint64("seed", 0, "seed of the random tests; 0: a new one")
)

// keys is how many keys the sessions of the random test contend for.
const keys = 3

// A model is what must be true of a key, told by those who use it. It knows
// nothing of lines or rows: only who was told that they hold, and until when.
type model struct {
	mu   sync.Mutex
	t    *testing.T
	held map[string][]holding
	last map[string]uint64 // the greatest token seen on a key
}

type holding struct {
	by       registry.Holder
	shared   bool
	token    uint64
	deadline time.Time
	freeing  bool // its holder has begun to give it back
}

// find gives the place of a token among those who hold a key, or -1.
func (m *model) find(key string, token uint64) int {
	return slices.IndexFunc(m.held[key], func(h holding) bool { return h.token == token })
}

func (m *model) granted(key string, p party, g registry.Grant) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if i := m.find(key, g.Token); i >= 0 && same(m.held[key][i].by, p.Holder) { // re-entry, or a hand-over told twice
		m.held[key][i].deadline = g.Deadline
		return
	}
	m.held[key] = slices.DeleteFunc(m.held[key], func(was holding) bool {
		if was.shared && g.Shared {
			return false
		}
		if !was.freeing && !g.AcquiredAt.After(was.deadline) {
			m.t.Errorf("%q granted (shared %v) to %v at %v: %v holds it (shared %v) until %v", key, g.Shared, p.Holder, g.AcquiredAt, was.by, was.shared, was.deadline)
		}
		return true
	})
	if g.Token <= m.last[key] && !g.Shared {
		m.t.Errorf("%q granted with token %d after %d", key, g.Token, m.last[key])
	}
	m.last[key] = max(m.last[key], g.Token)
	m.held[key] = append(m.held[key], holding{by: p.Holder, shared: g.Shared, token: g.Token, deadline: g.Deadline})
}

func (m *model) freeing(key string, token uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if i := m.find(key, token); i >= 0 {
		m.held[key][i].freeing = true
	}
}

func (m *model) renewed(key string, l registry.Lease) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if i := m.find(key, l.Token); i >= 0 {
		m.held[key][i].deadline = l.Deadline
	}
}

// A daemon serves operations side by side until it crashes.
type daemon struct {
	*house
	serving chan struct{} // what is under way
	ctx     context.Context
	cut     context.CancelCauseFunc
}

func newDaemon(h *house) *daemon {
	d := &daemon{house: h, serving: make(chan struct{}, 64)}
	d.ctx, d.cut = context.WithCancelCause(context.Background())
	return d
}

// do runs one operation, in which there is no crash.
func (d *daemon) do(op func()) {
	d.serving <- struct{}{}
	defer func() { <-d.serving }()
	op()
}

// restart cuts off what waits, crashes and comes back.
func (d *daemon) restart() {
	d.cut(call.ErrCutOff)
	for range cap(d.serving) {
		d.serving <- struct{}{}
	}
	d.crash()
	d.ctx, d.cut = context.WithCancelCause(context.Background())
	for range cap(d.serving) {
		<-d.serving
	}
}

// acquire sends a call again as often as it is cut off.
func (d *daemon) acquire(ctx context.Context, p party, req registry.Request) (g registry.Grant, err error) {
	for again := true; again; again = errors.Is(err, call.ErrCutOff) {
		d.do(func() {
			ctx, cancel := context.WithCancelCause(ctx)
			defer cancel(nil)
			stop := context.AfterFunc(d.ctx, func() { cancel(call.ErrCutOff) })
			defer stop()
			g, err = p.tryCtx(ctx, req)
		})
	}
	return g, err
}

// TestRandomOperationsAgainstAModel lets sessions acquire, wait, renew,
// release, cancel, send again, let expire and end at random, while the daemon
// crashes now and then and the calls that it cut off are sent again. No key ever has two holders,
// tokens rise, no wait runs to its end while the lease is free (Check, after
// every operation, finds whoever waits for what is free), and nobody is
// granted a lease after its end.
func TestRandomOperationsAgainstAModel(t *testing.T) {
	s := *seed
	if s == 0 {
		s = rand.Uint64()
	}
	rounds := *rounds
	if testing.Short() { // what the race detector looks for is the same in the first of them
		rounds = min(rounds, 1_000)
	}
	t.Logf("-seed=%d -rounds=%d", s, rounds)

	const workers = 10
	inHouse(t, registry.Options{}, func(t *testing.T, h *house) {
		m := &model{t: t, held: make(map[string][]holding), last: make(map[string]uint64)}
		d := newDaemon(h)
		stopped := make(chan struct{})
		var crashes, wg sync.WaitGroup
		crashes.Go(func() {
			rnd := rand.New(rand.NewPCG(s, workers))
			for {
				select {
				case <-stopped:
					return
				case <-time.After(time.Duration(rnd.IntN(40_000)) * time.Millisecond):
					d.restart()
				}
			}
		})
		for w := range workers {
			rnd := rand.New(rand.NewPCG(s, uint64(w)))
			wg.Go(func() {
				p := h.party(fmt.Sprint("W", w))
				for range rounds / workers {
					p = step(d, m, rnd, p, fmt.Sprint(rnd.IntN(keys)))
					d.do(h.check)
				}
				for k := range keys {
					m.freeingAll(fmt.Sprint(k), p.Session)
				}
				d.do(func() { h.endSession(p) })
			})
		}
		wg.Wait()
		close(stopped)
		crashes.Wait()
		h.view(func(tx registry.Tx) {
			if list := held(h, tx); len(list) != 0 {
				t.Errorf("everybody has gone, and this stands: %+v", list)
			}
		})
	})
}

// step is one thing a session does with a key, and the session that goes on.
func step(h *daemon, m *model, rnd *rand.Rand, p party, key string) party {
	own := p
	p = p.as([]string{"", "a", "b"}[rnd.IntN(3)])
	named := call.With(h.t.Context(), call.Call{Session: p.Session, Name: uuid.NewString()})
	ctx, cancel := context.WithCancel(named)
	defer cancel()
	req := registry.Request{
		Key:  key,
		TTL:  time.Second + time.Duration(rnd.IntN(3000))*time.Millisecond,
		Wait: time.Duration(rnd.IntN(4)) * time.Second,

		Shared: rnd.IntN(2) == 0,
	}
	if rnd.IntN(5) == 0 {
		cancelled := time.AfterFunc(time.Duration(rnd.IntN(2000))*time.Millisecond, cancel)
		defer cancelled.Stop()
	}
	g, err := h.acquire(ctx, p, req)
	var wait *registry.WaitError
	var held *registry.HeldError
	var mode *registry.ArgumentError
	var dead *registry.DeadlockError
	switch {
	case errors.As(err, &mode) && !req.Shared, errors.As(err, &dead): // the party shares it, or others wait for it
		return own
	case errors.As(err, &wait) && rnd.IntN(2) == 0:
		if rnd.IntN(2) == 0 {
			req.Ticket = wait.Ticket
		}
		if g, err = h.acquire(ctx, p, req); err != nil {
			return own
		}
	case errors.As(err, &wait), errors.As(err, &held):
		if req.Wait == 0 && wait != nil {
			h.t.Errorf("a call that did not wait says %v", err)
		}
		return own
	case err != nil:
		if !errors.Is(err, context.Canceled) {
			h.t.Errorf("acquire: %v", err)
		}
		m.cancelled(h, key, p)
		return own
	}
	m.granted(key, p, g)
	if rnd.IntN(3) == 0 { // the client has no answer, and asks again
		if again, err := h.acquire(named, p, req); err == nil {
			if again.Token != g.Token && !time.Now().After(g.ExpiresAt) {
				h.t.Errorf("sent again, the call got token %d after %d", again.Token, g.Token)
			}
			g = again
			m.granted(key, p, g)
		}
	}

	time.Sleep(time.Duration(rnd.IntN(1500)) * time.Millisecond)
	switch rnd.IntN(8) {
	case 0: // let it expire
		time.Sleep(time.Until(g.Deadline) + time.Duration(rnd.IntN(3)-1))
	case 1: // die
		m.freeing(key, g.Token)
		for k := range keys { // whatever else it holds goes too
			m.freeingAll(fmt.Sprint(k), p.Session)
		}
		h.do(func() { h.endSession(p) })
		return h.party(p.Path)
	case 5: // the sub-agent ends
		m.freeing(key, g.Token)
		h.do(func() {
			if err := h.EndParty(h.t.Context(), p.Holder); err != nil {
				h.t.Errorf("end of a party: %v", err)
			}
		})
	case 2: // keep it for longer
		h.do(func() {
			if l, err := p.renew(g, 2*time.Second); err == nil {
				m.renewed(key, l)
			}
		})
		time.Sleep(time.Second)
		fallthrough
	default:
		m.freeing(key, g.Token)
		h.do(func() {
			if _, _, err := h.Release(h.t.Context(), p.Holder, g.ID); err != nil {
				h.t.Errorf("release: %v", err)
			}
		})
	}
	return own
}

// cancelled makes sure that a cancelled call has left its party nothing.
func (m *model) cancelled(h *daemon, key string, p party) {
	m.mu.Lock()
	before := slices.ContainsFunc(m.held[key], func(was holding) bool { return same(was.by, p.Holder) })
	m.mu.Unlock()
	if before {
		return // it may have had the lease before
	}
	h.do(func() {
		h.view(func(tx registry.Tx) {
			if l, ok := h.Registry("run:1").Get(tx, key); ok && same(l.Holder, p.Holder) {
				h.t.Errorf("a cancelled call left %+v", l)
			}
		})
	})
}

func same(a, b registry.Holder) bool { return a.Session == b.Session && a.Party == b.Party }

func (m *model) freeingAll(key string, session uuid.UUID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range m.held[key] {
		if m.held[key][i].by.Session == session {
			m.held[key][i].freeing = true
		}
	}
}

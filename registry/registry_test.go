package registry_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/pebble"
	"github.com/leasehold/leasehold/registry"
)

// A house is a core over a real engine on a file system in memory, with its
// due rows tended as the daemon tends them.
type house struct {
	*registry.Core
	t    *testing.T
	fs   *vfs.MemFS
	sync atomic.Int64 // nanoseconds that the disk takes; read by the goroutine that writes the log
	eng  *pebble.Engine
	opts registry.Options
	over endings
	stop context.CancelFunc
	done chan error
}

// inHouse runs a story in a bubble of fake time.
func inHouse(t *testing.T, opts registry.Options, story func(t *testing.T, h *house)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		h := &house{t: t, fs: vfs.NewCrashableMem(), opts: opts}
		h.opts.SessionOpen = func(_ registry.Tx, id uuid.UUID) bool { return !h.over.has(id) }
		h.open()
		defer h.close()
		story(t, h)
	})
}

func (h *house) open() {
	h.t.Helper()
	slow := errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind == errorfs.OpFileSync || op.Kind == errorfs.OpFileSyncData {
			time.Sleep(time.Duration(h.sync.Load()))
		}
		return nil
	})
	eng, err := pebble.Open(pebble.Options{Dir: "state", FS: errorfs.Wrap(h.fs, slow)})
	if err != nil {
		h.t.Fatal(err)
	}
	h.eng = eng
	h.Core = registry.New(eng, h.opts)
	if err := h.Recover(h.t.Context()); err != nil {
		h.t.Fatal(err)
	}
	h.begin()
}

// begin begins to tend.
func (h *house) begin() {
	ctx, stop := context.WithCancel(h.t.Context())
	h.stop, h.done = stop, make(chan error, 1)
	go func() { h.done <- h.tend(ctx) }()
}

// untended tells a part of a story in which calls find what is due before it is tended.
func (h *house) untended(part func()) {
	h.t.Helper()
	h.stop()
	if err := <-h.done; err != nil {
		h.t.Fatal(err)
	}
	part()
	h.begin()
}

func (h *house) tend(ctx context.Context) error {
	for {
		if err := h.eng.WaitDue(ctx); err != nil {
			return nil
		}
		err := h.eng.Update(ctx, func(tx engine.Tx) error {
			for row := range tx.Due() {
				if !h.Tend(tx, row) {
					return errors.New("a due row of nobody")
				}
			}
			return nil
		})
		if err != nil && ctx.Err() == nil {
			return err
		}
	}
}

func (h *house) close() {
	h.t.Helper()
	h.check()
	h.stop()
	if err := <-h.done; err != nil {
		h.t.Fatal(err)
	}
	if err := h.eng.Check(); err != nil {
		h.t.Fatal(err)
	}
	if err := h.eng.Close(); err != nil {
		h.t.Fatal(err)
	}
}

// crash loses what was not synced and opens what is left.
func (h *house) crash() {
	h.t.Helper()
	left := h.fs.CrashClone(vfs.CrashCloneCfg{})
	h.close()
	h.fs = left
	h.open()
}

func (h *house) view(fn func(tx registry.Tx)) {
	h.t.Helper()
	err := h.eng.View(context.Background(), func(tx engine.Tx) error { fn(tx); return nil })
	if err != nil {
		h.t.Fatal(err)
	}
}

// check may run beside a story, which is not to stop in the middle of it: what waits for
// it would wait for ever.
func (h *house) check() {
	h.t.Helper()
	h.view(func(tx registry.Tx) {
		if err := h.Core.Check(tx); err != nil && !h.t.Failed() {
			h.t.Error(err)
		}
	})
}

// endSession ends p's session.
func (h *house) endSession(p party) {
	h.t.Helper()
	err := h.eng.Update(context.Background(), func(tx engine.Tx) error {
		h.over.add(p.Session)
		for !h.EndSession(tx, p.Session, 1<<30) {
		}
		return nil
	})
	if err != nil {
		h.t.Fatal(err)
	}
}

// endings are the sessions that have ended, noted in the transaction that ends
// them: a check between the two would find an ended session's leases.
type endings struct {
	mu  sync.Mutex
	ids map[uuid.UUID]bool
}

func (e *endings) add(id uuid.UUID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ids == nil {
		e.ids = make(map[uuid.UUID]bool)
	}
	e.ids[id] = true
}

func (e *endings) has(id uuid.UUID) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.ids[id]
}

// held is what stands in the scope of the stories.
func held(h *house, tx registry.Tx) []registry.Standing {
	list, _ := h.Registry("run:1").List(tx, "", "", 1000)
	return list
}

// A party is one session at work in a house.
type party struct {
	registry.Holder
	h *house
}

func (h *house) party(path string) party {
	return party{registry.Holder{Session: uuid.New(), Actor: uuid.New(), Path: path}, h}
}

// again is another session of the same actor.
func (p party) again() party {
	p.Session = uuid.New()
	return p
}

func (p party) try(req registry.Request) (registry.Grant, error) {
	return p.tryCtx(p.h.t.Context(), req)
}

func (p party) tryCtx(ctx context.Context, req registry.Request) (registry.Grant, error) {
	req.Holder = p.Holder
	return p.h.Registry("run:1").Acquire(ctx, req)
}

func (p party) acquire(req registry.Request) registry.Grant {
	p.h.t.Helper()
	g, err := p.try(req)
	if err != nil {
		p.h.t.Fatalf("%s acquires %q: %v", p.Path, req.Key, err)
	}
	return g
}

func (p party) release(g registry.Grant) {
	p.h.t.Helper()
	released, why, err := p.h.Release(p.h.t.Context(), p.Holder, g.ID)
	if err != nil || !released {
		p.h.t.Fatalf("%s releases %q: %v %q %v", p.Path, g.Key, released, why, err)
	}
}

func (p party) renew(g registry.Grant, ttl time.Duration) (registry.Lease, error) {
	return p.h.Renew(p.h.t.Context(), p.Holder, g.ID, ttl)
}

// An answer is what a call that was left waiting has come to.
type answer struct {
	registry.Grant
	err error
	at  time.Time
}

// wait starts an acquire and returns once it stands in line.
func (p party) wait(req registry.Request) <-chan answer {
	return p.waitCtx(p.h.t.Context(), req)
}

func (p party) waitCtx(ctx context.Context, req registry.Request) <-chan answer {
	if req.Wait == 0 {
		req.Wait = registry.MaxWait
	}
	c := make(chan answer, 1)
	go func() {
		g, err := p.tryCtx(ctx, req)
		c <- answer{g, err, time.Now()}
	}()
	synctest.Wait()
	return c
}

func mustBe[E error](t *testing.T, err error) (as E) {
	t.Helper()
	if !errors.As(err, &as) {
		t.Fatalf("error is %T (%v), want %T", err, err, as)
	}
	return as
}

func granted(t *testing.T, c <-chan answer) answer {
	t.Helper()
	synctest.Wait()
	select {
	case a := <-c:
		if a.err != nil {
			t.Fatalf("not granted: %v", a.err)
		}
		return a
	default:
		t.Fatal("not granted: still waits")
		panic("unreachable")
	}
}

func waits(t *testing.T, c <-chan answer) {
	t.Helper()
	synctest.Wait()
	select {
	case a := <-c:
		t.Fatalf("answered %+v %v, want it to wait", a.Grant, a.err)
	default:
	}
}

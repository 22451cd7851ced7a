package dispatch_test

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/dispatch/process"
	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/pebble"
	"github.com/leasehold/leasehold/registry"
)

// A house is a State on a real engine, with a file system in memory.
type house struct {
	*dispatch.State
	t     *testing.T
	fs    *vfs.MemFS
	eng   *pebble.Engine
	opts  dispatch.Options
	over  func(engine.Engine) engine.Engine // what the state uses the engine through; nil: nothing
	stop  context.CancelFunc
	tend  chan error
	alive sync.Map // pid → whether its process runs

	family sync.Map // pid → its ancestry, if it has any
}

// inHouse runs a test in a bubble of fake time.
func inHouse(t *testing.T, opts dispatch.Options, story func(t *testing.T, h *house)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		atHome(t, opts, func(h *house) { story(t, h) })
	})
}

// atHome runs a test in real time, or in the caller's bubble.
func atHome(t *testing.T, opts dispatch.Options, story func(h *house)) {
	t.Helper()
	at(&house{t: t, opts: opts}, vfs.NewCrashableMem(), story)
}

// at runs a test with the state in a file system.
func at(h *house, fs *vfs.MemFS, story func(h *house)) {
	h.t.Helper()
	h.fs = fs
	h.opts.Alive = func(p process.Peer) bool { alive, _ := h.alive.Load(p.PID); return alive == true }
	h.opts.Process = func(pid int) process.Running {
		if alive, _ := h.alive.Load(pid); alive != true {
			return process.Running{}
		}
		p := process.Running{Group: pid, Session: pid}
		if from, ok := h.family.Load(pid); ok {
			p = from.(process.Running)
		}
		p.PID, p.Start = pid, cmp.Or(p.Start, "1")
		return p
	}
	h.open()
	defer h.close()
	story(h)
}

func (h *house) open() {
	h.t.Helper()
	h.openAt("state", h.fs)
}

// openAt opens the state in a directory of a file system.
func (h *house) openAt(dir string, fs vfs.FS) {
	h.t.Helper()
	var err error
	if h.eng, err = pebble.Open(pebble.Options{Dir: dir, FS: fs}); err != nil {
		h.t.Fatal(err)
	}
	eng := engine.Engine(h.eng)
	if h.over != nil {
		eng = h.over(eng)
	}
	if h.State, err = dispatch.Open(h.t.Context(), eng, h.opts); err != nil {
		h.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	h.stop, h.tend = stop, make(chan error, 1)
	go func(s *dispatch.State) { h.tend <- s.Tend(ctx) }(h.State)
}

func (h *house) close() {
	h.t.Helper()
	if err := h.Check(context.Background()); err != nil {
		h.t.Error(err)
	}
	h.stop()
	if err := <-h.tend; err != nil {
		h.t.Error(err)
	}
	if err := errors.Join(h.eng.Check(), h.eng.Close()); err != nil {
		h.t.Error(err)
	}
}

// crash kills the daemon and starts it again.
func (h *house) crash() {
	h.t.Helper()
	h.reopen(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(1, 1))})
}

// powerCut ends the machine: unsynced data and all processes are gone.
func (h *house) powerCut() {
	h.t.Helper()
	for pid := range 1000 {
		h.alive.Store(pid, false)
	}
	h.reopen(vfs.CrashCloneCfg{})
}

func (h *house) reopen(left vfs.CrashCloneCfg) {
	h.t.Helper()
	fs := h.fs.CrashClone(left)
	h.close()
	h.fs = fs
	h.open()
}

func (h *house) add(role dispatch.Role, parent, name string) (dispatch.Actor, string) {
	h.t.Helper()
	a, token, err := h.AddActor(h.t.Context(), dispatch.NewActor{Run: "r", Name: name, Role: role, Parent: parent})
	if err != nil {
		h.t.Fatalf("add %s below %q: %v", name, parent, err)
	}
	return a, token
}

func (h *house) connect(c dispatch.Credentials, pid int) *dispatch.Session {
	h.t.Helper()
	peer := process.Peer{PID: pid, Start: "1", Transport: "unix"}
	h.alive.Store(pid, true)
	se, err := h.Connect(h.t.Context(), c, peer)
	if err != nil {
		h.t.Fatalf("connect: %v", err)
	}
	return se
}

// member adds an actor and connects it.
func (h *house) member(role dispatch.Role, parent, name string, pid int) *dispatch.Session {
	h.t.Helper()
	_, token := h.add(role, parent, name)
	return h.connect(dispatch.Credentials{Token: token}, pid)
}

var errGone = errors.New("gone")

func (h *house) hangUp(se *dispatch.Session) {
	h.t.Helper()
	if err := se.Close(errGone); err != nil {
		h.t.Fatal(err)
	}
}

func (h *house) take(se *dispatch.Session, scope dispatch.Scope, key string, ttl time.Duration) registry.Grant {
	h.t.Helper()
	g, err := se.Acquire(h.t.Context(), scope, registry.Request{Key: key, TTL: ttl})
	if err != nil {
		h.t.Fatalf("%s takes %q: %v", se.Actor().Path, key, err)
	}
	return g
}

func (h *house) heldBy(se *dispatch.Session, scope dispatch.Scope, key string) string {
	h.t.Helper()
	page, err := se.Leases(h.t.Context(), dispatch.LeaseQuery{Scopes: []dispatch.Scope{scope}, Prefix: key})
	if err != nil {
		h.t.Fatal(err)
	}
	if len(page.Leases) == 0 {
		return ""
	}
	return page.Leases[0].Holder.Path
}

func peerOf(h *house, pid int) process.Peer {
	h.alive.Store(pid, true)
	return process.Peer{PID: pid, Start: "1", Transport: "unix"}
}

func request(key string, wait time.Duration) registry.Request {
	return registry.Request{Key: key, TTL: time.Minute, Wait: wait}
}

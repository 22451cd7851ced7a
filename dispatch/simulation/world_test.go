package simulation

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/dispatch/process"
	"github.com/leasehold/leasehold/engine/clock"
)

// A world is one simulation: a machine with a daemon, and clients.
type world struct {
	t       *testing.T
	seed    uint64
	again   string // how to run it again
	house   *house // its servers, or nil if it has a daemon
	began   time.Time
	history history
	clients []*client
	pace

	mu      sync.Mutex
	d       *daemon // nil while none runs
	fs      *vfs.MemFS
	disk    disk
	boot    int           // lives of the machine
	booted  time.Duration // the reading of its clock when this life began
	asleep  time.Duration // how long it has slept, in which Go's clock stood still
	sleptAt time.Duration
	sleeps  []time.Duration // when each began; also when a server was paused
	set     time.Duration   // by how much its wall clock was set
	setAt   time.Duration   // when that was last
	alive   map[int]bool    // processes of clients on this machine, by pid
	pids    int
	crashes int
	log     []string
	faults  map[string]bool // sorts of faults that were found
}

// A pace is how fast a world is.
type pace struct {
	second time.Duration // what its clients take for one
	heldUp time.Duration // how late an answer may be
	inLine time.Duration // who asks by so much later is behind in line
	grace  time.Duration // whoever is not heard of for so long is dead
	awaits bool          // whether that is awaited only where somebody is missed
	hides  time.Duration // a fault so long after a call was given up may keep that from being known
}

// bubble is the pace of fake time. Nothing takes longer here than some syncs: a call
// that does waits for somebody who should not hold it up, such as a client that reads
// nothing.
var bubble = pace{second: time.Second, heldUp: 300 * time.Millisecond, inLine: time.Millisecond, grace: 10 * time.Second}

// now is the time by a clock that goes on during a sleep and that nobody sets.
// It is what clients measure by, and all instants of a history are its.
func (w *world) now() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Since(w.began) + w.asleep
}

// clock is what a daemon reads time from.
func (w *world) clock() clock.Clock {
	w.mu.Lock()
	boot, booted := w.boot, w.booted
	w.mu.Unlock()
	return clock.Clock{
		Boot:    fmt.Sprint("boot ", boot),
		Running: func() time.Duration { return w.now() - booted },
		Wall: func() time.Time {
			w.mu.Lock()
			defer w.mu.Unlock()
			return time.Now().Add(w.asleep + w.set)
		},
		Sleeps: true,
	}
}

// note keeps what happened, for whoever looks into a failure.
func (w *world) note(format string, args ...any) {
	at := w.now()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.log = append(w.log, fmt.Sprintf("%10.3f  ", at.Seconds())+fmt.Sprintf(format, args...))
}

// fault notes that something is not as it must be.
func (w *world) fault(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	w.note("FAULT %s", text)
	w.mu.Lock()
	first, more := len(w.faults) == 0, !w.faults[format]
	w.faults[format] = true
	w.mu.Unlock()
	switch {
	case first:
		w.t.Errorf("%s\nagain: go test ./dispatch/simulation %s", text, w.again)
	case more: // once of each sort
		w.t.Errorf("%s", text)
	}
}

// closed reports whether the servers are gone for good.
func (w *world) closed() bool { return w.house != nil && w.house.closed.Load() }

func (w *world) daemon() *daemon {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.d
}

// start starts the daemon.
func (w *world) start() bool {
	full := w.disk.full(w.now())
	d, err := startDaemon(w.fs, &w.disk, w.clock(), w.lives, w.fault)
	if full && errors.Is(err, syscall.ENOSPC) {
		w.note("the daemon does not start: %v", err)
		return false
	}
	if err != nil {
		w.fault("the daemon does not start: %v", err)
		return false
	}
	now := w.now()
	w.mu.Lock()
	w.d = d
	w.mu.Unlock()
	w.history.mu.Lock()
	if n := len(w.history.gaps); n > 0 {
		w.history.gaps[n-1].to = now
	}
	w.history.mu.Unlock()
	w.note("the daemon serves")
	return true
}

// kill ends the daemon's process.
func (w *world) kill() {
	w.note("the daemon is killed")
	w.fs = w.gone().kill(crash{kept: 100}, w.crash())
}

// crash has what a crash decides by chance: how much depends on what is written.
func (w *world) crash() *rand.Rand {
	w.crashes++
	return rand.New(rand.NewPCG(w.seed, 1<<32+uint64(w.crashes)))
}

// cut ends the machine. Its clock begins anew.
func (w *world) cut() {
	rnd := w.crash()
	kept := rnd.IntN(3) * 50
	w.note("the power is cut; %d percent of what was not synced is there", kept)
	w.fs = w.gone().kill(crash{kept}, rnd)
	at := w.now()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.boot++
	w.booted = at
}

// gone takes the daemon from those who look for it.
func (w *world) gone() *daemon {
	now := w.now()
	w.history.mu.Lock()
	w.history.gaps = append(w.history.gaps, gap{from: now})
	w.history.mu.Unlock()
	w.mu.Lock()
	defer w.mu.Unlock()
	d := w.d
	w.d = nil
	return d
}

// sleep lets the machine sleep: all clocks of the machine go on, and no timer.
func (w *world) sleep(d time.Duration) {
	w.note("the machine sleeps for %v", d)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sleeps = append(w.sleeps, time.Since(w.began)+w.asleep)
	w.asleep += d
	w.sleptAt = time.Since(w.began) + w.asleep
}

// rest lets d pass, and a little more: whoever rests in another place goes on at
// another instant. The goroutines of one instant run in any order.
func (w *world) rest(place int, d time.Duration) {
	const instant, places = 100 * time.Nanosecond, 16
	at := time.Since(w.began) + d
	at = at.Truncate(places*instant) + places*instant + time.Duration(place)*instant
	time.Sleep(at - time.Since(w.began))
}

// slept reports whether the machine has slept since.
func (w *world) slept(since time.Duration) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.sleptAt >= since
}

// step sets the wall clock.
func (w *world) step(by time.Duration) {
	w.note("the wall clock is set by %v", by)
	at := w.now()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.set, w.setAt = w.set+by, at
}

// lives reports whether a client's process runs.
func (w *world) lives(p process.Peer) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return p.PID == 0 || w.alive[p.PID]
}

// process starts a process.
func (w *world) process() process.Peer {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pids++
	w.alive[w.pids] = true
	return process.Peer{PID: w.pids, Start: fmt.Sprint("start ", w.pids), Transport: "unix"}
}

// lingers reports whether a client of that name has died, and its server may still wait
// for it to come back, with its places in line; see haunted.
func (w *world) lingers(name string) bool {
	now := w.now()
	return slices.ContainsFunc(w.clients, func(c *client) bool {
		died := time.Duration(c.died.Load())
		switch {
		case c.name != name || died == 0:
			return false
		case c.kind == byServer:
			return now < died+w.grace+kept
		}
		w.history.mu.Lock()
		defer w.history.mu.Unlock()
		return w.history.beside(w, died, died)
	})
}

// run is the run of all clients.
const run = "r"

// actor makes an actor.
func (w *world) actor(name string) (token string) {
	role := dispatch.Worker
	if name == "root" {
		role = dispatch.Root
	}
	_, token, err := w.d.state.AddActor(w.t.Context(), dispatch.NewActor{Run: run, Name: name, Role: role})
	if err != nil {
		w.t.Fatal(err)
	}
	return token
}

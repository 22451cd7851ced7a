package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/leasehold/leasehold/cmd/leasehold/internal/place"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/shim"
)

const cancelledAcquires = 500

// An acquire that is cancelled around its grant leaves nothing held, whatever
// the instant, through a shim too: before it reaches the daemon, or while its
// answer is on its way back. An answer that the client sees is its own to release,
// also if it has cancelled just before: by then it may have had it for a while.
func TestNoCancelledAcquireLeavesItsLeaseHeldThroughAShim(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	newDir(t)
	startDaemon(t)
	s, _ := startShim(t, "--name", "canceller")
	s.handshake()

	var mu sync.Mutex
	seen := make(map[string]string) // lease_id by request
	caughtUp, ended := make(chan struct{}, 1), make(chan struct{})
	go func() {
		defer close(ended)
		for line := range s.lines {
			var r reply
			if err := json.Unmarshal([]byte(line), &r); err != nil || r.Result.IsError || r.Error != nil {
				t.Errorf("answer: %v %s", err, line)
				return
			}
			if string(r.ID) == "-1" {
				caughtUp <- struct{}{}
				continue
			}
			mu.Lock()
			if id := string(r.ID); r.Result.StructuredContent.LeaseID != "" {
				seen[id] = r.Result.StructuredContent.LeaseID
			}
			mu.Unlock()
		}
	}()
	catchUp := func() {
		t.Helper()
		s.call(-1, "lease_list", `{}`)
		select {
		case <-caughtUp:
		case <-ended:
			t.Fatal("the shim has ended")
		}
	}
	for n := 1; n <= cancelledAcquires; n++ {
		if n%50 == 0 { // so that a slow daemon has never more calls under way than it takes
			catchUp()
		}
		s.call(n, "run_lease_acquire", fmt.Sprintf(`{"key":"k%d","ttl_secs":3600,"wait_secs":50}`, n))
		time.Sleep(time.Duration(rng.IntN(600)) * time.Microsecond) // up to about the time of a call
		mu.Lock()
		_, had := seen[fmt.Sprint(n)]
		mu.Unlock()
		if !had {
			s.send(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}`, n))
		}
	}
	catchUp()
	mu.Lock()
	answered := maps.Clone(seen)
	mu.Unlock()
	t.Logf("%d were answered before they were cancelled", len(answered))
	sent := 0
	for n, lease := range answered {
		if sent++; sent%50 == 0 {
			catchUp()
		}
		s.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":"r%s","method":"tools/call","params":{"name":"run_lease_release","arguments":{"lease_id":%q}}}`, n, lease))
	}
	catchUp()

	// A key that somebody holds is not free within the wait.
	checker, _ := startShim(t, "--name", "checker")
	checker.handshake()
	for n := 1; n <= cancelledAcquires; n++ {
		checker.call(n, "run_lease_acquire", fmt.Sprintf(`{"key":"k%d","wait_secs":50}`, n))
		if r := checker.answer(n); r.Result.IsError {
			t.Fatalf("key %d is still held: %s", n, r.Result.StructuredContent.Message)
		}
	}
}

// What a client cancels long after it has read the answer stays: some do so with
// every call, at the end of the step in which they made it.
func TestACancelLongAfterTheAnswerUndoesNothing(t *testing.T) {
	t.Parallel()
	newDir(t)
	startDaemon(t)
	s, _ := startShim(t, "--name", "late")
	s.handshake()
	s.call(1, "run_lease_acquire", `{"key":"k"}`)
	s.answer(1)
	time.Sleep(200 * time.Millisecond)
	s.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
	s.call(2, "run_lease_acquire", `{"key":"k"}`)
	if r := s.answer(2); !r.Result.StructuredContent.Reentrant {
		t.Errorf("the lease is gone: %+v", r.Result.StructuredContent)
	}
}

// What the client cancels while its daemon is away, or while it ends, leaves nothing held
// either. The daemon did not hear of the cancel, and its answer was lost with it, so the
// next one keeps the grant for a shim that sends the call again.
func TestACancelIsNotLostWithTheDaemon(t *testing.T) {
	t.Parallel()
	for _, heard := range []bool{false, true} {
		t.Run(fmt.Sprintf("the daemon was there: %v", heard), func(t *testing.T) {
			newDir(t)
			daemon := startDaemon(t)
			d := newDetour(t)
			s := runShim(t, shim.Config{Target: place.Target{Socket: d.addr, Named: true, State: target(t).State}, Run: "r", Name: "canceller"})
			s.handshake()
			s.call(1, "kv_set", `{"path":"/shared/x","value":1}`)
			s.answer(1)

			end := func() {
				daemon.Process.Kill()
				daemon.Wait()
				d.cut()
			}
			d.lose()
			s.call(2, "run_lease_acquire", `{"key":"k","ttl_secs":3600}`)
			d.awaitAnswer()
			if !heard {
				end()
			}
			s.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}`)
			if heard {
				d.awaitRequest(`notifications/cancelled`)
				end()
			}
			startDaemon(t)
			d.open()
			s.call(3, "kv_get", `{"path":"/shared/x"}`)
			s.answer(3)

			other := runShim(t, shim.Config{Target: target(t), Run: "r", Name: "other"})
			other.handshake()
			other.call(1, "run_lease_acquire", `{"key":"k","wait_secs":20}`)
			if r := other.answer(1); r.Result.IsError {
				t.Errorf("it is still held: %s", r.Result.StructuredContent.Message)
			}
		})
	}
}

// A detour is a way to the daemon of a test that can lose what comes along.
type detour struct {
	t        *testing.T
	addr     string
	daemon   string
	requests chan string // that did not get through
	answers  chan string

	mu    sync.Mutex
	conns []net.Conn
	shut  bool
	loses bool
}

func newDetour(t *testing.T) *detour {
	t.Helper()
	d := &detour{t: t, addr: inDir(t, "detour"), daemon: inDir(t, "s"), requests: make(chan string, 100), answers: make(chan string, 100)}
	ln, err := net.Listen("unix", d.addr)
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			near, err := ln.Accept()
			if err != nil {
				return
			}
			all.Go(func() { d.serve(near) })
		}
	})
	t.Cleanup(func() { ln.Close(); d.cut(); all.Wait() })
	return d
}

func (d *detour) serve(near net.Conn) {
	defer near.Close()
	far, err := net.Dial("unix", d.daemon)
	if err != nil {
		return
	}
	defer far.Close()
	d.mu.Lock()
	if d.shut {
		d.mu.Unlock()
		return
	}
	d.conns = append(d.conns, near, far)
	d.mu.Unlock()
	var both sync.WaitGroup
	both.Go(func() { d.pass(far, near, d.requests) })
	both.Go(func() { d.pass(near, far, d.answers) })
	both.Wait()
}

// pass passes lines on. While the detour loses them, the first request gets through, and
// no answer does.
func (d *detour) pass(to, from net.Conn, lost chan string) {
	defer to.Close()
	lines := bufio.NewReader(from)
	for first := true; ; {
		line, err := lines.ReadString('\n')
		if err != nil {
			return
		}
		d.mu.Lock()
		loses := d.loses
		d.mu.Unlock()
		if loses && (lost == d.answers || !first) {
			lost <- line
			continue
		}
		first = first && !loses
		if _, err := to.Write([]byte(line)); err != nil {
			return
		}
	}
}

func (d *detour) lose() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.loses = true
}

// cut breaks all connections and lets nobody through, until open.
func (d *detour) cut() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.shut = true
	for _, nc := range d.conns {
		nc.Close()
	}
	d.conns = nil
}

func (d *detour) open() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.shut, d.loses = false, false
}

func (d *detour) awaitRequest(what string) {
	d.t.Helper()
	for line := range d.requests {
		if strings.Contains(line, what) {
			return
		}
	}
}

func (d *detour) awaitAnswer() { <-d.answers }

package simulation

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/leasehold/leasehold/registry"
)

var (
	theSeed = flag.Uint64("simulation.seed", 0, "the seed to run; 0: those from 1 on")
	seeds   = flag.Int("simulation.seeds", 200, "how many seeds TestSimulation runs")
	first   = flag.Uint64("simulation.first", 1, "the first of them")
	times   = flag.Int("simulation.times", 1, "how often it runs each: goroutines take turns as they like")
	lasts   = flag.Duration("simulation.for", 0, "run seeds for as long as this instead, from a random one on")
	verbose = flag.Bool("simulation.v", false, "print what happened also where nothing is wrong")
)

// TestSimulation runs one simulation for each seed.
func TestSimulation(t *testing.T) {
	switch {
	case *theSeed != 0:
		for range *times {
			simulate(t, *theSeed)
		}
	case *lasts > 0:
		end := time.Now().Add(*lasts)
		for seed := rand.Uint64() >> 1; time.Now().Before(end) && !t.Failed(); seed++ {
			simulate(t, seed)
		}
	default:
		if testing.Short() {
			*seeds = min(*seeds, 20)
		}
		for n := range *seeds {
			for range *times {
				t.Run(fmt.Sprint(*first+uint64(n)), func(t *testing.T) {
					t.Parallel()
					simulate(t, *first+uint64(n))
				})
			}
		}
	}
}

// simulate runs one simulation.
func simulate(t *testing.T, seed uint64) {
	synctest.Test(t, func(t *testing.T) {
		again := fmt.Sprintf("-run Simulation -simulation.seed=%d -simulation.times=20", seed)
		w := &world{t: t, seed: seed, again: again, pace: bubble, began: time.Now(), fs: vfs.NewCrashableMem(), disk: disk{left: plenty}, alive: make(map[int]bool), faults: make(map[string]bool)}
		defer func() {
			if len(w.faults) > 0 || *verbose {
				text := strings.Join(w.log, "\n")
				if file := os.Getenv("SIMULATION_LOG"); file != "" {
					_ = os.WriteFile(fmt.Sprint(file, ".", seed), []byte(text), 0o600)
				}
				if *verbose {
					t.Log("\n" + text)
				}
			}
		}()
		w.simulate()
	})
}

// A client does so many things.
const things = 40

// kinds are the clients of a world.
var kinds = []kind{bySocket, bySocket, bySocket, bySocket, byHTTP, byRequest}

func (w *world) simulate() {
	if !w.start() {
		return
	}
	w.actor("root")
	fate := &fate{w: w, rnd: rand.New(rand.NewPCG(w.seed, 0))}
	for n, k := range kinds {
		w.clients = append(w.clients, newClient(w, n, k))
	}
	fate.clients = w.clients

	over := make(chan struct{})
	var fated, busy sync.WaitGroup
	fated.Go(func() { fate.run(over) })
	for _, c := range w.clients {
		busy.Go(func() {
			for range things {
				c.act()
			}
		})
	}
	busy.Wait()
	close(over)
	fated.Wait()

	w.settle()
	time.Sleep(w.grace) // for those whose connections were lost
	if err := w.gone().stop(); err != nil {
		w.fault("the daemon ends: %v", err)
	}
	w.history.check(w)
}

// settle lets all clients give back what they have, and compares what they were told
// with the daemon's state.
func (w *world) settle() {
	if !w.awaits {
		time.Sleep(w.grace) // until the grace of clients that may count as dead has passed
	}
	for _, c := range w.clients {
		c.finishAll()
	}
	time.Sleep(w.second)
	for _, c := range w.clients {
		c.list()
		c.list() // the second answer has what the first may have left out
	}
	w.account(w.clients[0])
	for end := w.now() + w.grace; w.awaits && len(w.history.untold()) > 0 && w.now() < end; {
		time.Sleep(w.second)
		for _, c := range w.clients {
			c.list()
		}
	}
	for _, c := range w.clients {
		c.end()
	}
}

// act is one thing that a client does.
func (c *client) act() {
	c.rest(time.Duration(c.jitter(1500)) * c.w.second / 1000)
	key := fmt.Sprint("key", c.jitter(3))
	ttl := max(registry.MinTTL, time.Duration(2+c.jitter(20))*c.w.second)
	var giveUp time.Duration
	if c.jitter(6) == 0 {
		giveUp = time.Duration(c.jitter(5000)+1) * time.Microsecond // within a commit
		if c.jitter(3) == 0 {
			giveUp *= 1000
		}
	}
	breaks := c.jitter(2) == 0
	as := []string{"", "", "", "a", "b"}[c.jitter(5)]
	switch n := c.jitter(27); {
	case n < 4:
		c.acquire(key, as, ttl, 0, c.kind.bridges() && c.jitter(5) == 0, giveUp, breaks)
	case n < 8:
		c.acquire(key, as, ttl, time.Duration(1+c.jitter(12))*c.w.second, false, giveUp, breaks)
	case n == 8:
		if c.jitter(3) == 0 {
			c.greed(key, ttl)
		} else {
			c.inParallel(4, func(int) { c.acquire(key, as, ttl, 5*c.w.second, false, 0, false) })
		}
	case n < 12:
		c.release(giveUp)
	case n < 14:
		c.renew()
	case n == 14:
		c.list()
	case n == 15:
		c.set()
	case n < 18:
		c.enqueue(giveUp, breaks)
	case n == 24:
		c.endParty([]string{"a", "b"}[c.jitter(2)])
	case n == 25:
		c.large(c.jitter(2) == 0)
	case n == 26:
		c.listen(c.jitter(3) > 0)
	case n < 21:
		_, _ = c.claim(time.Duration(c.jitter(2)*c.jitter(5))*c.w.second, 1+c.jitter(2), giveUp, breaks)
	default:
		c.finish([]string{"task_submit", "task_submit", "task_nack", "task_abandon", "task_heartbeat"}[c.jitter(5)])
	}
}

// inParallel makes n calls at once.
func (c *client) inParallel(n int, call func(i int)) {
	var calls sync.WaitGroup
	for i := range n {
		calls.Go(func() { call(i) })
	}
	calls.Wait()
}

// greed asks for as much as the daemon may take: the others must not feel it.
func (c *client) greed(key string, ttl time.Duration) {
	c.w.note("%s is greedy", c.name)
	c.inParallel(90, func(i int) {
		switch i % 3 {
		case 0:
			_, _ = c.call("kv_list", map[string]any{"glob": "/**"}, 0, false)
		case 1:
			_, _ = c.call("lease_list", map[string]any{"scope": "all"}, 0, false)
		default:
			c.acquire(key, fmt.Sprint("greedy", i), ttl, c.w.second, false, 0, false)
		}
	})
}

// finishAll gives back all that the client knows it has.
func (c *client) finishAll() {
	for c.release(0) {
	}
	for c.finish("task_submit") {
	}
}

// end ends the client.
func (c *client) end() {
	c.leave()
	if c.http != nil {
		c.http.cut()
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.socket != nil {
		c.socket.close()
	}
}

// account holds the tasks that there are against those that were made.
func (w *world) account(c *client) {
	sum := func() (all, claimed, left int) {
		got, err := c.call("queue_stats", map[string]any{}, 0, false)
		if err != nil || got.IsError {
			w.fault("queue_stats: %v %s", err, got.StructuredContent)
			return
		}
		var stats struct {
			Queues []struct {
				Ready, Delayed, Completed, Failed, Dead, Cancelled int
				InProgress                                         int `json:"in_progress"`
			}
		}
		got.into(&stats)
		for _, q := range stats.Queues {
			all += q.Ready + q.Delayed + q.InProgress + q.Completed + q.Failed + q.Dead + q.Cancelled
			claimed += q.InProgress
			left += q.Ready + q.Delayed
		}
		return all, claimed, left
	}
	all, claimed, _ := sum()
	for end := w.now() + w.grace; w.awaits && claimed > 0 && w.now() < end; {
		time.Sleep(w.second)
		all, claimed, _ = sum()
	}
	if claimed > 2*w.history.hidden(w, "", "")+w.history.haunted(w) { // a call claims two
		w.noteTasks(c)
		w.fault("%d tasks are claimed, and no client knows of it", claimed)
	}
	least, most := 0, 0
	for _, m := range w.history.made {
		switch {
		case m.answered:
			least++
			most++
		case m.cancelled && len(m.ids) == 0:
		default:
			most++
		}
	}
	if all < least || all > most {
		w.noteTasks(c)
		w.fault("%d tasks were enqueued, perhaps %d, and there are %d", least, most, all)
	}
	for idle := 0; ; {
		_, _, left := sum()
		if left == 0 {
			return
		}
		n, err := c.claim(50*time.Second, 10, 0, false)
		if n > 0 {
			idle = 0
		} else if idle++; idle > 30 {
			w.fault("%d tasks cannot be claimed: %v", left, err)
			return
		}
		for c.finish("task_submit") {
		}
	}
}

// noteTasks notes what the daemon knows of the tasks that are not finished.
func (w *world) noteTasks(c *client) {
	for _, m := range w.history.made {
		for id := range m.ids {
			if got, err := c.call("task_get", map[string]any{"task_id": id}, 0, false); err != nil || !strings.Contains(string(got.StructuredContent), `"completed"`) {
				w.note("%s: %v %s", m.payload, err, got.StructuredContent)
			}
		}
	}
}

// A fate is what happens to clients and the daemon.
type fate struct {
	w       *world
	rnd     *rand.Rand
	clients []*client
	reads   sync.WaitGroup // of clients that read nothing for a while
}

func (f *fate) pause(over <-chan struct{}, limit time.Duration) bool {
	f.w.rest(0, time.Duration(f.rnd.Int64N(int64(limit))))
	select {
	case <-over:
		return false
	default:
		return true
	}
}

func (f *fate) run(over <-chan struct{}) {
	// Not every simulation has everything: what follows a single fault is
	// seen best alone.
	gentle := f.rnd.IntN(3)
	fills := f.rnd.IntN(3) == 0
	defer f.reads.Wait()
	for f.pause(over, 12*time.Second) {
		c := f.clients[f.rnd.IntN(len(f.clients))]
		switch n := f.rnd.IntN(12); {
		case n < 3 && gentle != 1:
			f.w.kill()
			f.restart()
		case n == 3 && gentle == 2:
			f.blackout()
		case n < 6 && gentle != 1:
			c.cut()
		case n == 6 && gentle != 1:
			c.die(false)
		case n == 7:
			f.w.step(time.Duration(f.rnd.IntN(3)-1) * time.Hour)
		case n == 8 && fills:
			f.fill(over, gentle == 1)
		case n == 8 && gentle == 2:
			f.w.sleep(time.Duration(1+f.rnd.IntN(100)) * time.Second)
		case n > 9 && gentle != 1:
			c.strand(time.Duration(f.rnd.IntN(2000))*time.Millisecond, time.Duration(f.rnd.IntN(4000))*time.Millisecond)
		case n == 9:
			c.deafen(time.Duration(f.rnd.IntN(20))*time.Second, &f.reads)
		}
	}
}

// fill makes the disk full for a while. There may be no room at all: then the store's
// reserve must be enough.
func (f *fate) fill(over <-chan struct{}, gentle bool) {
	left := int64(f.rnd.IntN(2)) * 40 << 20
	f.w.note("the disk has %d MiB left", left>>20)
	f.w.disk.room(left, f.w.now())
	for range f.rnd.IntN(4) {
		f.pause(over, 10*time.Second)
		switch c := f.clients[f.rnd.IntN(len(f.clients))]; {
		case gentle:
		case f.rnd.IntN(2) == 0:
			c.cut()
		default:
			if f.w.daemon() != nil { // nil if the daemon did not start again
				f.w.kill()
			}
			f.restart()
		}
	}
	f.w.note("the disk has room")
	f.w.disk.room(plenty, f.w.now())
	if f.w.daemon() == nil {
		f.restart()
	}
	time.Sleep(2 * time.Second) // so that the store has a reserve again when the disk is next full
}

// restart starts the daemon again after a while. Clients at the socket reconnect by
// themselves, as a shim does.
func (f *fate) restart() {
	f.w.rest(0, time.Duration(f.rnd.IntN(3000))*time.Millisecond)
	if !f.w.start() {
		return
	}
	var back sync.WaitGroup
	for _, c := range f.clients {
		if c.kind == bySocket {
			back.Go(func() {
				c.rest(0)
				_, _, _ = c.connect()
			})
		}
	}
	back.Wait()
}

// blackout cuts the power. The clients of this machine come back after it. No machine
// starts within a second, and the engine relies on it: its clock goes on by a second at
// least, so that it is not behind what was stored. If the wall clock was set just before,
// nobody can tell that from time in which the machine was off, unless the daemon had
// a second to notice it.
func (f *fate) blackout() {
	if noticed := f.w.setAt + 2*f.w.second; f.w.setAt > 0 && f.w.now() < noticed {
		f.w.rest(0, noticed-f.w.now())
	}
	f.w.cut()
	time.Sleep(f.w.second)
	for _, c := range f.clients {
		if c.kind == bySocket {
			c.die(true)
		}
	}
	f.restart()
}

// cut cuts the client's connections.
func (c *client) cut() {
	c.w.note("the connections of %s break", c.name)
	c.mu.Lock()
	c.disturbs++
	if c.kind.bridges() {
		defer c.mu.Unlock()
		if c.socket != nil {
			c.session.end(c.w.now())
			c.socket.close()
		}
		return
	}
	c.mu.Unlock()
	c.doubted(c.w.now())
	c.http.cut()
}

// die ends the client's process and starts another.
func (c *client) die(dark bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.kind.bridges() {
		return
	}
	c.w.note("%s dies", c.name)
	c.disturbs++
	c.w.mu.Lock()
	c.w.alive[c.peer.PID] = false
	c.w.mu.Unlock()
	c.peer = c.w.process()
	c.session.end(c.w.now())
	if c.session != nil {
		c.session.dark = c.session.dark || dark
		c.session.kept = c.w.hides > 0 && c.kind == bySocket
	}
	c.died.Store(int64(c.w.now()))
	c.w.history.mu.Lock()
	c.w.history.deaths = append(c.w.history.deaths, death{c.w.now(), len(c.claims)})
	c.w.history.mu.Unlock()
	c.handle = ""
	if c.socket != nil {
		c.socket.close()
	}
}

// deafen lets a client read nothing for a while, and ask for more than its
// connection can buffer.
func (c *client) deafen(d time.Duration, reads *sync.WaitGroup) {
	c.mu.Lock()
	link := c.socket
	c.disturbs++
	if link != nil && c.session != nil {
		c.w.note("%s reads nothing for %v", c.name, d)
		c.deaf = true
		if c.doubt < 0 {
			c.doubt = c.w.now()
		}
	}
	c.mu.Unlock()
	if link == nil {
		return
	}
	link.listen(false)
	for range 3 {
		reads.Go(func() { c.large(false) })
	}
	c.w.rest(0, d)
	link.listen(true)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.disturbs++ // whatever was asked meanwhile was late too
	c.deaf, c.broke = false, c.w.now()
}

package simulation

import (
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/leasehold/leasehold/dispatch"
	mcp "github.com/leasehold/leasehold/dispatch/client"
	"github.com/leasehold/leasehold/dispatch/process"
	door "github.com/leasehold/leasehold/dispatch/server"
	"github.com/leasehold/leasehold/engine/postgres/postgrestest"
)

var (
	clusterSeed = flag.Uint64("cluster.seed", 0, "the seed of TestServers; 0: a new one")
	clusterFor  = flag.Duration("cluster.for", 0, "run rounds of TestServers for as long as this, with pauses of servers, instead of a short one")
	clusterOver = flag.Int("cluster.partitions", 4, "over how many partitions the runs are spread")
	clusterRuns = flag.Int("cluster.runs", 2, "how many runs there are in a round, each with six clients")
)

// realTime is the pace of real time. The machine may have much else to do.
var realTime = pace{second: 100 * time.Millisecond, heldUp: 30 * time.Second, inLine: time.Second, grace: 40 * time.Second, awaits: true, hides: time.Second}

// patience is how long a client looks for a server that serves it, and how long after the
// end of a round the calls of it may wait for their answers. None of them waits for more
// than seconds by itself.
const patience = 3 * time.Minute

// TestServers runs three real servers of a real database, and lets happen what may
// happen to many machines, while clients come to all of them through both doors. The
// clients and what is checked are those of TestSimulation; each run is a world.
//
//   - Servers are killed, stopped, paused for longer than they may lead, and come
//     back; another joins and leaves.
//   - The connections of a server to the database, to the others and to its clients
//     are cut, refused for a while, and held back.
//   - Clients are cut off, and die.
func TestServers(t *testing.T) {
	if testing.Short() {
		t.Skip("this starts a database, and servers")
	}
	seed := cmp.Or(*clusterSeed, rand.Uint64()>>1)
	t.Logf("-cluster.seed=%d", seed)
	began := time.Now()
	h := newHouse(t, 4)
	for _, s := range h.servers[:3] {
		s.begin()
	}
	for _, s := range h.servers[:3] {
		s.ready()
	}
	long := *clusterFor > 0
	h.times(long)
	h.apart()
	for end := time.Now().Add(*clusterFor); !t.Failed(); seed++ {
		h.round(seed, long)
		if time.Now().After(end) {
			t.Logf("%v", time.Since(began).Round(time.Millisecond))
			return
		}
	}
}

// TestServersOutliveTheirDatabase is a round of TestServers in which the primary of a
// database with two standbys is killed, and the standby promoted that has most.
func TestServersOutliveTheirDatabase(t *testing.T) {
	if *clusterFor == 0 {
		t.Skip("this is for -cluster.for")
	}
	seed := cmp.Or(*clusterSeed, rand.Uint64()>>1)
	t.Logf("-cluster.seed=%d", seed)
	group := postgrestest.StartGroup(t, true)
	h := newHouseOn(t, 4, group.DSN(), group)
	for _, s := range h.servers[:3] {
		s.begin()
	}
	for _, s := range h.servers[:3] {
		s.ready()
	}
	h.round(seed, false)
}

// doors are the clients of a world whose servers are many.
var doors = []kind{bySocket, bySocket, byServer, byServer, byHTTP, byRequest}

// A neighbourhood is the worlds of one round, which share servers.
type neighbourhood struct {
	*house
	rnd     *rand.Rand
	worlds  []*world
	clients []*client
	over    chan struct{}
	most    time.Duration // how long a way is disturbed at most

	failedOver bool // the database has
}

// round is one life of some runs.
func (h *house) round(seed uint64, long bool) {
	n := &neighbourhood{house: h, rnd: rand.New(rand.NewPCG(seed, 0)), over: make(chan struct{})}
	operator := h.operator()
	defer operator.Close()
	for i := range *clusterRuns {
		n.open(seed, fmt.Sprintf("%d-%d", seed, i), operator)
	}
	var busy, tied, settling sync.WaitGroup
	for _, c := range n.clients {
		busy.Go(func() {
			for n.lasts() && !h.t.Failed() {
				if c.jitter(4) == 0 {
					c.gated()
				} else {
					c.act()
				}
			}
		})
		if c.kind.bridges() {
			tied.Go(c.stay)
		}
	}
	began := time.Now()
	n.fate(long)
	close(n.over)
	n.finish(&busy)
	for _, w := range n.worlds {
		settling.Go(func() {
			if !h.t.Failed() {
				w.settle()
				if !w.closed() {
					w.history.check(w)
				}
			}
		})
	}
	n.finish(&settling)
	calls := 0
	for _, c := range n.clients {
		c.leave()
		calls += c.ids
	}
	n.finish(&tied)
	h.t.Logf("-cluster.seed=%d: %d clients made %d calls in %v", seed, len(n.clients), calls, time.Since(began).Round(time.Second))
}

// finish waits for clients. If some are never answered, it tells which, ends the servers,
// and keeps what these had to say, with all that their goroutines did.
func (n *neighbourhood) finish(clients *sync.WaitGroup) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		clients.Wait()
	}()
	select {
	case <-done:
		return
	case <-time.After(patience):
	}
	for _, w := range n.worlds {
		for _, c := range w.clients {
			c.mu.Lock()
			waits := maps.Clone(c.pending)
			c.mu.Unlock()
			for id, p := range waits {
				w.fault("call %d of %s, %s, is not answered after %v", id, c.name, p.tool, w.now()-p.sent)
			}
		}
	}
	if !n.t.Failed() {
		n.t.Errorf("clients do not come to an end")
	}
	n.closed.Store(true)
	dir := n.t.ArtifactDir()
	for _, s := range n.servers {
		if s.cmd == nil {
			continue
		}
		s.signal(syscall.SIGQUIT) // Go's runtime prints all goroutines
		<-s.ends
		log, _ := os.ReadFile(s.path("log"))
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("server %d.log", s.n)), log, 0o600); err != nil {
			n.t.Error(err)
		}
	}
	n.t.Logf("with -artifacts, the servers' goroutines are in %s", dir)
	<-done
}

func (n *neighbourhood) lasts() bool {
	select {
	case <-n.over:
		return false
	default:
		return true
	}
}

// stay has a program at the socket come back by itself, as a shim does.
func (c *client) stay() {
	for {
		link, _, err := c.connect()
		if err != nil {
			return
		}
		select {
		case <-link.closed:
		case <-c.left:
		}
		select {
		case <-c.left:
			return
		default:
		}
	}
}

func (h *house) operator() *mcp.Client { return h.operatorAt(h.servers[0]) }

func (h *house) operatorAt(s *machine) *mcp.Client {
	var err error
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		var nc net.Conn
		if nc, err = net.Dial("unix", s.path("s")); err != nil {
			continue
		}
		var c *mcp.Client
		if c, err = mcp.Connect(context.Background(), nc, door.Hello{Operator: true}, "operator", "1"); err == nil {
			return c
		}
	}
	h.t.Fatal(err)
	return nil
}

// open makes a run and its clients.
func (n *neighbourhood) open(seed uint64, run string, operator *mcp.Client) {
	t := n.t.(*testing.T)
	w := &world{
		t: t, seed: seed, again: fmt.Sprintf("-run TestServers -cluster.seed=%d -cluster.runs=%d -cluster.partitions=%d -cluster.for=%v", seed, *clusterRuns, *clusterOver, *clusterFor),
		house: n.house, pace: realTime, began: time.Now(), alive: make(map[int]bool), faults: make(map[string]bool),
	}
	n.worlds = append(n.worlds, w)
	t.Cleanup(func() {
		if len(w.faults) > 0 {
			t.Logf("run %s:\n%s", run, strings.Join(w.log, "\n"))
		}
	})
	actor := func(name, role string) string {
		var made struct{ Token string }
		answer, err := operator.Call(t.Context(), "operator_actor_add", map[string]any{"run": run, "name": name, "role": role})
		if err == nil {
			err = json.Unmarshal(answer.Object, &made)
		}
		if err != nil {
			t.Fatal(err)
		}
		return made.Token
	}
	actor("root", "root")
	for i, k := range doors {
		c := w.client(i, k, actor(clientName(i), "worker"), nil)
		at := i
		next := func() *machine { at++; return n.servers[at%3] }
		c.dial = func(process.Peer) (net.Conn, error) { return next().toSocket.enter() }
		if k == byServer {
			c.dial = func(process.Peer) (net.Conn, error) {
				nc, err := next().toWeb.enter()
				if err != nil {
					return nil, err
				}
				up, err := upgrade(nc, c.token)
				if err != nil {
					nc.Close()
				}
				return up, err
			}
		}
		if c.http != nil {
			c.http.dial = func() (net.Conn, error) { return next().toWeb.enter() }
		}
		w.clients = append(w.clients, c)
	}
	n.clients = append(n.clients, w.clients...)
}

// enter connects to who is behind a proxy.
func (p *proxy) enter() (net.Conn, error) {
	return net.DialTimeout(p.ln.Addr().Network(), p.ln.Addr().String(), time.Minute)
}

// note writes to the logs of all worlds.
func (n *neighbourhood) note(format string, args ...any) {
	for _, w := range n.worlds {
		w.note(format, args...)
	}
}

// befall lets something happen. Whatever clients do meanwhile is not undisturbed.
func (n *neighbourhood) befall(what string, do func()) {
	n.note("%s", what)
	for _, w := range n.worlds {
		w.history.mu.Lock()
		w.history.gaps = append(w.history.gaps, gap{from: w.now()})
		w.history.mu.Unlock()
	}
	n.disturb()
	do()
	n.note("%s: over", what)
	n.disturb()
	for _, w := range n.worlds {
		w.history.mu.Lock()
		w.history.gaps[len(w.history.gaps)-1].to = w.now()
		w.history.mu.Unlock()
	}
}

func (n *neighbourhood) disturb() {
	for _, c := range n.clients {
		c.mu.Lock()
		c.disturbs++
		c.mu.Unlock()
	}
}

// fate is what happens in a round.
func (n *neighbourhood) fate(long bool) {
	n.most = 8 * realTime.second
	if n.group != nil && !n.failedOver {
		n.failedOver = true
		defer n.failOver() // at the end of the others, when much is under way
	}
	steps := []func(){n.killed, n.stopped, n.cut, n.held, n.joined, n.bereaved}
	if long {
		n.most = 20 * realTime.second
		steps = append(steps, n.paused, n.cut, n.cut, n.held, n.killed, n.bereaved)
	}
	n.rnd.Shuffle(len(steps), func(i, j int) { steps[i], steps[j] = steps[j], steps[i] })
	for _, step := range steps {
		time.Sleep(n.upTo(4 * realTime.second))
		if n.t.Failed() {
			return
		}
		step()
	}
	time.Sleep(3 * realTime.second)
}

func (n *neighbourhood) upTo(d time.Duration) time.Duration {
	return time.Duration(n.rnd.Int64N(int64(d)))
}

// failOver loses the primary of the database.
func (n *neighbourhood) failOver() {
	began := time.Now()
	n.befall("the primary of the database is lost, and a standby promoted", func() { n.group.FailOver(n.t) })
	n.t.Logf("the standby was promoted after %v", time.Since(began).Round(time.Millisecond))
	time.Sleep(30 * realTime.second)
}

// one gives a server, which is the leader half of the time.
func (n *neighbourhood) one() *machine {
	if n.rnd.IntN(2) == 0 {
		return n.leader(n.rnd.IntN(*clusterOver))
	}
	return n.servers[n.rnd.IntN(3)]
}

func (n *neighbourhood) killed() {
	s := n.one()
	n.befall(fmt.Sprintf("server %d is killed", s.n), func() {
		s.kill()
		time.Sleep(n.upTo(5 * realTime.second))
		s.start()
	})
}

func (n *neighbourhood) stopped() {
	s := n.one()
	n.befall(fmt.Sprintf("server %d is stopped", s.n), func() {
		s.stop()
		s.start()
	})
}

// paused lets a server stand still for longer than it may lead.
func (n *neighbourhood) paused() {
	s := n.one()
	n.befall(fmt.Sprintf("server %d stands still", s.n), func() {
		for _, w := range n.worlds { // a client cannot leave it, and it extends nothing
			w.mu.Lock()
			w.sleeps = append(w.sleeps, time.Since(w.began)+w.asleep)
			w.mu.Unlock()
		}
		s.signal(syscall.SIGSTOP)
		time.Sleep(6*time.Second + n.upTo(4*time.Second))
		s.signal(syscall.SIGCONT)
	})
}

func (n *neighbourhood) joined() {
	s := n.servers[3]
	n.befall("another server joins, and leaves", func() {
		s.start()
		time.Sleep(n.upTo(10 * realTime.second))
		s.stop()
	})
}

// link gives a way, and its name.
func (n *neighbourhood) link(ways int) (string, *proxy) {
	s := n.one()
	way := n.rnd.IntN(ways)
	return fmt.Sprintf("the way to %s of server %d", []string{"the database", "the peers", "the web", "the socket"}[way], s.n),
		[]*proxy{s.toDatabase, s.toPeers, s.toWeb, s.toSocket}[way]
}

func (n *neighbourhood) cut() {
	name, p := n.link(3)
	d := max(0, n.upTo(n.most)-n.most/4)
	n.befall(fmt.Sprintf("%s is cut for %v", name, d), func() { p.cut(d) })
}

func (n *neighbourhood) held() {
	name, p := n.link(4)
	d := n.upTo(n.most)
	n.befall(fmt.Sprintf("%s is held back for %v", name, d), func() { p.stall(d) })
}

// bereaved has some clients cut off, and some die.
func (n *neighbourhood) bereaved() {
	for _, c := range n.clients {
		switch n.rnd.IntN(6) {
		case 0:
			c.cut()
		case 1:
			c.die(false)
		}
	}
	// A server that has too much to do is not killed before it has seen it: it then
	// answers somebody who has come later.
	for _, s := range n.servers[:3] {
		n.operatorAt(s).Close()
	}
}

// times prints how long the most important things take.
func (h *house) times(long bool) {
	operator := h.operator()
	n := &neighbourhood{house: h, over: make(chan struct{})}
	run := fmt.Sprint("times-", time.Now().UnixNano())
	partition := dispatch.PartitionOf(run, *clusterOver)
	n.open(1, run, operator)
	operator.Close()
	w := n.worlds[0]
	// next is how long after an event somebody is granted what nobody had.
	next := func(c *client, key string, event func()) time.Duration {
		began := w.now()
		event()
		for {
			got, err := c.call("run_lease_acquire", map[string]any{"key": key}, 0, false)
			if err == nil && !got.IsError {
				return (got.got - began).Round(time.Millisecond)
			}
		}
	}
	elsewhere := func(s *machine) *client { // a client that does not come through s
		c := w.clients[0]
		c.cut()
		others := slices.DeleteFunc(slices.Clone(h.servers[:3]), func(o *machine) bool { return o == s })
		c.dial = func(process.Peer) (net.Conn, error) { return others[0].toSocket.enter() }
		_, _, _ = c.connect()
		return c
	}
	h.settled(3) // what moves meanwhile would move clients
	s := h.leader(partition)
	c := elsewhere(s)
	took := next(c, "after a kill", func() { s.kill() })
	h.t.Logf("death of a server, whose machine lives, to the next grant: %v", took)
	s.start()
	h.settled(3)
	s = h.leader(partition)
	c = elsewhere(s)
	took = next(c, "after a stop", func() { s.stop() })
	h.t.Logf("planned hand-over to the next grant: %v", took)
	s.start()
	h.settled(3)
	s = h.leader(partition)
	c = elsewhere(s)
	_, _ = c.call("run_lease_acquire", map[string]any{"key": "of one that dies"}, 0, false)
	heir := w.clients[1]
	heir.dial = func(process.Peer) (net.Conn, error) { return s.toSocket.enter() }
	granted := make(chan time.Duration)
	go func() {
		got, err := heir.call("run_lease_acquire", map[string]any{"key": "of one that dies", "wait_secs": 50}, 0, false)
		if err != nil || got.IsError {
			w.fault("who waits for what a dead client held: %v %s", err, got.StructuredContent)
		}
		granted <- got.got
	}()
	time.Sleep(realTime.second) // until it waits
	died := w.now()
	c.die(false)
	h.t.Logf("death of a client of another server to the next grant: %v", (<-granted - died).Round(10*time.Microsecond))
	if long {
		h.settled(3)
		s = h.leader(partition)
		c = elsewhere(s)
		took = next(c, "after a pause", func() { s.signal(syscall.SIGSTOP) })
		h.t.Logf("death of a server with its machine to the next grant: %v", took)
		s.signal(syscall.SIGCONT)
	}
	for _, c := range w.clients {
		c.end()
	}
}

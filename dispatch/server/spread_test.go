package server_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/dispatch/process"
	"github.com/leasehold/leasehold/dispatch/server"
	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/pebble"
)

// A street is servers that share partitions, as those of a database do.
type street struct {
	*testing.T
	partitions int
	engines    []*failingEngine // by partition
	houses     []*web
	ways       []*server.Way // to each house

	mu      sync.Mutex
	leaders []int // by partition, the house that leads it; -1: nobody
	changed chan struct{}
	moves   []func() // by partition, ends its lead
	cut     atomic.Int64
	hang    atomic.Bool
}

// sessionsInStreet is how many HTTP sessions an actor may have at a house.
const sessionsInStreet = 8

// A cutWire is a connection between houses that can break just when an answer comes.
type cutWire struct {
	net.Conn
	cut  *atomic.Int64 // so many answers are lost
	hang *atomic.Bool  // what is written is lost
}

func (c cutWire) Write(p []byte) (int, error) {
	if c.hang.Load() {
		return len(p), nil
	}
	return c.Conn.Write(p)
}

func (c cutWire) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err == nil && c.cut.Add(-1) >= 0 {
		c.Conn.Close()
		return 0, io.ErrUnexpectedEOF
	}
	return n, err
}

// A failingEngine fails once it is told to, when it is next used.
type failingEngine struct {
	engine.Engine
	fails, failed atomic.Bool
}

func (e *failingEngine) View(ctx context.Context, fn func(engine.Tx) error) error {
	if e.fails.Load() {
		e.failed.Store(true)
		return engine.ErrFailed
	}
	return e.Engine.View(ctx, fn)
}

func (e *failingEngine) Err() error {
	if e.failed.Load() {
		return engine.ErrFailed
	}
	return nil
}

// partings waits until connections of servers that are closed at both ends have given up
// their last words, which nobody reads.
func partings() { time.Sleep(10 * time.Second) }

func newStreet(t *testing.T, houses, partitions int) *street {
	s := &street{T: t, partitions: partitions, engines: make([]*failingEngine, partitions), changed: make(chan struct{}), leaders: make([]int, partitions), moves: make([]func(), partitions)}
	secret, err := server.ClusterTLS([]byte(clusterSecret))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(partings)
	for n := range houses {
		d := &daemon{}
		metrics := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "of house ", n) })
		d.Server = server.New(nil, server.Options{Transport: server.Transport{ActorHTTPSessions: sessionsInStreet}, Partitions: partitions, Metrics: metrics, Elsewhere: func(p int) (*server.Way, <-chan struct{}) {
			s.mu.Lock()
			defer s.mu.Unlock()
			if at := s.leaders[p]; at >= 0 && at != n {
				return s.ways[at], s.changed
			}
			return nil, s.changed
		}})
		d.ctx, d.stop = context.WithCancel(context.Background())
		ln := &pipeListener{conns: make(chan net.Conn), done: make(chan struct{})}
		served := make(chan error, 1)
		go func() { served <- d.ServePassages(d.ctx, tls.NewListener(ln, secret)) }()
		t.Cleanup(func() {
			d.stop()
			if err := <-served; err != nil {
				t.Error(err)
			}
			d.conns.Wait()
		})
		s.ways = append(s.ways, &server.Way{Over: context.Background(), Dial: func(ctx context.Context) (net.Conn, error) {
			nc, err := ln.dial(ctx, "", "")
			if err != nil {
				return nil, err
			}
			c := tls.Client(cutWire{nc, &s.cut, &s.hang}, secret)
			return c, c.HandshakeContext(ctx)
		}})
		w := &web{daemon: d}
		w.listen(t)
		s.houses = append(s.houses, w)
	}
	for p := range partitions {
		s.open(p, p%houses)
	}
	synctest.Wait()
	return s
}

// open has a house lead a partition for the rest of the test.
func (s *street) open(partition, house int) {
	eng, err := pebble.Open(pebble.Options{Dir: "state", FS: vfs.NewMem()})
	if err != nil {
		s.Fatal(err)
	}
	s.engines[partition] = &failingEngine{Engine: eng}
	state, err := dispatch.Open(s.Context(), s.engines[partition], dispatch.Options{Partition: dispatch.Partition{Number: partition, Of: s.partitions}})
	if err != nil {
		s.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := state.Tend(ctx); err != nil {
			s.Error(err)
		}
	})
	s.Cleanup(func() {
		s.end(partition)
		stop()
		running.Wait()
		if err := eng.Close(); err != nil {
			s.Error(err)
		}
	})
	s.host(partition, house, state)
}

func (s *street) host(partition, house int, state *dispatch.State) {
	ctx, stop := context.WithCancel(context.Background())
	hosted := make(chan struct{})
	go func() {
		defer close(hosted)
		s.houses[house].Host(ctx, partition, state, s.engines[partition].Err)
	}()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leaders[partition] = house
	close(s.changed)
	s.changed = make(chan struct{})
	s.moves[partition] = func() { stop(); <-hosted }
}

// end ends the lead of a partition, and returns when its house is done with it.
func (s *street) end(partition int) {
	s.mu.Lock()
	stop := s.moves[partition]
	s.leaders[partition] = -1
	s.moves[partition] = func() {}
	s.mu.Unlock()
	stop()
}

// runs gives the name of a run in each partition.
func (s *street) runs() (names []string) {
	for p := range s.partitions {
		for n := 0; ; n++ {
			if name := fmt.Sprintf("run-%d", n); dispatch.PartitionOf(name, s.partitions) == p {
				names = append(names, name)
				break
			}
		}
	}
	return names
}

// operator connects to a house.
func (s *street) operator(house int) *caller {
	p := s.houses[house].pipe(s.T)
	p.greet(server.Hello{Operator: true})
	return &caller{peer: p}
}

// A caller makes one call after the other.
type caller struct {
	*peer
	calls int
}

func (c *caller) do(tool, arguments string) message {
	c.t.Helper()
	c.calls++
	c.call(c.calls, tool, arguments)
	return c.receive()
}

// want makes a call that must succeed, and reads what it answers.
func (c *caller) want(answer any, tool, arguments string) {
	c.t.Helper()
	m := c.do(tool, arguments)
	if m.Error != nil || m.Result.IsError {
		c.t.Fatalf("%s %s: %s %+v", tool, arguments, m.text(), m.Error)
	}
	if answer == nil {
		return
	}
	if err := json.Unmarshal(m.Result.StructuredContent, answer); err != nil {
		c.t.Fatal(err)
	}
}

// refused makes a call that must be refused, and gives why.
func (c *caller) refused(tool, arguments string) string {
	c.t.Helper()
	m := c.do(tool, arguments)
	if !m.Result.IsError {
		c.t.Fatalf("%s %s: %s", tool, arguments, m.text())
	}
	return m.text()
}

func (s *street) actor(op *caller, run, name, role string) string {
	s.Helper()
	var made struct{ Token string }
	op.want(&made, "operator_actor_add", fmt.Sprintf(`{"run":%q,"name":%q,"role":%q}`, run, name, role))
	return made.Token
}

// program returns a program with a token that comes to a house over HTTP.
func (s *street) program(house int, token string) *program {
	w := s.houses[house%len(s.houses)]
	return &program{web: &web{daemon: w.daemon, client: w.client, token: token}, t: s.T, book: readDocument(s.T)}
}

// connect connects to a house by a token.
func (s *street) connect(house int, h server.Hello) *caller {
	s.Helper()
	p := s.houses[house].pipe(s.T)
	p.greet(h)
	return &caller{peer: p}
}

func inStreet(t *testing.T, houses, partitions int, story func(s *street)) {
	synctest.Test(t, func(t *testing.T) {
		// What never comes would be awaited for ever, since servers always have something to do.
		late := time.AfterFunc(24*time.Hour, func() { panic(t.Name() + " has waited for a day") })
		defer late.Stop()
		story(newStreet(t, houses, partitions))
		partings() // a server that shuts down has its mutex while it waits for one, which stops the clock
	})
}

// Whoever is of a run is served it through any door: by a token, by the handle of a
// session, or by the name of the run.
func TestARunIsTheSameThroughEveryDoor(t *testing.T) {
	inStreet(t, 3, 4, func(s *street) {
		t := s.T
		op := s.operator(1)
		for p, run := range s.runs() {
			s.actor(op, run, "root", "root")
			token := s.actor(op, run, "w", "worker")
			if at := dispatch.PartitionOfSecret(token); at != p {
				t.Errorf("the token of an actor in partition %d says %d", p, at)
			}
			first := s.connect(0, server.Hello{Token: token})
			var lease struct {
				ID string `json:"lease_id"`
			}
			first.want(&lease, "run_lease_acquire", `{"key":"a"}`)
			if at := dispatch.PartitionOfSecret(first.welcome.Handle); at != p {
				t.Errorf("the handle of a session in partition %d says %d", p, at)
			}
			joined := s.connect(1, server.Hello{Run: run, Name: "guest"})
			if why := joined.refused("run_lease_acquire", `{"key":"a"}`); !strings.Contains(why, "held by actor") {
				t.Errorf("run %s: %s", run, why)
			}
			joined.call("waits", "run_lease_acquire", `{"key":"a","wait_secs":50}`)
			synctest.Wait()
			again := s.connect(2, server.Hello{Handle: first.welcome.Handle})
			if !again.welcome.Resumed {
				t.Errorf("run %s: the session was not resumed", run)
			}
			again.want(nil, "run_lease_release", fmt.Sprintf(`{"lease_id":%q}`, lease.ID))
			if m := joined.receive(); m.Result.IsError {
				t.Errorf("run %s: %s", run, m.text())
			}
			s.connect(2, server.Hello{Run: run, Name: "other"}).refused("run_lease_acquire", `{"key":"a"}`)
		}
	})
}

// An operator sees all runs, in one order and in pages, and each as if it were alone.
func TestAnOperatorSeesAllRuns(t *testing.T) {
	inStreet(t, 3, 4, func(s *street) {
		t := s.T
		var names []string
		op := s.operator(2)
		for n := range 12 {
			run := fmt.Sprintf("run-%02d", 11-n)
			names = append(names, run)
			s.actor(op, run, "root", "root")
			for w := range n % 4 {
				s.actor(op, run, fmt.Sprint("w", w), "worker")
			}
		}
		slices.Sort(names)
		type tree struct {
			Runs []struct {
				Run    string
				Actors []struct{ Path string }
			}
			Next string
		}
		var whole tree
		op.want(&whole, "operator_tree", `{}`)
		var actors []string
		for i, r := range whole.Runs {
			if len(whole.Runs) != 12 || r.Run != names[i] {
				t.Fatalf("runs %+v", whole.Runs)
			}
			for _, a := range r.Actors {
				actors = append(actors, r.Run+"/"+a.Path)
			}
		}
		for limit := 1; limit < 32; limit += 3 {
			var paged []string
			for after := ""; ; {
				var page tree
				op.want(&page, "operator_tree", fmt.Sprintf(`{"limit":%d,"after":%q}`, limit, after))
				n := 0
				for _, r := range page.Runs {
					for _, a := range r.Actors {
						paged = append(paged, r.Run+"/"+a.Path)
						n++
					}
				}
				if n > limit {
					t.Fatalf("a page of %d has %d", limit, n)
				}
				if after = page.Next; after == "" {
					break
				}
			}
			if !slices.Equal(paged, actors) {
				t.Errorf("in pages of %d: %v, want %v", limit, paged, actors)
			}
		}
		for limit := 1; limit < 14; limit += 3 {
			var alone []string
			for after := ""; ; {
				var page tree
				op.want(&page, "operator_tree", fmt.Sprintf(`{"actors":false,"limit":%d,"after":%q}`, limit, after))
				if len(page.Runs) > limit {
					t.Fatalf("a page of %d has %d runs", limit, len(page.Runs))
				}
				for _, r := range page.Runs {
					alone = append(alone, r.Run)
				}
				if after = page.Next; after == "" {
					break
				}
			}
			if !slices.Equal(alone, names) {
				t.Errorf("alone in pages of %d: %v", limit, alone)
			}
		}
		for _, run := range names {
			var one tree
			op.want(&one, "operator_tree", fmt.Sprintf(`{"run":%q}`, run))
			if len(one.Runs) != 1 || one.Runs[0].Run != run {
				t.Errorf("run %s: %+v", run, one)
			}
		}
		for i := range 3 {
			op.want(nil, "operator_actor_end", fmt.Sprintf(`{"run":%q,"path":"root"}`, names[3*i]))
		}
		for _, more := range []string{"", `,"limit":2`, `,"limit":5`, `,"actors":false`, `,"actors":false,"limit":2`} {
			var living struct {
				tree
				Ended int
			}
			op.want(&living, "operator_tree", `{"ended":false`+more+`}`)
			if living.Ended != 3 || living.Runs[0].Run != names[1] {
				t.Errorf("the living%s: %+v", more, living)
			}
		}
		if why := op.refused("operator_leases", `{"run":"nobody's"}`); !strings.Contains(why, `run "nobody's"`) {
			t.Error(why)
		}
		op.refused("operator_tree", `{"limit":0}`)
	})
}

// A pause is of one run's queue.
func TestRunsElsewhereDoNotSeeAPause(t *testing.T) {
	inStreet(t, 2, 2, func(s *street) {
		t := s.T
		op := s.operator(0)
		runs := s.runs()
		var workers []*caller
		for i, run := range runs {
			s.actor(op, run, "root", "root")
			w := s.connect(i, server.Hello{Token: s.actor(op, run, "w", "worker")})
			w.want(nil, "task_enqueue", `{"queue":"q","payload":1}`)
			workers = append(workers, w)
		}
		op.want(nil, "operator_queue_pause", fmt.Sprintf(`{"run":%q,"queue":"q","reason":"a test"}`, runs[1]))
		for i, want := range []int{1, 0} {
			var got struct{ Tasks []any }
			workers[i].want(&got, "task_claim", `{"queues":["q"],"ttl_secs":60,"wait_secs":0}`)
			if len(got.Tasks) != want {
				t.Errorf("run %s: %d tasks, want %d", runs[i], len(got.Tasks), want)
			}
		}
	})
}

// An operator is told of changes everywhere, and of none twice.
func TestAnOperatorIsToldOfChangesEverywhere(t *testing.T) {
	inStreet(t, 3, 4, func(s *street) {
		t := s.T
		op, other := s.operator(0), s.operator(1)
		var is struct{ Changed bool }
		op.want(&is, "operator_watch", `{}`)
		if !is.Changed {
			t.Error("the first call waited")
		}
		op.want(&is, "operator_watch", `{"wait_secs":5}`)
		if is.Changed {
			t.Error("nothing has changed")
		}
		for _, run := range s.runs() {
			op.call("w", "operator_watch", `{"wait_secs":50}`)
			synctest.Wait()
			s.actor(other, run, "root", "root")
			m := op.receive()
			_ = json.Unmarshal(m.Result.StructuredContent, &is)
			if !is.Changed {
				t.Errorf("run %s: %s", run, m.text())
			}
			s.actor(other, run, "w", "worker") // between two calls
			synctest.Wait()
			op.want(&is, "operator_watch", `{"wait_secs":50}`)
			if !is.Changed {
				t.Errorf("run %s: a change between two calls was missed", run)
			}
			time.Sleep(time.Second)
			op.want(&is, "operator_watch", `{"wait_secs":1}`)
		}
	})
}

// A reader looks everywhere and changes nothing.
func TestAReaderLooksEverywhere(t *testing.T) {
	inStreet(t, 2, 4, func(s *street) {
		t := s.T
		op := s.operator(1)
		var issued struct{ Token string }
		op.want(&issued, "operator_token_issue", `{"name":"grafana","role":"reader"}`)
		reader := s.connect(1, server.Hello{Token: issued.Token})
		for _, run := range s.runs() {
			s.actor(op, run, "root", "root")
			reader.want(nil, "operator_leases", fmt.Sprintf(`{"run":%q}`, run))
			reader.call("x", "operator_actor_end", fmt.Sprintf(`{"run":%q,"path":"root"}`, run))
			if m := reader.receive(); m.Error == nil && !m.Result.IsError {
				t.Errorf("a reader ended an actor: %s", m.text())
			}
		}
	})
}

// One connection over HTTP may have requests for several partitions.
func TestAConnectionOverHTTPIsForAllPartitions(t *testing.T) {
	inStreet(t, 3, 4, func(s *street) {
		t := s.T
		op := s.operator(0)
		w := s.houses[0]
		ask := func(token, method, path, body string) (int, string) {
			r, err := http.NewRequestWithContext(t.Context(), method, "http://localhost/api/v1"+path, strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Authorization", "Bearer "+token)
			r.Header.Set("Content-Type", "application/json")
			resp, err := w.client.Do(r)
			if err != nil {
				return 0, err.Error()
			}
			defer resp.Body.Close()
			text, err := io.ReadAll(resp.Body)
			if err != nil {
				return 0, err.Error()
			}
			return resp.StatusCode, string(text)
		}
		runs := s.runs()
		tokens := make([]string, len(runs))
		for i, run := range runs {
			s.actor(op, run, "root", "root")
			tokens[i] = s.actor(op, run, "w", "worker")
		}
		var issued struct{ Token string }
		op.want(&issued, "operator_token_issue", `{"name":"ci","role":"operator"}`)
		for round := range 3 {
			for i := range runs {
				at := (i*3 + round) % len(runs)
				if code, text := ask(tokens[at], "POST", "/queues/q/tasks", `{"payload":1}`); code != 201 {
					t.Errorf("run %s: %s", runs[at], text)
				}
				if code, text := ask(issued.Token, "GET", "/runs/"+runs[i]+"/queues", ""); code != 200 {
					t.Errorf("operator, run %s: %s", runs[i], text)
				}
			}
		}
		if code, text := ask("lht_9.x", "GET", "/queues", ""); code != 401 {
			t.Errorf("a token of a partition that is not: %s", text)
		}
	})
}

// A write to files of two runs is for both or none, wherever they are.
func TestAWriteToRunsInSeveralPartitions(t *testing.T) {
	inStreet(t, 2, 4, func(s *street) {
		t := s.T
		op := s.operator(0)
		runs := s.runs()
		pid := os.Getpid()
		write := func(runs ...string) string {
			var list []string
			for _, run := range runs {
				list = append(list, fmt.Sprintf(`{"run":%q,"keys":["file:a"]}`, run))
			}
			return fmt.Sprintf(`{"pid":%d,"hold_secs":60,"name":"guest","writes":[%s]}`, pid, strings.Join(list, ","))
		}
		var got struct {
			Leases []struct {
				Key   string
				Token uint64
			}
		}
		op.want(&got, "hook_write", write(runs[1], runs[2]))
		if len(got.Leases) != 2 {
			t.Errorf("leases %+v", got.Leases)
		}
		holder := s.connect(1, server.Hello{Run: runs[3], Name: "holder"})
		holder.want(nil, "run_lease_acquire", `{"key":"file:a"}`)
		if why := op.refused("hook_write", write(runs[0], runs[1], runs[3])); !strings.Contains(why, "held by actor") {
			t.Error(why)
		}
		other := s.connect(0, server.Hello{Run: runs[0], Name: "other"})
		other.want(nil, "run_lease_acquire", `{"key":"file:a"}`) // it was given back
		still := s.connect(0, server.Hello{Run: runs[1], Name: "other"})
		still.refused("run_lease_acquire", `{"key":"file:a"}`) // this was taken before
		var held struct{ Held []struct{ Key string } }
		op.want(&held, "hook_check", fmt.Sprintf(`{"run":%q,"keys":["file:a"]}`, runs[3]))
		if len(held.Held) != 1 {
			t.Errorf("held %+v", held)
		}
		var n struct{ Sessions int }
		op.want(&n, "hook_present", fmt.Sprintf(`{"pid":%d,"let_go":"all"}`, pid))
		if n.Sessions != 4 { // guests, one in each run
			t.Errorf("%d sessions of the client", n.Sessions)
		}
		still.want(nil, "run_lease_acquire", `{"key":"file:a"}`)
	})
}

// The session of a client counts for its own project, wherever that is.
func TestAWriteCountsForTheClientsOwnSession(t *testing.T) {
	inStreet(t, 2, 4, func(s *street) {
		t := s.T
		runs := s.runs()
		pid := os.Getpid()
		near, far := net.Pipe()
		s.houses[0].conns.Go(func() { s.houses[0].ServeConn(s.houses[0].ctx, far, process.Find(pid).Peer) })
		own := &caller{peer: &peer{t: t, nc: near}}
		own.greet(server.Hello{Run: runs[2], Name: "own"})
		defer near.Close()
		op := s.operator(1)
		op.want(nil, "hook_write", fmt.Sprintf(`{"pid":%d,"hold_secs":60,"name":"guest","writes":[{"run":%q,"home":true,"keys":["file:a"]}]}`, pid, runs[1]))
		var mine struct {
			Leases []struct{ Key string }
		}
		own.want(&mine, "lease_list", `{"scope":"run"}`)
		if len(mine.Leases) != 1 {
			t.Errorf("leases %+v", mine.Leases)
		}
		// An actor's own hook for another project.
		own.want(nil, "hook_write", fmt.Sprintf(`{"pid":%d,"hold_secs":60,"name":"guest","writes":[{"run":%q,"keys":["file:b"]}]}`, pid, runs[3]))
		s.connect(1, server.Hello{Run: runs[3], Name: "other"}).refused("run_lease_acquire", `{"key":"file:b"}`)
		// One that shows a token over a network stays in its run.
		there, here := net.Pipe()
		s.houses[0].conns.Go(func() { s.houses[0].ServeConn(s.houses[0].ctx, here, process.Peer{Transport: "http"}) })
		defer there.Close()
		remote := &caller{peer: &peer{t: t, nc: there}}
		remote.greet(server.Hello{Run: runs[2], Name: "remote"})
		remote.want(nil, "hook_write", fmt.Sprintf(`{"pid":%d,"hold_secs":60,"name":"guest","writes":[{"run":%q,"keys":["file:c"]}]}`, pid, runs[3]))
		s.connect(1, server.Hello{Run: runs[3], Name: "third"}).want(nil, "run_lease_acquire", `{"key":"file:c"}`)
		var held struct{ Held []struct{ Key string } }
		remote.want(&held, "hook_check", fmt.Sprintf(`{"run":%q,"keys":["file:b"]}`, runs[3]))
		if len(held.Held) > 0 {
			t.Errorf("it is told of %+v in another run", held.Held)
		}
		// What files looked like is remembered wherever they may be.
		own.want(nil, "hook_command", fmt.Sprintf(`{"pid":%d,"files":[{"key":"file:b","look":"1"}]}`, pid))
		var seen struct{ Files []struct{ Key string } }
		own.want(&seen, "hook_command", fmt.Sprintf(`{"pid":%d}`, pid))
		if len(seen.Files) != 1 {
			t.Errorf("files %+v", seen.Files)
		}
	})
}

// The same holds of a client on another machine, which its shim has given a mark.
func TestAWriteCountsForTheSessionWithTheMark(t *testing.T) {
	inStreet(t, 2, 4, func(s *street) {
		runs := s.runs()
		connect := func(run string) *caller {
			near, far := net.Pipe()
			s.houses[0].conns.Go(func() { s.houses[0].ServeConn(s.houses[0].ctx, far, process.Peer{}) })
			c := &caller{peer: &peer{t: s.T, nc: near}}
			c.greet(server.Hello{Run: run, Name: "own", Mark: "there"})
			s.Cleanup(func() { near.Close() })
			return c
		}
		holds := func(c *caller, n int) {
			s.Helper()
			var its struct {
				Leases []struct{ Key string }
			}
			c.want(&its, "lease_list", `{"scope":"run"}`)
			if len(its.Leases) != n {
				s.Errorf("leases %+v, want %d", its.Leases, n)
			}
		}
		own := connect(runs[2])
		op := s.operator(1)
		const write = `{"mark":"there","hold_secs":60,"name":"guest","writes":[%s]}`
		op.want(nil, "hook_write", fmt.Sprintf(write, fmt.Sprintf(`{"run":%q,"home":true,"keys":["file:a"]}`, runs[1])))
		holds(own, 1)
		// What is refused in one partition is given back in the others.
		also := connect(runs[3])
		s.connect(1, server.Hello{Run: runs[3], Name: "holder"}).want(nil, "run_lease_acquire", `{"key":"file:c"}`)
		both := fmt.Sprintf(`{"run":%q,"keys":["file:b"]},{"run":%q,"keys":["file:c"]}`, runs[2], runs[3])
		if why := op.refused("hook_write", fmt.Sprintf(write, both)); !strings.Contains(why, "held by actor") {
			s.Error(why)
		}
		holds(own, 1)
		holds(also, 1)
	})
}

// A launcher whose partition goes to another server has to attach again, and so must
// connect again.
func TestALauncherMovesWithItsPartition(t *testing.T) {
	inStreet(t, 2, 2, func(s *street) {
		run := s.runs()[1]
		op := s.operator(0)
		op.want(nil, "operator_run_dispatch", fmt.Sprintf(`{"run":%q,"root":{"name":"root","agent":"a","prompt":"p"},"agents":["a"]}`, run))
		var next struct{ Launch []struct{ Token string } }
		op.want(&next, "operator_launch_next", fmt.Sprintf(`{"run":%q,"wait_secs":0}`, run))
		if len(next.Launch) != 1 || dispatch.PartitionOfSecret(next.Launch[0].Token) != 1 {
			s.Errorf("told to launch %+v", next)
		}
		waits := s.operator(1) // is no launcher, and goes on
		waits.want(nil, "operator_leases", fmt.Sprintf(`{"run":%q}`, run))
		s.end(1)
		synctest.Wait()
		s.open(1, 0)
		op.call("next", "operator_launch_next", fmt.Sprintf(`{"run":%q,"wait_secs":0}`, run))
		for {
			if _, err := op.br.ReadString('\n'); err != nil {
				break // it was told why, or not
			}
		}
		waits.want(nil, "operator_tree", `{}`)
	})
}

// A launched process shows no token of a run in another partition of its server.
func TestALaunchedProcessShowsNoTokenOfAnotherRun(t *testing.T) {
	inStreet(t, 1, 2, func(s *street) {
		runs, op := s.runs(), s.operator(0)
		op.want(nil, "operator_run_dispatch", fmt.Sprintf(`{"run":%q,"root":{"name":"root","agent":"a","prompt":"p"},"agents":["a"]}`, runs[0]))
		var next struct {
			Launch []struct {
				Token string
				Actor string `json:"actor_id"`
			}
		}
		op.want(&next, "operator_launch_next", fmt.Sprintf(`{"run":%q,"wait_secs":0}`, runs[0]))
		s.actor(op, runs[1], "root", "root")
		foreign := s.actor(op, runs[1], "w", "worker")

		path := socketPath(s.T)
		ln, err := server.ListenSocket(path)
		if err != nil {
			s.Fatal(err)
		}
		ctx, stop := context.WithCancel(s.Context())
		defer stop()
		served := make(chan error, 1)
		go func() { served <- s.houses[0].ServeSocket(ctx, ln) }()
		status := func(token string) int {
			transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, "unix", path)
			}}
			w := &web{client: &http.Client{Transport: transport}, token: token}
			resp, _ := w.do(s.T, "POST", ping)
			return resp.StatusCode
		}
		if got := status(foreign); got != 400 { // without a session
			s.Errorf("a process that was not launched: %d", got)
		}
		op.want(nil, "operator_launch_started", fmt.Sprintf(`{"run":%q,"actor_id":%q,"pid":%d}`, runs[0], next.Launch[0].Actor, os.Getpid()))
		if got := status(foreign); got != 403 {
			s.Errorf("a launched process with another run's token: %d", got)
		}
		if got := status(next.Launch[0].Token); got != 400 {
			s.Errorf("a launched process with its own token: %d", got)
		}
		stop()
		if err := <-served; err != nil {
			s.Error(err)
		}
	})
}

// A partition that goes to another server takes its clients along, and nobody else's.
func TestAPartitionMovesWithItsClients(t *testing.T) {
	inStreet(t, 2, 2, func(s *street) {
		runs := s.runs()
		op := s.operator(0)
		var clients []*caller
		for i, run := range runs {
			s.actor(op, run, "root", "root")
			clients = append(clients, s.connect(1-i, server.Hello{Run: run, Name: "w"}))
			clients[i].want(nil, "run_lease_acquire", `{"key":"a"}`)
		}
		op.want(nil, "operator_leases", fmt.Sprintf(`{"run":%q}`, runs[1]))
		s.end(1)
		clients[1].expectClosed()
		clients[0].want(nil, "lease_list", `{}`)
		s.open(1, 0) // another server has it, with a state of its own here
		synctest.Wait()
		s.actor(op, runs[1], "root", "root")
		op.want(nil, "operator_leases", fmt.Sprintf(`{"run":%q}`, runs[1]))
		clients[0].want(nil, "lease_list", `{}`)
	})
}

// A client that connects while the state of its server fails, as when the database is
// lost, or before the server has given the partition up, is served by the next leader.
func TestAClientOfAFailedStateIsServedByTheNextLeader(t *testing.T) {
	for name, failed := range map[string]bool{"it fails at the connect": false, "it has failed": true} {
		t.Run(name, func(t *testing.T) {
			inStreet(t, 2, 2, func(s *street) {
				s.engines[1].fails.Store(true)
				s.engines[1].failed.Store(failed)
				c := &caller{peer: s.houses[1].pipe(s.T)}
				var welcomed sync.WaitGroup
				welcomed.Go(func() { c.greet(server.Hello{Run: s.runs()[1], Name: "w"}) })
				synctest.Wait()
				s.end(1)
				s.open(1, 0)
				welcomed.Wait()
				c.want(nil, "lease_list", `{}`)
			})
		})
	}
}

// A client over HTTP may send each request through another server, also through the
// one that leads. It is one client there: a cancellation finds its call, and the end
// of its stream is the client's end.
func TestAClientOverHTTPUsesAllDoors(t *testing.T) {
	inStreet(t, 2, 2, func(s *street) {
		t := s.T
		op := s.operator(0)
		run := s.runs()[0]
		s.actor(op, run, "root", "root")
		token := s.actor(op, run, "w", "worker")
		leads := &web{daemon: s.houses[0].daemon, client: s.houses[0].client, token: token}
		passes := &web{daemon: s.houses[1].daemon, client: s.houses[1].client, token: token}
		session := leads.open(t)
		const acquire = `{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"run_lease_acquire","arguments":{"key":%q,"wait_secs":50}}}`
		const cancel = `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}`
		holder := s.connect(0, server.Hello{Run: run, Name: "holder"})
		holder.want(nil, "run_lease_acquire", `{"key":"a"}`)
		for id, by := range []*web{leads, passes} {
			other := []*web{passes, leads}[id]
			waits := by.startStream(t, "POST", fmt.Sprintf(acquire, id, "a"), session...)
			other.do(t, "POST", fmt.Sprintf(cancel, id), session...)
			synctest.Wait()
			var leases struct {
				Leases []struct{ Waiters []any }
			}
			holder.want(&leases, "lease_list", `{"scope":"run"}`)
			if len(leases.Leases) != 1 || len(leases.Leases[0].Waiters) > 0 {
				t.Errorf("call %d waits although it was cancelled: %+v", id, leases)
			}
			if m, ok := waits.next(t); ok {
				t.Errorf("call %d was cancelled and answered: %s", id, m.text())
			}
		}
		leads.do(t, "POST", fmt.Sprintf(acquire, 7, "b"), session...)
		stream := passes.startStream(t, "GET", "", session...)
		time.Sleep(20 * time.Second)
		holder.refused("run_lease_acquire", `{"key":"b"}`)
		stream.body.Close()
		time.Sleep(10 * time.Second)
		holder.want(nil, "run_lease_acquire", `{"key":"b"}`)
	})
}

// What an operator does in another partition happens once, also if the link is lost
// after it was done there and before the answer came.
func TestAnOperatorsWriteOverALostLinkHappensOnce(t *testing.T) {
	inStreet(t, 2, 2, func(s *street) {
		t := s.T
		op := s.operator(0)
		run := s.runs()[1] // house 1 leads it
		s.actor(op, run, "root", "root")
		lost := func(answer any, tool, arguments string) {
			t.Helper()
			s.cut.Store(1)
			op.want(answer, tool, arguments)
			if s.cut.Load() > 0 {
				t.Fatalf("%s: no answer was lost", tool)
			}
		}
		var made struct{ Token string }
		lost(&made, "operator_actor_add", fmt.Sprintf(`{"run":%q,"name":"w","role":"worker"}`, run))
		first := s.connect(0, server.Hello{Token: made.Token})
		second := s.connect(1, server.Hello{Run: run, Name: "second"})
		var lease struct{ Token uint64 }
		first.want(&lease, "run_lease_acquire", `{"key":"a"}`)
		second.call("waits", "run_lease_acquire", `{"key":"a","wait_secs":50}`)
		synctest.Wait()
		lost(nil, "operator_lease_revoke", fmt.Sprintf(`{"run":%q,"scope":"run","key":"a","reason":"a test"}`, run))
		if m := second.receive(); m.Result.IsError {
			t.Errorf("the next in line: %s", m.text())
		}
		if why := first.refused("run_lease_acquire", `{"key":"a"}`); !strings.Contains(why, "(second)") {
			t.Errorf("after one revoke: %s", why)
		}
		// A queue has more dead tasks than one redrive takes.
		for range 101 {
			first.want(nil, "task_enqueue", `{"queue":"q","payload":1,"max_attempts":1}`)
		}
		for n := 0; n < 101; {
			var got struct {
				Tasks []struct {
					ID    string `json:"task_id"`
					Token uint64
				}
			}
			first.want(&got, "task_claim", `{"queues":["q"],"ttl_secs":60,"count":10,"wait_secs":0}`)
			for _, task := range got.Tasks {
				first.want(nil, "task_abandon", fmt.Sprintf(`{"task_id":%q,"token":%d}`, task.ID, task.Token))
				n++
			}
		}
		var redriven struct {
			IDs []string `json:"task_ids"`
		}
		lost(&redriven, "operator_queue_redrive", fmt.Sprintf(`{"run":%q,"queue":"q"}`, run))
		var stats struct {
			Queues []struct{ Ready, Dead int }
		}
		first.want(&stats, "queue_stats", `{}`)
		if len(redriven.IDs) != 100 || stats.Queues[0].Ready != 100 || stats.Queues[0].Dead != 1 {
			t.Errorf("%d tasks redriven: %+v", len(redriven.IDs), stats)
		}
		lost(nil, "operator_actor_end", fmt.Sprintf(`{"run":%q,"path":"w"}`, run))
		lost(nil, "operator_actor_end", fmt.Sprintf(`{"run":%q,"path":"root"}`, run))
		lost(nil, "operator_run_remove", fmt.Sprintf(`{"run":%q}`, run))
		if why := op.refused("operator_run_remove", fmt.Sprintf(`{"run":%q}`, run)); !strings.Contains(why, "run") {
			t.Error(why)
		}
	})
}

// A list of all runs does not wait for a partition that nobody leads. It says which one
// is missing.
func TestAListOfRunsDoesWithoutAPartition(t *testing.T) {
	inStreet(t, 2, 4, func(s *street) {
		t := s.T
		op := s.operator(0)
		for _, run := range s.runs() {
			s.actor(op, run, "root", "root")
		}
		var list struct {
			Runs    []struct{ Run string }
			Missing []int
		}
		op.want(&list, "operator_tree", `{}`)
		if len(list.Runs) != 4 || list.Missing != nil {
			t.Errorf("all are led: %+v", list)
		}
		s.end(1)
		s.end(2)
		synctest.Wait()
		began := time.Now()
		op.want(&list, "operator_tree", `{}`)
		if took := time.Since(began); took > 3*time.Second {
			t.Errorf("it waited %v", took)
		}
		if len(list.Runs) != 2 || !slices.Equal(list.Missing, []int{1, 2}) {
			t.Errorf("two are not led: %+v", list)
		}
		op.refused("operator_tree", `{"limit":0}`)
		s.open(1, 0)
		s.open(2, 0)
		list.Missing = nil
		op.want(&list, "operator_tree", `{}`)
		if list.Missing != nil {
			t.Errorf("all are led again: %+v", list)
		}
	})
}

// Each server shows its own metrics to whoever may see them, whichever server knows the
// tokens.
func TestEachServerShowsItsMetrics(t *testing.T) {
	inStreet(t, 3, 4, func(s *street) {
		t := s.T
		op := s.operator(0)
		run := s.runs()[1]
		s.actor(op, run, "root", "root")
		var reader, operator struct{ Token string }
		op.want(&reader, "operator_token_issue", `{"name":"grafana","role":"reader"}`)
		op.want(&operator, "operator_token_issue", `{"name":"ci","role":"operator"}`)
		scrape := func(house int, token string) (int, string) {
			r, err := http.NewRequestWithContext(t.Context(), "GET", "http://localhost/metrics", nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Authorization", "Bearer "+token)
			resp, err := s.houses[house].client.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			text, err := io.ReadAll(resp.Body)
			if err != nil {
				t.Fatal(err)
			}
			return resp.StatusCode, string(text)
		}
		worker := s.actor(op, run, "w", "worker")
		for house := range s.houses {
			for _, token := range []string{reader.Token, operator.Token} {
				if code, text := scrape(house, token); code != 200 || text != fmt.Sprint("of house ", house) {
					t.Errorf("house %d: %d %s", house, code, text)
				}
			}
			for _, token := range []string{worker, "lha_nobody", ""} {
				if code, text := scrape(house, token); code != 401 && code != 403 {
					t.Errorf("house %d, token %q: %d %s", house, token, code, text)
				}
			}
		}
		op.want(nil, "operator_token_revoke", `{"name":"grafana"}`)
		for house := range s.houses {
			if code, _ := scrape(house, reader.Token); code != 401 {
				t.Errorf("house %d shows them to a token that was revoked: %d", house, code)
			}
		}
	})
}

// Events of a run are streamed by every server, whichever leads. A client that goes on
// at another server misses no event, and gets none twice.
func TestStreamsGoOnAtEveryDoor(t *testing.T) {
	inStreet(t, 3, 4, func(s *street) {
		t := s.T
		op := s.operator(0)
		var issued struct{ Token string }
		op.want(&issued, "operator_token_issue", `{"name":"grafana","role":"reader"}`)
		for n, run := range s.runs() {
			s.actor(op, run, "root", "root")
			p := s.program(n, s.actor(op, run, "w", "worker")).open()
			last, keys := "", []string{}
			for house := range s.houses {
				ctx, leave := context.WithCancel(t.Context())
				reader := s.program(house, issued.Token)
				resp, err := reader.client.Do(reader.request(ctx, "GET", "/runs/"+run+"/events/stream?key=x", "", "Last-Event-ID", last))
				if err != nil || resp.StatusCode != http.StatusOK {
					t.Fatalf("run %s at house %d: %v %v", run, house, resp, err)
				}
				id := p.want(201, "POST", "/leases", `{"key":"x"}`).text("lease_id")
				p.want(200, "DELETE", "/leases/"+id, "") // both are streamed as they happen
				for lines := bufio.NewScanner(resp.Body); len(keys) < 2*(house+1) && lines.Scan(); {
					if id, ok := strings.CutPrefix(lines.Text(), "id: "); ok {
						last = id
					}
					if kind, ok := strings.CutPrefix(lines.Text(), "event: "); ok {
						keys = append(keys, kind)
					}
				}
				leave()
				resp.Body.Close()
			}
			if got := strings.Join(keys, " "); got != strings.TrimSpace(strings.Repeat("lease_granted lease_released ", len(s.houses))) {
				t.Errorf("run %s: %s", run, got)
			}
		}
	})
}

// A session is told at once, at whichever server its program listens, that the
// operator took its lease away.
func TestNoticesComeThroughEveryDoor(t *testing.T) {
	inStreet(t, 3, 4, func(s *street) {
		t := s.T
		op := s.operator(0)
		for n, run := range s.runs() {
			s.actor(op, run, "root", "root")
			token := s.actor(op, run, "w", "worker")
			for house := range s.houses {
				p := s.program(house, token).open()
				p.want(201, "POST", "/leases", `{"key":"x"}`)
				ctx, leave := context.WithCancel(t.Context())
				resp, err := p.client.Do(p.request(ctx, "GET", "/session/notices", ""))
				if err != nil || resp.StatusCode != http.StatusOK {
					t.Fatalf("%s at server %d: %v %v", run, house, resp, err)
				}
				op.want(nil, "operator_lease_revoke", fmt.Sprintf(`{"run":%q,"scope":"run","key":"x","reason":"door %d"}`, run, house+n))
				lines := bufio.NewScanner(resp.Body)
				for lines.Scan() && !strings.Contains(lines.Text(), fmt.Sprint("door ", house+n)) {
				}
				if lines.Err() != nil {
					t.Errorf("%s at server %d: %v", run, house, lines.Err())
				}
				leave()
				resp.Body.Close()
			}
		}
	})
}

// In a rolling upgrade, a server that leads one partition calls tools of an older one that
// leads another. It says a hello that all versions accept.
func TestALinkSaysTheFirstHello(t *testing.T) {
	inStreet(t, 2, 2, func(s *street) {
		t := s.T
		said := make(chan server.Hello, 1)
		s.ways[1] = &server.Way{Over: context.Background(), Dial: func(context.Context) (net.Conn, error) {
			near, far := net.Pipe()
			go func() {
				defer far.Close()
				br := bufio.NewReader(far)
				_, err := br.ReadString('\n') // what is passed on
				if err == nil {
					_, err = br.Discard(4) // the length of a frame
				}
				line, lost := br.ReadBytes('\n')
				var h server.Hello
				if err != nil || lost != nil || json.Unmarshal(line, &h) != nil {
					return // it tries again, or the test is over
				}
				select {
				case said <- h:
				default: // it tries again
				}
			}()
			return near, nil
		}}
		op := s.operator(0)
		op.calls++
		op.call(op.calls, "operator_tree", fmt.Sprintf(`{"run":%q}`, s.runs()[1]))
		if h := <-said; h.Leasehold != 1 {
			t.Errorf("it said version %d", h.Leasehold)
		}
	})
}

package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	programs "github.com/leasehold/leasehold/client"
	"github.com/leasehold/leasehold/engine/postgres/postgrestest"
)

// A lease and a worker of a program survive the kill -9 of the server that it uses, be
// it one that leads or one that passes on; and each server's metrics say what it leads.
func TestAProgramOutlivesItsServers(t *testing.T) {
	t.Parallel()
	dsn := postgrestest.Database(t)
	servers := startMembers(t, dsn, 3)
	token := actorsOfRun(t, 1)[0]
	led := func(list ...*member) (sum float64, leaders int) {
		for _, s := range list {
			n := s.value("leasehold_partitions_led", nil)
			if sum += n; n > 0 {
				leaders++
			}
		}
		return sum, leaders
	}
	held := func(list ...*member) (sum float64) {
		for _, s := range list {
			sum += s.value("leasehold_leases_held", labels{"scope": "run"})
		}
		return sum
	}
	all, _ := led(servers...)
	if all < 1 {
		t.Fatalf("three servers lead %v partitions", all)
	}
	leads := func(s *member) bool { return s.value("leasehold_leases_held", labels{"scope": "run"}) > 0 }

	urls := func(list ...*member) (urls []string) {
		for _, s := range list {
			urls = append(urls, s.url)
		}
		return urls
	}
	c, err := programs.Open(t.Context(), programs.Options{Servers: urls(servers...), Token: token, Outage: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	lease, err := c.Acquire(t.Context(), "kept", programs.LeaseOptions{TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	if n := held(servers...); n != 1 {
		t.Errorf("one lease is held, and the servers count %v", n)
	}
	var mu sync.Mutex
	done := make(map[string]int)
	ctx, stop := context.WithCancel(t.Context())
	worked := make(chan error, 1)
	go func() {
		worked <- c.Work(ctx, programs.Worker{Queues: []string{"q"}, Concurrency: 4, TTL: time.Minute, Handle: func(ctx context.Context, task *programs.Task) (any, error) {
			mu.Lock()
			defer mu.Unlock()
			done[task.ID]++
			return nil, ctx.Err()
		}})
	}()
	work := func(when string) {
		t.Helper()
		for range 20 {
			id, err := c.Enqueue(t.Context(), programs.NewTask{Queue: "q", Payload: when})
			if err != nil {
				t.Fatalf("%s: %v", when, err)
			}
			if o, err := c.Wait(t.Context(), id); err != nil || o.State != "completed" {
				t.Fatalf("%s: %v %v", when, o, err)
			}
		}
		if err := context.Cause(lease.Context()); err != nil {
			t.Fatalf("%s: the lease: %v", when, err)
		}
		if _, err := lease.Gate(); err != nil {
			t.Fatalf("%s: the gate: %v", when, err)
		}
	}
	work("with all three")

	// The client asks the first first. If that leads, another is killed before, so that
	// one that passes on dies, too.
	alive := slices.Clone(servers)
	kill := func(s *member) {
		s.kill()
		alive = slices.DeleteFunc(alive, func(other *member) bool { return other == s })
	}
	first := alive[0]
	if leads(first) {
		kill(alive[1])
		work("when one that it does not use is killed")
	} else {
		kill(first)
		work("when the one that passes it on is killed")
	}
	leader := alive[slices.IndexFunc(alive, leads)]
	kill(leader)
	work("when the one that leads is killed")

	awaitTrue(t, "the last server leads everything", func() bool { n, leaders := led(alive...); return n == all && leaders == 1 })
	if n := held(alive...); n != 1 {
		t.Errorf("one lease is held, and the server that is left counts %v", n)
	}
	stop()
	if err := <-worked; err != nil {
		t.Error(err)
	}
	for id, times := range done {
		if times != 1 {
			t.Logf("task %s was begun %d times", id, times) // by a claim whose answer was lost
		}
	}
	if len(done) != 60 {
		t.Errorf("60 tasks were enqueued, and %d executed", len(done))
	}
	if err := lease.Release(t.Context()); err != nil {
		t.Error(err)
	}
}

// Clients leave a server that stands still, with a call that waits there, while the next
// leader still keeps their sessions. They are answered, and lose nothing, also when that
// server goes on and finds their connections closed.
func TestClientsLeaveAServerThatStandsStill(t *testing.T) {
	for name, leads := range map[string]bool{"that leads": true, "that passes on": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			leaveOneThatStandsStill(t, leads)
		})
	}
}

func leaveOneThatStandsStill(t *testing.T, leads bool) {
	t.Helper()
	dsn := postgrestest.Database(t)
	servers := startMembers(t, dsn, 2)
	first, second := servers[0], servers[1]
	tokens := actorsOfRun(t, 3)
	leader := first
	if !leads {
		first, second = second, first
	}
	open := func(token string, servers ...string) *programs.Client {
		c, err := programs.Open(t.Context(), programs.Options{Servers: servers, Token: token, Outage: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	acquire := func(c *programs.Client, key string) *programs.Lease {
		l, err := c.Acquire(t.Context(), key, programs.LeaseOptions{TTL: time.Hour})
		if err != nil {
			t.Error(err)
			return nil
		}
		return l
	}
	holder := open(tokens[0], second.url)
	held := []*programs.Lease{acquire(holder, "a"), acquire(holder, "b")}

	program := open(tokens[1], first.url, second.url)
	kept := acquire(program, "program")
	granted := make(chan *programs.Lease, 1)
	go func() { granted <- acquire(program, "a") }()
	cmd := testProgram(t, "mcp", "--server", first.url+","+second.url)
	cmd.Env = append(cmd.Env, "LEASEHOLD_TOKEN="+tokens[2])
	agent := runShimProgram(t, cmd)
	agent.handshake()
	agent.call(1, "run_lease_acquire", `{"key":"agent","ttl_secs":3600}`)
	before := agent.answer(1).Result.StructuredContent
	agent.call(2, "run_lease_acquire", `{"key":"b","ttl_secs":3600,"wait_secs":50}`)
	awaitTrue(t, "both wait", func() bool { return leader.value("leasehold_lease_waiters", labels{"scope": "run"}) == 2 })

	if err := first.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	awaitTrue(t, "the other leads", func() bool { return second.value("leasehold_partitions_led", nil) > 0 })
	for _, l := range held {
		if err := l.Release(t.Context()); err != nil {
			t.Error(err)
		}
	}
	got := agent.answer(2).Result
	if got.IsError || got.StructuredContent.Key != "b" {
		t.Errorf("the agent got %+v", got)
	}
	late := <-granted

	if err := first.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	awaitTrue(t, "it is ready again", func() bool {
		resp, err := http.Get(first.url + "/readyz")
		if err == nil {
			resp.Body.Close()
		}
		return err == nil && resp.StatusCode == http.StatusOK
	})
	agent.call(3, "run_lease_acquire", `{"key":"agent"}`)
	if after := agent.answer(3).Result.StructuredContent; !after.Reentrant || after.Token != before.Token {
		t.Errorf("the agent had %+v, and has %+v", before, after)
	}
	agent.call(4, "run_lease_acquire", `{"key":"b"}`)
	if after := agent.answer(4).Result.StructuredContent; !after.Reentrant || after.Token != got.StructuredContent.Token {
		t.Errorf("the agent was granted %+v, and has %+v", got, after)
	}
	for _, l := range []*programs.Lease{kept, late} {
		if l == nil {
			continue // that was said
		}
		if err := l.Release(t.Context()); err != nil {
			t.Errorf("the program: %v", err)
		}
	}
}

// While the database is away, no server of several is ready, whether it led or knew
// who did. Both are ready when it is back.
func TestNoServerIsReadyWithoutTheDatabase(t *testing.T) {
	t.Parallel()
	database := postgrestest.Start(t)
	servers := startMembers(t, database.DSN(), 2)
	ready := func(status int) (said string, all bool) {
		all = true
		for _, s := range servers {
			resp, err := http.Get(s.url + "/readyz")
			if err != nil {
				t.Fatal(err)
			}
			text, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			said += string(text)
			all = all && resp.StatusCode == status
		}
		return said, all
	}
	both := func() bool { _, all := ready(http.StatusOK); return all }
	awaitTrue(t, "both are ready", both)
	database.Kill()
	const why = "its database, which says who leads: its database does not answer"
	awaitTrue(t, "neither is ready, and both say why", func() bool {
		said, all := ready(http.StatusServiceUnavailable)
		return all && strings.Count(said, why) == len(servers)
	})
	// That is not only until they have given up what they led.
	for _, m := range servers {
		awaitTrue(t, "it leads no more", func() bool {
			out, err := testProgram(t, "call", "lease_list", "--socket", m.socket).CombinedOutput()
			return err != nil && strings.Contains(string(out), "does not lead at present")
		})
	}
	if said, all := ready(http.StatusServiceUnavailable); !all {
		t.Errorf("nobody leads, and they say\n%s", said)
	}
	database.Restart(t)
	awaitTrue(t, "both are ready again", both)
}

// A member is one of several servers of a database.
type member struct {
	*measured
	socket string
}

// startMembers starts the servers of a cluster. Commands find the first of them.
func startMembers(t *testing.T, dsn string, n int) (servers []*member) {
	t.Helper()
	newDir(t, "LEASEHOLD_POSTGRES="+dsn)
	secret := inDir(t, "secret")
	if err := os.WriteFile(secret, []byte(strings.Repeat("s", 40)), 0o600); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		servers = append(servers, startMember(t, fmt.Sprint("s", i), secret))
	}
	if err := os.Symlink(servers[0].socket, inDir(t, "s")); err != nil {
		t.Fatal(err)
	}
	return servers
}

func startMember(t *testing.T, name, secret string) *member {
	t.Helper()
	socket := inDir(t, name+".s")
	return &member{serveMeasured(t, "--single-node", "--listen", "127.0.0.1:0", "--cluster-secret", secret, "--state", inDir(t, name), "--socket", socket), socket}
}

// value is that of a series now; 0: there is none, as of what others lead.
func (m *member) value(name string, of labels) (sum float64) {
	m.Helper()
	for _, metric := range m.scrape()[name].GetMetric() {
		got := make(labels)
		for _, l := range metric.Label {
			got[l.GetName()] = l.GetValue()
		}
		if maps.Equal(got, of) {
			sum += metric.GetGauge().GetValue() + metric.GetCounter().GetValue()
		}
	}
	return sum
}

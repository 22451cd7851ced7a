package simulation

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasehold/leasehold/dispatch"
	mcp "github.com/leasehold/leasehold/dispatch/client"
	door "github.com/leasehold/leasehold/dispatch/server"
	"github.com/leasehold/leasehold/engine/postgres"
)

var clusterLoad = flag.Duration("cluster.load", 0, "print how much 12 runs do with one server and with three, for so long each; give -cluster.partitions=12")

// settled waits until so many servers lead all partitions, as evenly as they can.
func (h *house) settled(servers int) {
	ctx := context.Background()
	c, err := postgres.FindCluster(ctx, postgres.Options{DSN: h.dsn})
	if err != nil {
		h.t.Fatal(err)
	}
	defer c.Close()
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		look, err := c.Look(ctx)
		if err != nil || len(look.Servers) != servers {
			continue
		}
		least, most, all := *clusterOver, 0, 0
		for _, s := range look.Servers {
			n := look.LedBy(s.ID)
			least, most, all = min(least, n), max(most, n), all+n
		}
		if all == *clusterOver && most-least <= 1 {
			return
		}
	}
	h.t.Fatalf("%d servers do not share %d partitions evenly", servers, *clusterOver)
}

// runIn is the name of a run in a partition.
func runIn(partition int, prefix string) string {
	for n := 0; ; n++ {
		if run := fmt.Sprint(prefix, n); dispatch.PartitionOf(run, *clusterOver) == partition {
			return run
		}
	}
}

// add makes an actor and gives its token.
func (h *house) add(operator *mcp.Client, run, name, role string) string {
	h.t.Helper()
	answer, err := operator.Call(context.Background(), "operator_actor_add", map[string]any{"run": run, "name": name, "role": role})
	if err != nil {
		h.t.Fatal(err)
	}
	var made struct{ Token string }
	if err := json.Unmarshal(answer.Object, &made); err != nil {
		h.t.Fatal(err)
	}
	return made.Token
}

// connect connects to the socket of a server.
func (s *machine) connect(token string) *mcp.Client {
	s.h.t.Helper()
	nc, err := net.Dial("unix", s.path("s"))
	if err != nil {
		s.h.t.Fatal(err)
	}
	c, err := mcp.Connect(context.Background(), nc, door.Hello{Token: token}, "test", "1")
	if err != nil {
		s.h.t.Fatal(err)
	}
	return c
}

// apart kills a server, and checks that the clients of what others lead notice nothing.
func (h *house) apart() {
	h.settled(3)
	victim := h.leader(0)
	other := 1
	for ; other < *clusterOver && h.leader(other) == victim; other++ {
	}
	if other == *clusterOver {
		return // there is but one partition
	}
	run := runIn(other, fmt.Sprint("apart-", time.Now().UnixNano(), "-"))
	operator := h.operator()
	h.add(operator, run, "root", "root")
	token := h.add(operator, run, "w", "worker")
	operator.Close()
	c := h.leader(other).connect(token) // one connection, which must last
	defer c.Close()
	began := time.Now()
	victim.kill()
	calls := 0
	for time.Since(began) < 3*time.Second {
		answer, err := c.Call(context.Background(), "run_lease_acquire", map[string]any{"key": "a"})
		if err != nil {
			h.t.Errorf("a run that another server leads, %v after the kill: %v", time.Since(began), err)
			break
		}
		var lease struct {
			ID string `json:"lease_id"`
		}
		_ = json.Unmarshal(answer.Object, &lease)
		if _, err := c.Call(context.Background(), "run_lease_release", map[string]any{"lease_id": lease.ID}); err != nil {
			h.t.Errorf("a run that another server leads: %v", err)
			break
		}
		calls++
	}
	h.t.Logf("%d leases in a run of another server while one was killed", calls)
	victim.start()
}

// TestServersShareTheLoad prints how much work three servers do beside one.
func TestServersShareTheLoad(t *testing.T) {
	if *clusterLoad == 0 {
		t.Skip("this is for -cluster.load")
	}
	h := newHouse(t, 3)
	h.servers[0].start()
	operator := h.operator()
	var tokens []string
	for n := range 12 {
		run := fmt.Sprint("load-", n)
		h.add(operator, run, "root", "root")
		for w := range 4 {
			tokens = append(tokens, h.add(operator, run, fmt.Sprint("w", w), "worker"))
		}
	}
	operator.Close()
	h.settled(1)
	one := h.load(tokens, 1)
	h.servers[1].start()
	h.servers[2].start()
	h.settled(3)
	three := h.load(tokens, 3)
	t.Logf("12 runs over %d partitions, 48 clients: %.0f leases/s with one server, %.0f with three: ratio %.2f", *clusterOver, one, three, three/one)
}

// load has each client take and give back a lease of its own, through one of the first
// servers, and gives how many there were in a second.
func (h *house) load(tokens []string, servers int) float64 {
	var clients sync.WaitGroup
	var leases atomic.Int64
	until := time.Now().Add(*clusterLoad)
	for i, token := range tokens {
		c := h.servers[i%servers].connect(token)
		clients.Go(func() {
			defer c.Close()
			for time.Now().Before(until) {
				answer, err := c.Call(context.Background(), "run_lease_acquire", map[string]any{"key": fmt.Sprint("key-", i)})
				if err != nil {
					h.t.Error(err)
					return
				}
				var lease struct {
					ID string `json:"lease_id"`
				}
				_ = json.Unmarshal(answer.Object, &lease)
				if _, err := c.Call(context.Background(), "run_lease_release", map[string]any{"lease_id": lease.ID}); err != nil {
					h.t.Error(err)
					return
				}
				leases.Add(1)
			}
		})
	}
	clients.Wait()
	return float64(leases.Load()) / clusterLoad.Seconds()
}

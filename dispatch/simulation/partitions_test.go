package simulation

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"time"

	"github.com/leasehold/leasehold/dispatch"
	mcp "github.com/leasehold/leasehold/dispatch/client"
	door "github.com/leasehold/leasehold/dispatch/server"
	"github.com/leasehold/leasehold/engine/postgres"
)

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

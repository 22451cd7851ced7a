package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"
)

const cancelledAcquires = 500

// An acquire that is cancelled around its grant leaves nothing held, whatever
// the instant, through a shim too: before it reaches the daemon, or while its
// answer is on its way back. An answer that the client has seen before it
// cancels is its own to release.
func TestNoCancelledAcquireLeavesItsLeaseHeldThroughAShim(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	newDir(t)
	startDaemon(t)
	s, _ := startShim(t, "--name", "canceller")
	s.handshake()

	var mu sync.Mutex
	seen := make(map[string]string) // lease_id by request
	gaveUp := make(map[string]bool)
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
			if id := string(r.ID); !gaveUp[id] && r.Result.StructuredContent.LeaseID != "" {
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
		gaveUp[fmt.Sprint(n)] = !had
		mu.Unlock()
		if !had {
			s.send(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}`, n))
		}
	}
	catchUp()
	mu.Lock()
	t.Logf("%d were answered before they were cancelled", len(seen))
	for n, lease := range seen {
		s.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":"r%s","method":"tools/call","params":{"name":"run_lease_release","arguments":{"lease_id":%q}}}`, n, lease))
	}
	mu.Unlock()
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

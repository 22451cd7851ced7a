package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"testing"
	"time"
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

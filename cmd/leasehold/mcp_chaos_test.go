package main

import (
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// Clients contend for one lease while the daemon is killed, or told to end,
// again and again. None of them may notice more than a delay.
func TestClientsSeeOnlyDelayWhenTheDaemonGoes(t *testing.T) {
	t.Parallel()
	newDir(t)
	const clients, rounds = 6, 30
	var holders atomic.Int32
	var work sync.WaitGroup
	for n := range clients {
		s, _ := startShim(t, "--name", fmt.Sprintf("c%d", n))
		work.Go(func() {
			s.handshake()
			last := uint64(0)
			for i := range rounds {
				id := 10 + 2*i
				s.call(id, "run_lease_acquire", `{"key":"k","wait_secs":50}`)
				r := s.receive()
				if string(r.ID) != fmt.Sprint(id) || r.Error != nil || r.Result.IsError {
					t.Errorf("client %d: answer to %d: %+v %+v", n, id, r, r.Error)
					return
				}
				lease := r.Result.StructuredContent
				if h := holders.Add(1); h != 1 {
					t.Errorf("client %d: %d hold the lease", n, h)
				}
				if lease.Token <= last {
					t.Errorf("client %d: token %d after %d", n, lease.Token, last)
				}
				last = lease.Token
				time.Sleep(5 * time.Millisecond)
				holders.Add(-1)
				s.call(id+1, "run_lease_release", fmt.Sprintf(`{"lease_id":%q}`, lease.LeaseID))
				if r := s.receive(); string(r.ID) != fmt.Sprint(id+1) || r.Error != nil || r.Result.IsError {
					t.Errorf("client %d: answer to %d: %+v %+v", n, id+1, r, r.Error)
					return
				}
			}
			s.silent()
		})
	}
	done := make(chan struct{})
	go func() { work.Wait(); close(done) }()
	kills := 0
	for {
		select {
		case <-done:
			t.Logf("the daemon went %d times", kills)
			return
		case <-time.After(400 * time.Millisecond):
			if pid := daemonPID(t); pid != 0 {
				syscall.Kill(pid, []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM}[kills%2])
				kills++
			}
		}
	}
}

package fair

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
)

// A read that turns out to be long makes room for short ones, and waits for those
// that are long; the next begins when others had the processor for a while.
func TestLongReadsWaitForLongReadsOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		if left := runtime.GOMAXPROCS(0) - longTurns(); longTurns() > 1 && left < 2 {
			t.Errorf("long reads leave %d processors to others", left)
		}
		s := New(Limits{ActorConns: 9})
		begin := func() *Turn {
			sh, err := s.Take(uuid.New(), SocketConn)
			if err != nil {
				t.Fatal(err)
			}
			_, turn, err := sh.Turn(t.Context(), false)
			if err != nil {
				t.Fatal(err)
			}
			if err := turn.Begin(); err != nil {
				t.Fatal(err)
			}
			return turn
		}
		for range longTurns() {
			long := begin()
			if err := long.Long(); err != nil {
				t.Fatal(err)
			}
			long.End()
			time.AfterFunc(time.Second, long.GiveBack)
		}
		begin().End() // a short one
		start := time.Now()
		second := begin()
		if err := second.Long(); err != nil {
			t.Fatal(err)
		}
		if waited := time.Since(start); waited != time.Second+maxRest {
			t.Errorf("a second long read waited for %v", waited)
		}
		second.End()
		second.GiveBack()
		synctest.Wait()
	})
}

// TestRequestsAreSpread for each key by itself: a burst at once, and then one in each interval.
func TestRequestsAreSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Limits{})
		checkPace(t, s.Comings, 1, 2)
		checkPace(t, s.Openings, uuid.New(), uuid.New())
	})
}

func checkPace[K comparable](t *testing.T, p *Pace[K], key, other K) {
	t.Helper()
	waits := func(key K, want time.Duration) {
		t.Helper()
		owed, start := p.Owed(key), time.Now()
		p.Wait(t.Context(), key)
		if waited := time.Since(start); waited != want || max(owed, 0) != want {
			t.Errorf("a request waits %v, and was told to wait %v; want %v", waited, owed, want)
		}
	}
	if p.burst < 1 || p.every <= 0 {
		t.Errorf("%d at once and then one every %v is no bound", p.burst, p.every)
	}
	for range p.burst + 1 {
		waits(key, 0)
	}
	waits(key, p.every)
	waits(key, p.every)
	waits(other, 0)
	time.Sleep(10 * p.every)
	waits(key, 0)
}

// A request that gave up before its time delays no later one.
func TestARequestThatGivesUpDoesNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewPace[int](1, time.Second)
		p.Wait(t.Context(), 1)
		p.Wait(t.Context(), 1)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		p.Wait(ctx, 1)
		if owed := p.Owed(1); owed != time.Second {
			t.Errorf("the next request has to wait for %v", owed)
		}
	})
}

// A pace forgets keys, but none that still has to wait.
func TestAPaceForgetsWhatIsDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewPace[int](0, time.Second)
		for key := range maxPaced {
			p.Charge(key)
		}
		p.Charge(maxPaced)
		if len(p.next) != maxPaced+1 {
			t.Errorf("%d keys are kept of %d that are not due", len(p.next), maxPaced+1)
		}
		time.Sleep(time.Second + 1)
		p.Charge(0)
		if len(p.next) != 1 {
			t.Errorf("%d keys are kept, of which one is not due", len(p.next))
		}
	})
}

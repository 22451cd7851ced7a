package kvstore_test

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/kvstore"
	"github.com/leasehold/leasehold/registry"
)

// A waited is the result of a Wait, and how long it took.
type waited struct {
	entry   string
	reached bool
	after   time.Duration
	err     error
}

func (r *room) wait(ctx context.Context, path string, minVersion uint64, wait time.Duration) waited {
	start := time.Now()
	e, reached, err := r.Wait(ctx, r.path(path), minVersion, wait)
	return waited{show(e), reached, time.Since(start), err}
}

// start waits in a new goroutine and returns once the wait has begun.
func (r *room) start(ctx context.Context, path string, minVersion uint64, wait time.Duration) <-chan waited {
	c := make(chan waited, 1)
	go func() { c <- r.wait(ctx, path, minVersion, wait) }()
	synctest.Wait()
	return c
}

func TestWaitAnswersAtOnceWhatIsThere(t *testing.T) {
	inRoom(t, kvstore.Limits{}, func(t *testing.T, r *room) {
		r.set("/shared/a", `1`)
		r.set("/shared/a", `2`)
		for _, minVersion := range []uint64{0, 1, 2} {
			same(t, "wait", r.wait(t.Context(), "/shared/a", minVersion, 50*time.Second), waited{"/shared/a v2 2", true, 0, nil})
		}
		same(t, "not there, no wait", r.wait(t.Context(), "/shared/a", 3, 0), waited{"/shared/a v2 2", false, 0, nil})
		same(t, "nothing there, no wait", r.wait(t.Context(), "/shared/b", 0, 0), waited{"none", false, 0, nil})
	})
}

func TestWaitEndsWithTheWriteItWaitsFor(t *testing.T) {
	inRoom(t, kvstore.Limits{}, func(t *testing.T, r *room) {
		first := r.start(t.Context(), "/shared/a", 0, 50*time.Second)
		third := r.start(t.Context(), "/shared/a", 3, 50*time.Second)
		time.Sleep(time.Second)
		r.set("/shared/a", `1`)
		same(t, "first", <-first, waited{"/shared/a v1 1", true, time.Second, nil})
		r.set("/shared/a", `2`)
		r.delete("/shared/a")
		r.set("/shared/b", `3`) // another path, at the version that the test waits for
		time.Sleep(time.Second)
		r.set("/shared/a", `4`)
		same(t, "third", <-third, waited{"/shared/a v4 4", true, 2 * time.Second, nil})
	})
}

func TestWaitEndsAtItsDeadlineWithWhatIsThere(t *testing.T) {
	inRoom(t, kvstore.Limits{}, func(t *testing.T, r *room) {
		none := r.start(t.Context(), "/shared/a", 0, 5*time.Second)
		time.Sleep(5 * time.Second)
		same(t, "none", <-none, waited{"none", false, 5 * time.Second, nil})

		older := r.start(t.Context(), "/shared/a", 9, 5*time.Second)
		r.set("/shared/a", `1`)
		same(t, "older", <-older, waited{"/shared/a v1 1", false, 5 * time.Second, nil})

		gone := r.start(t.Context(), "/shared/a", 9, 5*time.Second)
		r.delete("/shared/a")
		same(t, "gone", <-gone, waited{"none", false, 5 * time.Second, nil})
	})
}

func TestWaitEndsWithItsContextAndSaysWhy(t *testing.T) {
	inRoom(t, kvstore.Limits{}, func(t *testing.T, r *room) {
		cause := errors.New("the client went away")
		ctx, cancel := context.WithCancelCause(t.Context())
		c := r.start(ctx, "/shared/a", 0, 50*time.Second)
		cancel(cause)
		same(t, "cancelled", <-c, waited{"none", false, 0, cause})
	})
}

func TestWaitRefusesWhatItCannotWaitFor(t *testing.T) {
	inRoom(t, kvstore.Limits{}, func(t *testing.T, r *room) {
		for _, wait := range []time.Duration{-1, registry.MaxWait + 1} {
			got := r.wait(t.Context(), "/shared/a", 0, wait)
			same(t, "argument", mustBe[*registry.ArgumentError](t, got.err).Argument, "wait_secs")
		}
		got := r.wait(t.Context(), "/leases/a", 0, time.Second)
		same(t, "argument", mustBe[*registry.ArgumentError](t, got.err).Argument, "path")
	})
}

// An interloper is an engine that calls afterView between the reads of a wait.
type interloper struct {
	engine.Engine
	afterView func()
}

func (i *interloper) View(ctx context.Context, fn func(engine.Tx) error) error {
	err := i.Engine.View(ctx, fn)
	if then := i.afterView; then != nil {
		i.afterView = nil
		then()
	}
	return err
}

func TestAWriteBetweenTheLookAndTheWaitIsNotMissed(t *testing.T) {
	inRoom(t, kvstore.Limits{}, func(t *testing.T, r *room) {
		eng := &interloper{Engine: r.eng, afterView: func() { r.set("/shared/a", `1`) }}
		store := kvstore.New(eng, r.Leases(), layerID, kvstore.Limits{})
		start := time.Now()
		e, reached, err := store.Wait(t.Context(), r.path("/shared/a"), 0, 50*time.Second)
		r.must(err)
		same(t, "waited", waited{show(e), reached, time.Since(start), nil}, waited{"/shared/a v1 1", true, 0, nil})
	})
}

// TestNoWakeUpIsLost lets writers meet callers that wait for exactly their
// writes, with every interleaving that the scheduler finds. A wait that missed
// its write would last until its deadline.
func TestNoWakeUpIsLost(t *testing.T) {
	inRoom(t, kvstore.Limits{}, func(t *testing.T, r *room) {
		const rounds = 500
		var wg sync.WaitGroup
		for range 4 {
			path := r.path("/peer/" + uuid.NewString() + "/x")
			turn := make(chan struct{}, 1)
			wg.Go(func() {
				for range turn {
					if _, err := r.Set(context.Background(), path, json.RawMessage(`1`), "W1"); err != nil {
						t.Error(err)
					}
				}
			})
			wg.Go(func() {
				defer close(turn)
				start := time.Now()
				for version := range uint64(rounds) {
					turn <- struct{}{}
					e, reached, err := r.Wait(context.Background(), path, version+1, 50*time.Second)
					if err != nil || !reached || e.Version != version+1 {
						t.Errorf("waited for version %d, got %s %v %v", version+1, show(e), reached, err)
						return
					}
				}
				if d := time.Since(start); d > time.Second {
					t.Errorf("the waits took %v", d)
				}
			})
		}
		wg.Wait()
	})
}

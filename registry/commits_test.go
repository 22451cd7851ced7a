package registry_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine/clock"
	"github.com/leasehold/leasehold/engine/memory"
	"github.com/leasehold/leasehold/engine/pebble"
	"github.com/leasehold/leasehold/registry"
)

// A slowStore counts the batches that are appended, and can hold up those who
// wait for one.
type slowStore struct {
	memory.Store
	mu      sync.Mutex
	batches int
	changed *sync.Cond
	through uint64 // batches up to here are confirmed; 0: all
	last    uint64
}

func (s *slowStore) Append(b memory.Batch) (uint64, error) {
	number, err := s.Store.Append(b)
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(b.Writes) > 0 {
		s.batches++
	}
	s.last = number
	return number, err
}

func (s *slowStore) Wait(number uint64, disk bool) error {
	s.mu.Lock()
	for s.through > 0 && number > s.through {
		s.changed.Wait()
	}
	s.mu.Unlock()
	return s.Store.Wait(number, disk)
}

// confirm lets batches up to a number be confirmed, or all.
func (s *slowStore) confirm(through uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.through = through
	s.changed.Broadcast()
}

func (s *slowStore) appended() (batches int, last uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.batches, s.last
}

// onSlowStore runs a story in a bubble, in a Core over a slowStore.
func onSlowStore(t *testing.T, story func(t *testing.T, s *slowStore, take func(who int, key string) <-chan registry.Grant, release func(who int, g registry.Grant) <-chan struct{})) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := new(slowStore)
		s.changed = sync.NewCond(&s.mu)
		eng, err := memory.Open(memory.Options{Clock: clock.Go(), Logf: t.Logf, Store: func(func(error)) (_ memory.Store, err error) {
			s.Store, err = pebble.OpenStore(pebble.Options{Dir: "state", FS: vfs.NewMem()})
			return s, err
		}})
		if err != nil {
			t.Fatal(err)
		}
		core := registry.New(eng, registry.Options{})
		if err := core.Recover(t.Context()); err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		tended := make(chan struct{})
		go func() { defer close(tended); _ = eng.WaitDue(ctx) }() // nothing becomes due in the story
		var holders []registry.Holder
		for i := range 8 {
			holders = append(holders, registry.Holder{Session: uuid.New(), Actor: uuid.New(), Path: fmt.Sprint("W", i)})
		}
		story(t, s, func(who int, key string) <-chan registry.Grant {
			c := make(chan registry.Grant, 1)
			go func() {
				g, err := core.Registry("run").Acquire(t.Context(), registry.Request{Key: key, Holder: holders[who], Wait: registry.MaxWait})
				if err != nil {
					t.Error(err)
				}
				c <- g
			}()
			synctest.Wait()
			return c
		}, func(who int, g registry.Grant) <-chan struct{} {
			c := make(chan struct{}, 1)
			go func() {
				if released, why, err := core.Release(t.Context(), holders[who], g.ID); !released || err != nil {
					t.Error(released, why, err)
				}
				c <- struct{}{}
			}()
			synctest.Wait()
			return c
		})
		stop()
		<-tended
		if err := eng.Close(); err != nil {
			t.Error(err)
		}
	})
}

// The holder's next place in line goes with the next release, so each hand-over
// costs one commit.
func TestAHandOverIsOneCommit(t *testing.T) {
	onSlowStore(t, func(t *testing.T, s *slowStore, take func(int, string) <-chan registry.Grant, release func(int, registry.Grant) <-chan struct{}) {
		var waits [8]<-chan registry.Grant
		for who := range waits {
			waits[who] = take(who, "baton")
		}
		before, _ := s.appended()
		const turns = 40
		for turn := range turns {
			who := turn % len(waits)
			g := <-waits[who]
			<-release(who, g)
			waits[who] = take(who, "baton")
		}
		after, _ := s.appended()
		t.Logf("%d hand-overs, %d commits", turns, after-before)
		if after-before > turns {
			t.Errorf("%d hand-overs took %d commits", turns, after-before)
		}
		for turn := range waits {
			release(turn, <-waits[turn])
		}
	})
}

// A waiter is told of its grant as soon as that is durable, whatever others have
// committed since.
func TestAGrantWaitsForNoLaterCommit(t *testing.T) {
	onSlowStore(t, func(t *testing.T, s *slowStore, take func(int, string) <-chan registry.Grant, release func(int, registry.Grant) <-chan struct{}) {
		first := <-take(0, "baton")
		second := take(1, "baton")
		_, last := s.appended()
		s.confirm(last)
		released := release(0, first)
		_, handedOver := s.appended()
		if handedOver == last || len(released)+len(second) > 0 {
			t.Fatalf("the release is in batch %d, after %d; answered: %d, told: %d", handedOver, last, len(released), len(second))
		}
		other := take(2, "other") // its commit comes after the hand-over's
		s.confirm(handedOver)
		synctest.Wait()
		if len(released) != 1 || len(second) != 1 || len(other) != 0 {
			t.Errorf("the hand-over is durable, and what came later is not: released %d, told %d, and the other %d", len(released), len(second), len(other))
		}
		s.confirm(0)
		release(1, <-second)
		release(2, <-other)
	})
}

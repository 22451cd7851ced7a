package client_test

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/leasehold/leasehold/client"
)

// Beside a request that is not answered, another is sent only if it is as
// large. When nothing is under way, whatever waits is sent.
func TestARequestBesideAnotherIsAsLarge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sent []int
		var mu sync.Mutex
		answer := make(map[int]chan struct{}) // by the number of calls in a request
		for _, calls := range []int{1, 4, 5, 2} {
			answer[calls] = make(chan struct{})
		}
		call := client.Combined(t.Context(), func(calls int) {
			mu.Lock()
			sent = append(sent, calls)
			mu.Unlock()
			<-answer[calls]
		})
		step := func(calls int, want ...int) {
			t.Helper()
			for range calls {
				go func() { _ = call() }()
				synctest.Wait()
			}
			if !slices.Equal(sent, want) {
				t.Fatalf("the requests have %v calls, want %v", sent, want)
			}
		}
		step(1, 1)
		step(1, 1, 1)
		step(4, 1, 1) // two are under way
		answer[1] <- struct{}{}
		synctest.Wait()
		step(0, 1, 1, 4)
		answer[1] <- struct{}{}
		synctest.Wait()
		step(3, 1, 1, 4) // too few to send beside four
		step(1, 1, 1, 4, 4)
		step(2, 1, 1, 4, 4)
		answer[4] <- struct{}{}
		synctest.Wait()
		step(0, 1, 1, 4, 4)
		answer[4] <- struct{}{}
		synctest.Wait()
		step(0, 1, 1, 4, 4, 2)
		answer[2] <- struct{}{}
		synctest.Wait()
	})
}

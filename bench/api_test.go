package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
)

// BenchmarkEnqueue is the time that one of b.N durable enqueues takes when so
// many workers share them:
//
//	go test -run - -bench Enqueue/workers=64 -cpuprofile cpu.prof
func BenchmarkEnqueue(b *testing.B) {
	forWorkers(b, func(b *testing.B, h *house, workers int) {
		share(b, workers, h.enqueue)
	})
}

// BenchmarkCycle is a claim and a submit, each durable.
func BenchmarkCycle(b *testing.B) {
	forWorkers(b, func(b *testing.B, h *house, workers int) {
		stock(b, h)
		share(b, workers, h.cycle(1))
	})
}

// BenchmarkCycleMany claims 100 at a time, and submits one by one.
func BenchmarkCycleMany(b *testing.B) {
	forWorkers(b, func(b *testing.B, h *house, workers int) {
		stock(b, h)
		share(b, workers, h.cycle(many))
	})
}

func forWorkers(b *testing.B, do func(b *testing.B, h *house, workers int)) {
	for _, workers := range []int{1, 8, 64} {
		b.Run(fmt.Sprintf("workers=%d", workers), func(b *testing.B) {
			h, err := openHouse(b.TempDir())
			if err != nil {
				b.Fatal(err)
			}
			defer h.close()
			b.ReportAllocs()
			do(b, h, workers)
			b.StopTimer()
		})
	}
}

// stock enqueues what the measured steps will take.
func stock(b *testing.B, h *house) {
	b.StopTimer()
	// Without the allocations and the time of the benchmark, but with its
	// profile: look at the steps below h.cycle there.
	spread(b, maxWorkers, b.N+maxWorkers*many, h.enqueue)
	b.StartTimer()
}

func share(b *testing.B, workers int, do step) {
	b.ResetTimer()
	spread(b, workers, b.N, do)
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "tasks/s")
}

// spread does n tasks, about.
func spread(b *testing.B, workers, n int, do step) {
	var done atomic.Int64
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for done.Load() < int64(n) {
				k, err := do(context.Background(), w)
				if err != nil {
					b.Error(err)
					return
				}
				done.Add(int64(k))
			}
		})
	}
	wg.Wait()
}

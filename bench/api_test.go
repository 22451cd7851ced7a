package main

import (
	"context"
	"fmt"
	"path/filepath"
	"runtime/pprof"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/pebble"
)

// BenchmarkEnqueue measures the time of one of b.N durable enqueues, shared by a
// number of workers. In a CPU profile the measured part has a label, and the
// preparation has none:
//
//	go test -run - -bench Enqueue/workers=64 -benchtime 200000x -cpuprofile cpu.prof
//	go tool pprof -top -cum -tagfocus measured bench.test cpu.prof
//
// locked-µs is the time that all transactions of one enqueue spent under the engine's
// lock. With one worker it is their cost; with many workers it includes interference.
// cpu-µs is the processor time of the process, including compactions. It varies
// least on a busy machine.
func BenchmarkEnqueue(b *testing.B) {
	forWorkers(b, func(b *testing.B, h *house, workers int) {
		share(b, h, workers, h.enqueue)
	})
}

// BenchmarkCycle measures a claim and a submit, each durable.
func BenchmarkCycle(b *testing.B) {
	forWorkers(b, func(b *testing.B, h *house, workers int) {
		stock(b, h)
		share(b, h, workers, h.cycle)
	})
}

// BenchmarkEnqueueMany enqueues 100 in a call.
func BenchmarkEnqueueMany(b *testing.B) {
	forWorkers(b, func(b *testing.B, h *house, workers int) {
		share(b, h, workers, h.enqueueMany)
	})
}

// BenchmarkCycleMany claims 100 in a call, and submits them in another.
func BenchmarkCycleMany(b *testing.B) {
	forWorkers(b, func(b *testing.B, h *house, workers int) {
		stock(b, h)
		share(b, h, workers, h.cycleMany)
	})
}

// BenchmarkClaim measures a claim alone.
func BenchmarkClaim(b *testing.B) {
	forWorkers(b, func(b *testing.B, h *house, workers int) {
		stock(b, h)
		share(b, h, workers, func(ctx context.Context, worker int) (int, error) {
			tasks, err := h.claim(ctx, worker, 1)
			return len(tasks), err
		})
	})
}

// BenchmarkClaimMany claims 100 at a time.
func BenchmarkClaimMany(b *testing.B) {
	forWorkers(b, func(b *testing.B, h *house, workers int) {
		stock(b, h)
		share(b, h, workers, func(ctx context.Context, worker int) (int, error) {
			tasks, err := h.claim(ctx, worker, many)
			return len(tasks), err
		})
	})
}

func forWorkers(b *testing.B, do func(b *testing.B, h *house, workers int)) {
	for _, workers := range []int{1, 8, 64} {
		b.Run(fmt.Sprintf("workers=%d", workers), func(b *testing.B) {
			eng, err := pebble.Open(pebble.Options{Dir: filepath.Join(b.TempDir(), "db")})
			if err != nil {
				b.Fatal(err)
			}
			h, err := newHouse(&timed{Engine: eng})
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

// stock enqueues the tasks that the measured steps will take.
func stock(b *testing.B, h *house) {
	b.StopTimer()
	spread(b, maxWorkers, b.N+maxWorkers*many, h.enqueue)
	b.StartTimer()
}

func share(b *testing.B, h *house, workers int, do step) {
	t := h.eng.(*timed)
	var used time.Duration
	pprof.Do(context.Background(), pprof.Labels("measured", b.Name()), func(context.Context) {
		settle(nil)
		t.locked.Store(0)
		used = cpuTime()
		b.ResetTimer()
		spread(b, workers, b.N, do)
		b.StopTimer()
		used = cpuTime() - used
	})
	b.ReportMetric(float64(used.Microseconds())/float64(b.N), "cpu-µs/op")
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "tasks/s")
	b.ReportMetric(float64(t.locked.Load())/float64(b.N)/1e3, "locked-µs/op")
}

// spread does about n tasks.
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

// A timed engine adds up the time that rules take.
type timed struct {
	engine.Engine
	locked atomic.Int64
}

func (t *timed) Update(ctx context.Context, fn func(engine.Tx) error) error {
	return t.Engine.Update(ctx, func(tx engine.Tx) error {
		start := time.Now()
		defer func() { t.locked.Add(int64(time.Since(start))) }()
		return fn(tx)
	})
}

package registry_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	pebbledb "github.com/cockroachdb/pebble/v2"
	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/pebble"
	"github.com/leasehold/leasehold/registry"
)

// roundTime is how long each side of a comparison runs in a round. An
// iteration of a benchmark is one round of both sides.
const roundTime = 400 * time.Millisecond

func benchCore(b *testing.B) (*pebble.Engine, *registry.Core) {
	eng, err := pebble.Open(pebble.Options{Dir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { eng.Close() })
	core := registry.New(eng, registry.Options{})
	if err := core.Recover(b.Context()); err != nil {
		b.Fatal(err)
	}
	return eng, core
}

func benchBare(b *testing.B) *pebbledb.DB {
	db, err := pebbledb.Open(b.TempDir(), &pebbledb.Options{
		FormatMajorVersion: pebbledb.FormatNewest, MemTableSize: 64 << 20, MemTableStopWritesThreshold: 4,
	})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { db.Close() })
	return db
}

// leaseBytes is what a grant writes besides its key.
var leaseBytes = make([]byte, 104)

// BenchmarkAcquireRelease compares durable acquires and releases of distinct
// keys with a bare Pebble that commits the same bytes with Sync, a set for the
// acquire and a delete for the release:
//
//	go test -run - -bench AcquireRelease -benchtime 9x ./registry
func BenchmarkAcquireRelease(b *testing.B) {
	for _, goroutines := range []int{1, 8, 64} {
		b.Run(fmt.Sprintf("goroutines=%d", goroutines), func(b *testing.B) {
			_, core := benchCore(b)
			db := benchBare(b)
			scope := "run:" + uuid.NewString()
			r := core.Registry(scope)
			var ours, bare []float64
			for b.Loop() {
				bare = append(bare, rate(b, goroutines, func(g, i int) error {
					key := fmt.Appendf(nil, "lease/%s\x00file-%d-%d", scope, g, i)
					if err := db.Set(key, leaseBytes, pebbledb.Sync); err != nil {
						return err
					}
					return db.Delete(key, pebbledb.Sync)
				}))
				ours = append(ours, rate(b, goroutines, func(g, i int) error {
					req := registry.Request{Key: fmt.Sprintf("file-%d-%d", g, i), Holder: benchHolders[g]}
					l, err := r.Acquire(context.Background(), req)
					if err != nil {
						return err
					}
					_, _, err = core.Release(context.Background(), req.Holder, l.ID)
					return err
				}))
			}
			report(b, 2*median(ours), 2*median(bare), "commits/s")
		})
	}
}

// BenchmarkHandOver compares the time from a release to the next grant of one
// contended key, as its parties see it, with one bare commit.
func BenchmarkHandOver(b *testing.B) {
	eng, core := benchCore(b)
	db := benchBare(b)
	r := core.Registry("run:" + uuid.NewString())
	inLine := func() (n int) {
		eng.View(b.Context(), func(tx engine.Tx) error {
			if s, ok := r.Standing(tx, "x"); ok {
				n = len(s.Waiters)
			}
			return nil
		})
		return n
	}
	acquire := func(g int, wait time.Duration) (registry.Grant, error) {
		return r.Acquire(context.Background(), registry.Request{Key: "x", Holder: benchHolders[g], Wait: wait})
	}
	held, err := acquire(0, 0)
	if err != nil {
		b.Fatal(err)
	}
	var ours, bare []float64
	for i := 0; b.Loop(); i++ {
		for range 50 {
			start := time.Now()
			if err := db.Set([]byte("lease/x"), leaseBytes, pebbledb.Sync); err != nil {
				b.Fatal(err)
			}
			bare = append(bare, time.Since(start).Seconds())

			i++
			got := make(chan registry.Grant)
			go func() {
				g, err := acquire(i%64, 10*time.Second)
				if err != nil {
					b.Error(err)
				}
				got <- g
			}()
			for inLine() == 0 {
				time.Sleep(50 * time.Microsecond)
			}
			start = time.Now()
			go core.Release(context.Background(), held.Holder, held.ID)
			held = <-got
			ours = append(ours, time.Since(start).Seconds())
		}
	}
	b.ReportMetric(median(ours)*1e6, "hand-over-µs")
	b.ReportMetric(median(bare)*1e6, "bare-µs")
	b.ReportMetric(median(ours)/median(bare), "ratio")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkRenew is a renewal beside a bare commit: it writes nothing.
func BenchmarkRenew(b *testing.B) {
	_, core := benchCore(b)
	db := benchBare(b)
	l, err := core.Registry("run").Acquire(context.Background(), registry.Request{Key: "x", Holder: benchHolders[0]})
	if err != nil {
		b.Fatal(err)
	}
	var ours, bare []float64
	for b.Loop() {
		bare = append(bare, rate(b, 1, func(g, i int) error { return db.Set([]byte("lease/x"), leaseBytes, pebbledb.Sync) }))
		ours = append(ours, rate(b, 1, func(g, i int) error {
			_, err := core.Renew(context.Background(), benchHolders[0], l.ID, time.Minute)
			return err
		}))
	}
	report(b, median(ours), median(bare), "ops/s")
}

func report(b *testing.B, ours, bare float64, unit string) {
	b.ReportMetric(ours, "ours-"+unit)
	b.ReportMetric(bare, "bare-"+unit)
	b.ReportMetric(ours/bare, "ratio")
	b.ReportMetric(0, "ns/op")
}

var benchHolders = func() (holders [64]registry.Holder) {
	for i := range holders {
		holders[i] = registry.Holder{Session: uuid.New(), Actor: uuid.New(), Path: "S1→W1"}
	}
	return holders
}()

// rate gives how many rounds of op a second the goroutines get done together.
func rate(b *testing.B, goroutines int, op func(g, i int) error) float64 {
	var wg sync.WaitGroup
	counts := make([]int, goroutines)
	start := time.Now()
	for g := range goroutines {
		wg.Go(func() {
			for i := 0; time.Since(start) < roundTime; i++ {
				if err := op(g, i); err != nil {
					b.Error(err)
					return
				}
				counts[g]++
			}
		})
	}
	wg.Wait()
	total := 0
	for _, n := range counts {
		total += n
	}
	return float64(total) / time.Since(start).Seconds()
}

func median(xs []float64) float64 {
	xs = slices.Sorted(slices.Values(xs))
	return xs[len(xs)/2]
}

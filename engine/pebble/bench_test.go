package pebble_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	pebbledb "github.com/cockroachdb/pebble/v2"
	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/pebble"
)

// roundTime is how long each side of a comparison runs in a round.
const roundTime = 500 * time.Millisecond

// BenchmarkCommit compares Updates, a row put and then deleted by each
// goroutine, with Sync commits of the same bytes to a bare Pebble with the
// same options. Each iteration is one round of both:
//
//	go test -run - -bench Commit -benchtime 9x ./engine/pebble
//
// The rows are hot, or cold, or hot with rules that take 2.5 µs.
func BenchmarkCommit(b *testing.B) {
	for name, ours := range map[string]commitFunc{"hot": commitHot, "cold": commitCold, "rules": commitRules} {
		b.Run(name, func(b *testing.B) { compareCommits(b, ours) })
	}
}

type commitFunc func(e *pebble.Engine, g, i int) error

func compareCommits(b *testing.B, commit commitFunc) {
	for _, goroutines := range []int{1, 8, 64} {
		b.Run(fmt.Sprintf("goroutines=%d", goroutines), func(b *testing.B) {
			e, err := pebble.Open(pebble.Options{Dir: b.TempDir()})
			if err != nil {
				b.Fatal(err)
			}
			defer e.Close()
			db, err := pebble.OpenBare(b.TempDir())
			if err != nil {
				b.Fatal(err)
			}
			defer db.Close()
			var ours, bare []float64
			for b.Loop() {
				bare = append(bare, rate(b, goroutines, func(g, i int) error { return commitBare(db, g, i) }))
				ours = append(ours, rate(b, goroutines, func(g, i int) error { return commit(e, g, i) }))
			}
			b.ReportMetric(median(bare), "bare/s")
			b.ReportMetric(median(ours), "ours/s")
			ratios := make([]float64, len(ours))
			for i := range ours {
				ratios[i] = ours[i] / bare[i]
			}
			b.ReportMetric(median(ratios), "ratio")
			b.ReportMetric(0, "ns/op")
		})
	}
}

var benchOwner = uuid.MustParse("5bd2a4b6-5b6f-4b6e-8f0c-0a1b2c3d4e5f")

const benchValue = "forty-five bytes of value, as a claim may hold"

func benchKey(g, i int) string { return fmt.Sprintf("lease/run/%04d/%09d", g, i/2) }

func commitHot(e *pebble.Engine, g, i int) error { return commitAfter(e, g, i, 0) }

func commitRules(e *pebble.Engine, g, i int) error { return commitAfter(e, g, i, 2500) }

func commitAfter(e *pebble.Engine, g, i int, rules time.Duration) error {
	key := benchKey(g, i)
	return e.Update(context.Background(), func(tx engine.Tx) error {
		if rules != 0 {
			for start := time.Now(); time.Since(start) < rules; {
			}
		}
		if i%2 == 1 {
			tx.Delete(key)
			return nil
		}
		tx.Put(engine.Row{Key: key, Value: benchValue, Owner: benchOwner, Due: tx.Now().Add(time.Minute)})
		return nil
	})
}

func commitCold(e *pebble.Engine, g, i int) error {
	key := engine.Cold + benchKey(g, i)
	return e.Update(context.Background(), func(tx engine.Tx) error {
		if i%2 == 1 {
			tx.Delete(key)
			return nil
		}
		tx.Put(engine.Row{Key: key, Value: benchOwner.String()[:24] + benchValue})
		return nil
	})
}

func commitBare(db *pebbledb.DB, g, i int) error {
	key := []byte("\x01" + benchKey(g, i))
	batch := db.NewBatch()
	if i%2 == 1 {
		_ = batch.Delete(key, nil)
	} else {
		_ = batch.Set(key, []byte(strings.Repeat("x", 1+16+8)+benchValue), nil)
	}
	if err := batch.Commit(pebbledb.Sync); err != nil {
		return err
	}
	return batch.Close()
}

var rounds int // so that no two rounds share a key

// rate gives how many commits a second the goroutines get done together.
func rate(b *testing.B, goroutines int, commit func(g, i int) error) float64 {
	rounds++
	base := rounds * 10_000_000
	var wg sync.WaitGroup
	counts := make([]int, goroutines)
	start := time.Now()
	for g := range goroutines {
		wg.Go(func() {
			for i := 0; time.Since(start) < roundTime || i%2 == 1; i++ {
				if err := commit(g, base+i); err != nil {
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

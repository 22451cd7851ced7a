package pebble_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/pebble"
)

// BenchmarkMillion tells what a million live claims cost: bytes of memory for
// each beyond its key, nanoseconds to renew or to find one at random, and the
// time it takes to recover them all.
//
//	go test -run - -bench Million -benchtime 1x ./engine/pebble
func BenchmarkMillion(b *testing.B) {
	const claims, owners = 1_000_000, 1000
	for b.Loop() {
		dir := b.TempDir()
		e := mustOpen(b, pebble.Options{Dir: dir})
		ids := make([]uuid.UUID, owners)
		for i := range ids {
			ids[i] = uuid.New()
		}
		key := func(i int) string { return fmt.Sprintf("claim/%018d", uint64(i)*0x9e3779b97f4a7c15%1e18) }
		claim := func(tx engine.Tx, i int) engine.Row {
			return engine.Row{Key: key(i), Value: benchValue, Owner: ids[i%owners], Due: tx.Now().Add(time.Minute + time.Duration(rand.IntN(1e9)))}
		}
		base := heapInUse()
		for i := 0; i < claims; i += 1000 {
			mustUpdate(b, e, func(tx engine.Tx) {
				for j := range 1000 {
					tx.Put(claim(tx, i+j))
				}
			})
		}
		b.ReportMetric(float64(heapInUse()-base)/claims-24, "bytes/claim")
		each := func(what string, do func(tx engine.Tx, i int)) {
			const n = 200_000
			var took time.Duration
			mustUpdate(b, e, func(tx engine.Tx) {
				start := time.Now()
				for range n {
					do(tx, rand.IntN(claims))
				}
				took = time.Since(start)
			})
			b.ReportMetric(float64(took.Nanoseconds())/n, what)
		}
		each("ns/get", func(tx engine.Tx, i int) { tx.Get(key(i)) })
		each("ns/renew", func(tx engine.Tx, i int) { tx.Touch(claim(tx, i)) })
		if err := e.Close(); err != nil {
			b.Fatal(err)
		}
		e = nil
		base = heapInUse()
		start := time.Now()
		e = mustOpen(b, pebble.Options{Dir: dir})
		b.ReportMetric(time.Since(start).Seconds(), "s/recovery")
		b.ReportMetric(float64(heapInUse()-base)/claims-24, "bytes/recovered")
		mustClose(b, e)
	}
}

// BenchmarkOpen compares an Open of a million claims, and a Touch of them all
// as after a restart, with a bare scan of the same rows. An iteration is one of
// each:
//
//	go test -run - -bench Open -benchtime 5x ./engine/pebble
func BenchmarkOpen(b *testing.B) {
	const claims, owners = 1_000_000, 1000
	dir := b.TempDir()
	e := mustOpen(b, pebble.Options{Dir: dir})
	ids := make([]uuid.UUID, owners)
	for i := range ids {
		ids[i] = uuid.New()
	}
	for i := 0; i < claims; i += 1000 {
		mustUpdate(b, e, func(tx engine.Tx) {
			for range 1000 {
				tx.Put(engine.Row{Key: "lease/queue/" + uuid.NewString(), Value: benchValue, Owner: ids[rand.IntN(owners)], Due: tx.Now().Add(time.Minute)})
			}
		})
	}
	mustClose(b, e)
	var scanned, opened, revised []float64
	took := func(list *[]float64, do func()) {
		runtime.GC()
		start := time.Now()
		do()
		*list = append(*list, time.Since(start).Seconds())
	}
	for b.Loop() {
		took(&scanned, func() { bareScan(b, dir) })
		took(&opened, func() { e = mustOpen(b, pebble.Options{Dir: dir}) })
		took(&revised, func() { touchAll(b, e) })
		mustClose(b, e)
		e = nil
	}
	b.ReportMetric(median(scanned), "s/scan")
	b.ReportMetric(median(opened), "s/open")
	b.ReportMetric(median(revised), "s/touch")
	b.ReportMetric((median(opened)+median(revised))/median(scanned), "ratio")
	b.ReportMetric(0, "ns/op")
}

// touchAll gives each row another due time, in bounded steps.
func touchAll(b *testing.B, e *pebble.Engine) {
	for from, more := "lease/", true; more; {
		mustUpdate(b, e, func(tx engine.Tx) {
			n := 0
			more = false
			for row := range tx.ScanFrom("lease/", from) {
				if n++; n > 1000 {
					from, more = row.Key, true
					break
				}
				row.Due = tx.Now().Add(time.Minute)
				tx.Touch(row)
			}
		})
	}
}

func bareScan(b *testing.B, dir string) {
	db, err := pebble.OpenBare(dir)
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	it, err := db.NewIter(nil)
	if err != nil {
		b.Fatal(err)
	}
	n := 0
	for ok := it.First(); ok; ok = it.Next() {
		n += len(it.Key()) + len(it.Value())
	}
	if err := it.Close(); err != nil || n == 0 {
		b.Fatal(n, err)
	}
}

func heapInUse() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

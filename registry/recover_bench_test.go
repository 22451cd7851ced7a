package registry_test

import (
	"runtime"
	"testing"
	"time"

	pebbledb "github.com/cockroachdb/pebble/v2"
	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/pebble"
	"github.com/leasehold/leasehold/registry"
)

// BenchmarkRecover compares a restart with a million claims, that is Open and
// Recover, with a bare scan of the same rows, and tells the memory of a claim
// beyond its 16 bytes of id. An iteration is one of each:
//
//	go test -run - -bench Recover -benchtime 5x ./registry
func BenchmarkRecover(b *testing.B) {
	const claims = 1_000_000
	dir := b.TempDir()
	eng, core := openCore(b, dir)
	claimMillion(b, eng, core, claims)
	if err := eng.Close(); err != nil {
		b.Fatal(err)
	}
	eng, core = nil, nil // lets go of them
	empty := heap()
	var scanned, opened, recovered, bytes []float64
	for b.Loop() {
		scanned = append(scanned, seconds(func() { scanBare(b, dir) }))
		opened = append(opened, seconds(func() {
			var err error
			if eng, err = pebble.Open(pebble.Options{Dir: dir}); err != nil {
				b.Fatal(err)
			}
		}))
		core = registry.New(eng, registry.Options{})
		start := time.Now()
		if err := core.Recover(b.Context()); err != nil {
			b.Fatal(err)
		}
		recovered = append(recovered, time.Since(start).Seconds())
		bytes = append(bytes, (heap()-empty)/claims-16)
		if err := eng.Close(); err != nil {
			b.Fatal(err)
		}
		eng, core = nil, nil
	}
	b.ReportMetric(median(bytes), "B/claim")
	b.ReportMetric(median(scanned), "s/scan")
	b.ReportMetric(median(opened), "s/open")
	b.ReportMetric(median(recovered), "s/recover")
	b.ReportMetric((median(opened)+median(recovered))/median(scanned), "ratio")
	b.ReportMetric(0, "ns/op")
}

func openCore(b *testing.B, dir string) (*pebble.Engine, *registry.Core) {
	eng, err := pebble.Open(pebble.Options{Dir: dir})
	if err != nil {
		b.Fatal(err)
	}
	core := registry.New(eng, registry.Options{})
	if err := core.Recover(b.Context()); err != nil {
		b.Fatal(err)
	}
	return eng, core
}

// claimMillion grants claims as package queue does: under a task's id, to one of
// a hundred workers.
func claimMillion(b *testing.B, eng engine.Engine, core *registry.Core, claims int) {
	workers := make([]registry.Holder, 100)
	for i := range workers {
		workers[i] = registry.Holder{Session: uuid.New(), Actor: uuid.New(), Path: "S1→W1"}
	}
	r := core.Registry("queue")
	for i := 0; i < claims; i += 1000 {
		err := eng.Update(b.Context(), func(tx engine.Tx) error {
			for n := range 1000 {
				r.Grant(tx, uuid.NewString(), workers[(i+n)%len(workers)], time.Duration(1+n%3)*time.Hour)
			}
			return nil
		})
		if err != nil {
			b.Fatal(err)
		}
	}
}

func seconds(do func()) float64 {
	runtime.GC()
	start := time.Now()
	do()
	return time.Since(start).Seconds()
}

func heap() float64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

func scanBare(b *testing.B, dir string) {
	db, err := pebbledb.Open(dir, &pebbledb.Options{FormatMajorVersion: pebbledb.FormatNewest, ReadOnly: true})
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

package queue_test

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	store "github.com/cockroachdb/pebble/v2"
	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine/pebble"
	"github.com/leasehold/leasehold/queue"
	"github.com/leasehold/leasehold/registry"
)

// claims is how many live claims the benchmarks have. They write all of them:
// a million take minutes, so fewer are the default.
func claims() int {
	if os.Getenv("LEASEHOLD_MILLION") != "" {
		return 1_000_000
	}
	return 100_000
}

// claimAll claims everything there is, for the ttl that ttl gives.
func (h *diskHouse) claimAll(ttl func(n int) time.Duration) {
	h.tb.Helper()
	var wg sync.WaitGroup
	for hand := range 8 {
		wg.Go(func() {
			w := someHolder()
			for n := hand; ; n += 8 {
				if len(h.claimFor(w, 100, ttl(n))) == 0 {
					return
				}
			}
		})
	}
	wg.Wait()
}

// tend does what is due, no more often than every gap.
func (h *diskHouse) tend(ctx context.Context, gap time.Duration) {
	for h.eng.WaitDue(ctx) == nil {
		time.Sleep(gap)
		err := h.TendDue(ctx)
		if err != nil && ctx.Err() == nil {
			h.tb.Error(err)
			return
		}
	}
}

func cpu() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkReaper expires a thousand of many live claims each second, for ten
// seconds an iteration, and prints the share of a core that this takes: with
// what retries them after their backoff, and what the store does of its own.
// The gap is how long who tends waits, so that more falls due at once.
//
//	LEASEHOLD_MILLION=1 go test ./queue -run '^$' -bench Reaper -benchtime 1x
func BenchmarkReaper(b *testing.B) {
	n := claims()
	h := openOnDisk(b, b.TempDir(), uuid.New())
	defer func() { h.close() }()
	h.fill(n)
	h.claimAll(func(int) time.Duration { return time.Hour })
	for _, gap := range []time.Duration{0, 10 * time.Millisecond} {
		b.Run(fmt.Sprintf("gap=%v", gap), func(b *testing.B) {
			var share float64
			for range b.N {
				share += h.reap(b, gap)
			}
			b.ReportMetric(100*share/float64(b.N), "%core")
			b.ReportMetric(0, "ns/op")
		})
	}
}

func (h *diskHouse) reap(b *testing.B, gap time.Duration) (share float64) {
	const perSecond, seconds = 1000, 10
	const doomed = perSecond * seconds
	h.fill(doomed)
	var wg sync.WaitGroup
	first := time.Now().Add(20 * time.Second)
	for hand := range 8 {
		w := someHolder()
		wg.Go(func() {
			for i := hand; i < doomed; i += 8 { // each has its own deadline
				h.claimFor(w, 1, time.Until(first.Add(time.Duration(i)*time.Second/perSecond)))
			}
		})
	}
	wg.Wait()
	runtime.GC()
	time.Sleep(time.Until(first))
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); h.tend(ctx, gap) }()
	was := cpu()
	time.Sleep(seconds * time.Second)
	used := cpu() - was
	time.Sleep(5 * time.Second) // backoffs
	stop()
	<-done
	w := someHolder()
	got := 0
	for n := -1; n != 0; {
		n = len(h.claimFor(w, 100, time.Hour))
		got += n
	}
	if got != doomed {
		b.Errorf("%d of %d came back", got, doomed)
	}
	return used.Seconds() / seconds
}

// BenchmarkLiveClaims measures the memory of a claim that is live, and how long
// a state with many takes to open, against a bare scan of the same keys.
func BenchmarkLiveClaims(b *testing.B) {
	n := claims()
	h := openOnDisk(b, b.TempDir(), uuid.New())
	h.fill(n)
	h = h.reopen()
	before := heap()
	h.claimAll(func(int) time.Duration { return time.Hour })
	h = h.reopen()
	each := (heap()-before)/float64(n) - 16 // beyond its id

	var opened, recovered, scanned time.Duration
	for b.Loop() {
		h.close()
		runtime.GC()
		began := time.Now()
		eng, err := pebble.Open(pebble.Options{Dir: h.dir})
		if err != nil {
			b.Fatal(err)
		}
		opened += time.Since(began)
		began = time.Now()
		core := registry.New(eng, registry.Options{})
		q := queue.New(eng, core, queue.Options{})
		if err := core.Recover(context.Background()); err != nil {
			b.Fatal(err)
		}
		if err := q.Recover(context.Background()); err != nil {
			b.Fatal(err)
		}
		recovered += time.Since(began)
		if err := eng.Close(); err != nil {
			b.Fatal(err)
		}
		scanned += bareScan(b, h.dir)
		h = openOnDisk(b, h.dir, h.run)
	}
	h.close()
	b.ReportMetric(each, "B/claim")
	b.ReportMetric(opened.Seconds()/float64(b.N), "s/open")
	b.ReportMetric(recovered.Seconds()/float64(b.N), "s/recover")
	b.ReportMetric(scanned.Seconds()/float64(b.N), "s/scan")
	b.ReportMetric(float64(opened+recovered)/float64(scanned), "ratio")
}

// bareScan opens the store and reads every row that is not cold.
func bareScan(b *testing.B, dir string) time.Duration {
	runtime.GC()
	began := time.Now()
	db, err := store.Open(dir+"/", &store.Options{ReadOnly: true, FormatMajorVersion: store.FormatNewest})
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	it, err := db.NewIter(&store.IterOptions{LowerBound: []byte{1}, UpperBound: []byte{2}})
	if err != nil {
		b.Fatal(err)
	}
	bytes := 0
	for ok := it.First(); ok; ok = it.Next() {
		bytes += len(it.Key()) + len(it.Value())
	}
	if err := it.Close(); err != nil || bytes == 0 {
		b.Fatal(bytes, err)
	}
	return time.Since(began)
}

package queue_test

import (
	"context"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
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

// claimAll claims everything there is, for the ttl that ttl gives, and tells how
// much that was.
func (h *diskHouse) claimAll(ttl func(n int) time.Duration) int {
	h.tb.Helper()
	var claimed atomic.Int64
	var wg sync.WaitGroup
	for hand := range 8 {
		wg.Go(func() {
			w := someHolder()
			for n := hand; ; n += 8 {
				got := len(h.claimFor(w, 100, ttl(n)))
				if got == 0 {
					return
				}
				claimed.Add(int64(got))
			}
		})
	}
	wg.Wait()
	return int(claimed.Load())
}

// tend does what is due until ctx ends.
func (h *diskHouse) tend(ctx context.Context) {
	for h.eng.WaitDue(ctx) == nil {
		if err := h.TendDue(ctx); err != nil && ctx.Err() == nil {
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

// rest returns when the store has done what it does of its own after a load.
func rest() {
	for quiet := 0; quiet < 10; quiet++ {
		was := cpu()
		time.Sleep(100 * time.Millisecond)
		if cpu()-was > 2*time.Millisecond {
			quiet = -1
		}
	}
}

// BenchmarkReaper expires a thousand of many live claims each second, and prints
// the share of a core that this takes: with what retries them after their backoff,
// and what the store does of its own. An iteration is half a minute, in which the
// memtable mostly fills up once, and the stream does not pause between two. The
// median leaves out what disturbs one of them; the mean is there to compare.
//
//	LEASEHOLD_MILLION=1 go test ./queue -run '^$' -bench Reaper -benchtime 5x -timeout 30m
func BenchmarkReaper(b *testing.B) {
	h := openOnDisk(b, b.TempDir(), uuid.New())
	n := claims()
	h.fill(n)
	h.claimAll(func(int) time.Duration { return time.Hour })
	b.Run("due=1000", func(b *testing.B) {
		const each, warm = 30 * time.Second, 5 * time.Second
		doomed := int(perSecond * (warm.Seconds() + each.Seconds()*float64(b.N)))
		first := h.doom(doomed)
		ctx, stop := context.WithCancel(context.Background())
		var tends sync.WaitGroup
		tends.Go(func() { h.tend(ctx) })
		time.Sleep(time.Until(first.Add(warm)))
		shares := make([]float64, b.N)
		for i := range shares {
			was := cpu()
			time.Sleep(each)
			shares[i] = 100 * (cpu() - was).Seconds() / each.Seconds()
		}
		time.Sleep(5 * time.Second) // backoffs
		stop()
		tends.Wait()
		if back := h.claimAll(func(int) time.Duration { return time.Hour }); back != doomed {
			b.Errorf("%d of %d came back", back, doomed)
		}
		b.ReportMetric(median(shares), "%core")
		b.ReportMetric(mean(shares), "mean%core")
		b.ReportMetric(0, "ns/op")
	})
	h.close()
}

const perSecond = 1000 // claims that expire

// doom enqueues and claims n tasks, whose claims expire one after the other, and
// gives when the first does.
func (h *diskHouse) doom(n int) (first time.Time) {
	h.fill(n)
	first = time.Now().Add(15*time.Second + time.Duration(n)*100*time.Microsecond)
	var wg sync.WaitGroup
	for hand := range 8 {
		w := someHolder()
		wg.Go(func() {
			for i := hand; i < n; i += 8 { // each has its own deadline
				h.claimFor(w, 1, time.Until(first.Add(time.Duration(i)*time.Second/perSecond)))
			}
		})
	}
	wg.Wait()
	runtime.GC()
	rest()
	if time.Now().After(first) {
		h.tb.Fatal("the machine is too slow to claim all before the first expires")
	}
	return first
}

func mean(of []float64) (mean float64) {
	for _, v := range of {
		mean += v / float64(len(of))
	}
	return mean
}

// BenchmarkLiveClaims measures the memory of a claim that is live, and how long
// a state with many takes to open, against a bare scan of the same keys. Times are
// medians.
func BenchmarkLiveClaims(b *testing.B) {
	n := claims()
	h := openOnDisk(b, b.TempDir(), uuid.New())
	h.fill(n)
	h = h.reopen()
	before := heap()
	h.claimAll(func(int) time.Duration { return time.Hour })
	h = h.reopen()
	each := (heap()-before)/float64(n) - 16 // beyond its id

	var opened, recovered, scanned, ratio []float64 // seconds, and their ratio
	for b.Loop() {
		h.close()
		runtime.GC()
		began := time.Now()
		eng, err := pebble.Open(pebble.Options{Dir: h.dir})
		if err != nil {
			b.Fatal(err)
		}
		opened = append(opened, time.Since(began).Seconds())
		began = time.Now()
		core := registry.New(eng, registry.Options{})
		q := queue.New(eng, core, queue.Options{})
		if err := core.Recover(context.Background()); err != nil {
			b.Fatal(err)
		}
		if err := q.Recover(context.Background()); err != nil {
			b.Fatal(err)
		}
		recovered = append(recovered, time.Since(began).Seconds())
		if err := eng.Close(); err != nil {
			b.Fatal(err)
		}
		scanned = append(scanned, bareScan(b, h.dir).Seconds())
		last := len(scanned) - 1
		ratio = append(ratio, (opened[last]+recovered[last])/scanned[last])
		h = openOnDisk(b, h.dir, h.run)
	}
	h.close()
	b.ReportMetric(each, "B/claim")
	b.ReportMetric(median(opened), "s/open")
	b.ReportMetric(median(recovered), "s/recover")
	b.ReportMetric(median(scanned), "s/scan")
	b.ReportMetric(median(ratio), "ratio")
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

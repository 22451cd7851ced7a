package pebble_test

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/pebble"
)

// BenchmarkBacklog tells what a million tasks that wait cost, each of an index
// row, a state row and 256 bytes of payload, all cold: bytes of memory for
// each, the time to open, and microseconds under the lock to find the next by
// a cursor, to read a state at random, and outside it to read a payload.
//
//	go test -run - -bench Backlog -benchtime 1x ./engine/pebble
//
// TASKS=10000000 makes it ten.
func BenchmarkBacklog(b *testing.B) {
	tasks := 1_000_000
	if n, err := strconv.Atoi(os.Getenv("TASKS")); err == nil {
		tasks = n
	}
	for b.Loop() {
		dir := b.TempDir()
		e := mustOpen(b, pebble.Options{Dir: dir})
		base := heapInUse()
		payload := make([]byte, 256)
		id := func(i int) string { return strconv.FormatUint(uint64(i)*0x9e3779b97f4a7c15, 36) }
		start := time.Now()
		for i := 0; i < tasks; i += 1000 {
			mustUpdate(b, e, func(tx engine.Tx) {
				for j := i; j < i+1000; j++ {
					for k := range len(payload) / 16 { // half of it can be compressed
						binary.BigEndian.PutUint64(payload[16*k:], rand.Uint64())
					}
					tx.Put(engine.Row{Key: fmt.Sprintf("~ready/q/%012d", j), Value: id(j)})
					tx.Put(engine.Row{Key: "~state/" + id(j), Value: benchValue})
					tx.Put(engine.Row{Key: "~task/" + id(j), Value: string(payload)})
				}
			})
		}
		b.ReportMetric(time.Since(start).Seconds(), "s/fill")
		b.ReportMetric(float64(heapInUse()-base)/float64(tasks), "bytes/task")
		if err := e.Close(); err != nil {
			b.Fatal(err)
		}
		start = time.Now()
		e = mustOpen(b, pebble.Options{Dir: dir})
		b.ReportMetric(float64(time.Since(start).Microseconds())/1000, "ms/open")
		const n = 50_000
		time.Sleep(time.Second)
		each := func(what string, do func(tx engine.Tx, i int)) {
			var took time.Duration
			for i := range n {
				mustUpdate(b, e, func(tx engine.Tx) {
					start := time.Now()
					do(tx, i)
					took += time.Since(start)
				})
			}
			b.ReportMetric(float64(took.Microseconds())/n, what)
		}
		each("µs/state", func(tx engine.Tx, _ int) { tx.Get("~state/" + id(rand.IntN(tasks))) })
		start = time.Now()
		for range n {
			if _, ok, err := e.Get(b.Context(), "~task/"+id(rand.IntN(tasks))); !ok || err != nil {
				b.Fatal(ok, err)
			}
		}
		b.ReportMetric(float64(time.Since(start).Microseconds())/n, "µs/payload")
		start = time.Now()
		for range n {
			if _, ok, err := e.Get(b.Context(), "~task/none"+id(rand.IntN(tasks))); ok || err != nil {
				b.Fatal(ok, err)
			}
		}
		b.ReportMetric(float64(time.Since(start).Microseconds())/n, "µs/missing")
		cursor := "~ready/q/"
		each("µs/next", func(tx engine.Tx, _ int) {
			for r := range tx.ScanFrom("~ready/q/", cursor) {
				cursor = r.Key
				tx.Delete(r.Key)
				return
			}
		})
		start = time.Now()
		rows := 0
		mustUpdate(b, e, func(tx engine.Tx) {
			for range tx.ScanFrom("~ready/q/", cursor) {
				if rows++; rows == 100_000 {
					return
				}
			}
		})
		b.ReportMetric(float64(time.Since(start).Nanoseconds())/float64(rows), "ns/row")
		b.ReportMetric(float64(heapInUse()-base)/float64(tasks), "bytes/after")
		if err := e.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

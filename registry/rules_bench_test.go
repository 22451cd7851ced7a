package registry

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/pebble"
)

// BenchmarkRules tells what an acquire and a release take of the time that
// nobody else has: the rules alone, a hundred of each in one transaction.
func BenchmarkRules(b *testing.B) {
	eng, err := pebble.Open(pebble.Options{Dir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	defer eng.Close()
	const each = 100
	core := New(eng, Options{})
	calls := make([]ask, each)
	for i := range calls {
		calls[i] = ask{waiter: waiter{
			Request: Request{TTL: DefaultTTL, Holder: Holder{Session: uuid.New(), Actor: uuid.New(), Path: "S1→W1"}},
			wants:   []Want{{Scope: "run:" + uuid.NewString(), Key: "file-" + uuid.NewString()}}, asker: uuid.New(),
		}}
	}
	ids := make([]uuid.UUID, each)
	b.ReportAllocs()
	for n := 0; b.Loop(); n++ {
		i := n % each
		if i != 0 {
			continue
		}
		err := eng.Update(b.Context(), func(tx engine.Tx) error {
			for i := range calls {
				g, err := core.look(tx, &calls[i], true)
				if err != nil {
					return err
				}
				ids[i] = g[0].ID
			}
			for i := range calls {
				if ok, _, err := core.release(tx, calls[i].Holder, ids[i]); !ok {
					return err
				}
			}
			return nil
		})
		if err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkEvents tells what the events of an acquire and a release cost 64 callers who
// each wait for their commits, whose syncs they share: the same calls in a scope whose
// events are recorded and in one that has none, one after the other in each round.
//
//	go test -run - -bench Events -benchtime 9x ./registry
func BenchmarkEvents(b *testing.B) {
	eng, err := pebble.Open(pebble.Options{Dir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	defer eng.Close()
	core := New(eng, Options{})
	var holders [64]Holder
	for i := range holders {
		holders[i] = Holder{Session: uuid.New(), Actor: uuid.New(), Path: "S1→W1"}
	}
	round := func(scope string) (seconds float64) {
		began := time.Now()
		var g errgroup.Group
		for n, h := range holders {
			g.Go(func() error {
				for i := range 50 {
					l, err := core.Registry(scope).Acquire(context.Background(), Request{Key: fmt.Sprint("file-", n, "-", i), Holder: h})
					if err != nil {
						return err
					}
					if _, _, err := core.Release(context.Background(), h, l.ID); err != nil {
						return err
					}
				}
				return nil
			})
		}
		if err := g.Wait(); err != nil {
			b.Fatal(err)
		}
		return time.Since(began).Seconds()
	}
	var with, without []float64
	for b.Loop() {
		with = append(with, round("run:"+uuid.NewString()))
		without = append(without, round("none:"+uuid.NewString()))
	}
	b.ReportMetric(middle(with)/middle(without), "ratio")
	b.ReportMetric(middle(with)*1e3, "with-ms")
	b.ReportMetric(middle(without)*1e3, "without-ms")
	b.ReportMetric(0, "ns/op")
}

func middle(xs []float64) float64 {
	slices.Sort(xs)
	return xs[len(xs)/2]
}

// BenchmarkHeldPaths tells how much more an acquire and a release of a path that overlaps
// with none cost while 100 000 others are held than while 100 are: the rules alone, of a
// file and of a directory with all below it, one state after the other in each round.
//
//	go test -run - -bench HeldPaths -benchtime 15x ./registry
func BenchmarkHeldPaths(b *testing.B) {
	const few, many, each = 100, 100_000, 200
	scope := "run:" + uuid.NewString()
	asks := func(key func(i int) string, n int) []ask {
		calls := make([]ask, n)
		for i := range calls {
			calls[i] = ask{waiter: waiter{
				Request: Request{TTL: MaxTTL, Holder: Holder{Session: uuid.New(), Actor: uuid.New(), Path: "S1→W1"}},
				wants:   []Want{{Scope: scope, Key: key(i)}}, asker: uuid.New(),
			}}
		}
		return calls
	}
	hold := func(n int) (*pebble.Engine, *Core) {
		eng, err := pebble.Open(pebble.Options{Dir: b.TempDir()})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { eng.Close() })
		core := New(eng, Options{MaxLeasesPerScope: 2 * many})
		for calls := range slices.Chunk(asks(func(i int) string { return fmt.Sprintf("file:src/m%d/deep/f%d.ts", i%300, i) }, n), 1000) {
			err := eng.Update(b.Context(), func(tx engine.Tx) error {
				for i := range calls {
					if _, err := core.look(tx, &calls[i], true); err != nil {
						return err
					}
				}
				return nil
			})
			if err != nil {
				b.Fatal(err)
			}
		}
		return eng, core
	}
	// took is how long the rules take for one acquire and its release, in nanoseconds.
	took := func(eng *pebble.Engine, core *Core, calls []ask) (ns float64) {
		err := eng.Update(b.Context(), func(tx engine.Tx) error {
			begin := time.Now()
			for i := range calls {
				list, err := core.look(tx, &calls[i], true)
				if err != nil {
					return err
				}
				if ok, _, err := core.release(tx, calls[i].Holder, list[0].ID); !ok {
					return err
				}
			}
			ns = float64(time.Since(begin).Nanoseconds()) / float64(len(calls))
			return nil
		})
		if err != nil {
			b.Fatal(err)
		}
		return ns
	}
	fewEngine, fewCore := hold(few)
	manyEngine, manyCore := hold(many)
	for _, what := range []struct {
		name string
		key  func(i int) string
	}{
		{"file", func(i int) string { return fmt.Sprintf("file:src/m%d/deep/new%d.ts", i%300, i) }},
		{"directory", func(i int) string { return fmt.Sprintf("file:src/new%d/**", i) }},
	} {
		calls := asks(what.key, each)
		b.Run(what.name, func(b *testing.B) {
			var ofFew, ofMany []float64
			for b.Loop() {
				ofFew = append(ofFew, took(fewEngine, fewCore, calls))
				ofMany = append(ofMany, took(manyEngine, manyCore, calls))
			}
			b.ReportMetric(middle(ofFew), "ns/held-100")
			b.ReportMetric(middle(ofMany), "ns/held-100000")
			b.ReportMetric(middle(ofMany)/middle(ofFew), "ratio")
			b.ReportMetric(0, "ns/op")
		})
	}
}

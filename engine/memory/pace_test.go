package memory

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold/engine"
)

// Whoever kept others waiting for a stretch rests for as long, but not for more
// than maxRest, and for a quarter of it where nobody else seems to be at work.
func TestLongWorkRests(t *testing.T) {
	for _, c := range []struct {
		name         string
		worked, want time.Duration
		others       uint64
	}{
		{"short", stretch - 1, 0, 1},
		{"alone", time.Second, maxRest / 4, 0},
		{"a stretch", stretch, stretch, 1},
		{"long", time.Second, maxRest, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var began atomic.Uint64
				p := pace{began: &began, since: time.Now()}
				began.Add(c.others)
				start := time.Now()
				p.rest(c.worked)
				if took := time.Since(start); took != c.want {
					t.Errorf("rested for %v, not %v", took, c.want)
				}
				start = time.Now() // nobody has come since
				p.rest(time.Second)
				if took := time.Since(start); c.worked >= stretch && took != maxRest/4 {
					t.Errorf("then rested for %v", took)
				}
			})
		})
	}
}

func TestLongScansRest(t *testing.T) {
	for others, want := range map[bool]time.Duration{false: 3 * maxRest / 4, true: 3 * maxRest} {
		synctest.Test(t, func(t *testing.T) {
			var began atomic.Uint64
			p := pace{began: &began, since: time.Now()}
			worked := 0
			yield := (&tx{pace: p}).between(func(engine.Row) bool {
				if others {
					began.Add(1)
				}
				worked++
				time.Sleep(time.Millisecond)
				return true
			})
			start := time.Now()
			for range 4*restRows - 1 {
				yield(engine.Row{})
			}
			if rested := time.Since(start) - time.Duration(worked)*time.Millisecond; rested != want {
				t.Errorf("with others %v: rested for %v, not %v", others, rested, want)
			}
		})
	}
}

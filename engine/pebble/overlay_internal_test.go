package pebble

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
)

// A set that takes others has the last write of each key, in order, and leaves
// those it takes as they are.
func TestAColdSetTakesOthers(t *testing.T) {
	for round := range 500 {
		r := rand.New(rand.NewPCG(uint64(round), 0))
		var all coldSet
		want := make(map[string]string)
		for set := range 4 {
			var s coldSet
			mine := make(map[string]string)
			for range r.IntN(12) {
				key := fmt.Sprintf("~%c/%02d", 'a'+r.IntN(3), r.IntN(30))
				mine[key] = fmt.Sprint(set)
				s.set(coldWrite{key: key, value: mine[key]})
			}
			all.take(&s)
			maps.Copy(want, mine)
			mustHold(t, &s, mine)
			mustHold(t, &all, want)
		}
	}
}

func mustHold(t *testing.T, s *coldSet, want map[string]string) {
	t.Helper()
	var keys []string
	for w := range s.all {
		keys = append(keys, w.key)
		if got := s.get(w.key); got == nil || got.value != want[w.key] {
			t.Fatalf("%s is %v, want %s", w.key, got, want[w.key])
		}
		if next := s.next("~", w.key, false); next == nil || next.key != w.key {
			t.Fatalf("from %s comes %v", w.key, next)
		}
	}
	sorted := slices.Sorted(maps.Keys(want))
	if !slices.Equal(keys, sorted) || s.n != len(keys) {
		t.Fatalf("has %d: %v, want %v", s.n, keys, sorted)
	}
	at, past := "~", false
	for _, key := range sorted {
		next := s.next("~", at, past)
		if next == nil || next.key != key {
			t.Fatalf("after %s comes %v, want %s", at, next, key)
		}
		at, past = key, true
	}
	if next := s.next("~", at, past); next != nil {
		t.Fatalf("after all comes %s", next.key)
	}
}

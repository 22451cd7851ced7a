package memory

import (
	"testing"
	"time"
)

// An instant that has passed is told the same each time, although the wall clock is read
// a little later than the running clock. A wall clock that is set is followed at once.
func TestWhatHasPassedIsToldTheSameEachTime(t *testing.T) {
	began := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	var passed, late, set time.Duration
	var c running
	granted := func() time.Time { // when nothing had passed
		now := began.Add(passed)
		told := tx{told: c.tellBy(now, now.Add(late+set))}
		return told.WallAt(began)
	}
	want := granted()
	for range 1000 {
		passed += 7 * time.Millisecond
		late = (late + 37*time.Microsecond) % time.Millisecond
		if at := granted(); !at.Equal(want) {
			t.Fatalf("after %v it was at %v, and before that at %v", passed, at, want)
		}
	}
	late = 0
	for _, set = range []time.Duration{time.Hour, -time.Hour, 2 * time.Millisecond, 0} {
		if at := granted(); !at.Equal(began.Add(set)) {
			t.Errorf("after the wall clock was set by %v, it was at %v", set, at)
		}
	}
}

package pebble

import "time"

// A clock starts at the wall clock's time and goes on by the monotonic one:
// it never goes back, whatever is done to the wall clock.
type clock struct{ start time.Time }

func newClock() clock { return clock{time.Now()} }

// now gives the time without a monotonic reading, so that it compares with
// times that were stored.
func (c clock) now() time.Time {
	return c.start.Round(0).Add(time.Since(c.start)).UTC()
}

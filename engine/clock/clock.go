// Package clock reads the clocks of this machine.
package clock

import (
	"sync"
	"time"
)

// A Clock is what an engine reads time from.
type Clock struct {
	// Boot names the life of the machine in which readings of Running can be
	// compared. If it is empty they never can, between two opens of a state.
	Boot string
	// Running reads a clock that goes on while the machine sleeps and that
	// nobody can set.
	Running func() time.Duration
	// Wall reads the wall clock.
	Wall func() time.Time
	// Sleeps says that the machine can sleep and that somebody can set its
	// wall clock. Timers stand still during a sleep, so whoever waits for an
	// instant reads the clock every second.
	Sleeps bool
}

// Machine reads the clocks of this machine: on Linux CLOCK_BOOTTIME, on macOS the
// clock behind mach_continuous_time.
func Machine() Clock {
	return Clock{Boot: Boot(), Running: Running, Wall: time.Now, Sleeps: true}
}

// Go reads the time of package time, which is a bubble's own within
// testing/synctest. It is for tests.
func Go() Clock {
	return Clock{
		Boot:    "go",
		Running: func() time.Duration { return time.Duration(time.Now().UnixNano()) },
		Wall:    time.Now,
	}
}

// Boot names the life of the machine; "" if that is not known. It is read once: it
// cannot change while the process lives.
var Boot = sync.OnceValue(readBootID)

// Running reads a clock that goes on while the machine sleeps and that nobody can
// set. Only differences of its readings mean anything.
func Running() time.Duration { return sinceBoot() }

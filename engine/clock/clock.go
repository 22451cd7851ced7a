// Package clock reads the clocks of this machine.
package clock

import (
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// A Clock is the source of time of an engine.
type Clock struct {
	// Boot identifies the boot of the machine within which readings of Running
	// can be compared. If it is empty, readings from before and after the state
	// is opened can never be compared.
	Boot string
	// Running reads a clock that runs while the machine sleeps and cannot be
	// set.
	Running func() time.Duration
	// Wall reads the wall clock.
	Wall func() time.Time
	// Sleeps reports whether the machine can sleep and its wall clock can be
	// set. Timers stop during a sleep, so a wait for an instant then reads the
	// clock every second.
	Sleeps bool
}

// Machine reads the clocks of this machine: on Linux CLOCK_BOOTTIME, on macOS the
// clock behind mach_continuous_time.
func Machine() Clock {
	return Clock{Boot: Boot(), Running: Running, Wall: time.Now, Sleeps: true}
}

// Go returns a clock on the time of package time, which in a testing/synctest
// bubble is the time of the bubble. It is for tests.
func Go() Clock {
	return Clock{
		Boot:    "go",
		Running: func() time.Duration { return time.Duration(time.Now().UnixNano()) },
		Wall:    time.Now,
	}
}

// Running reads a clock that runs while the machine sleeps and cannot be set.
// Only differences between its readings are meaningful.
func Running() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(clockID, &t); err != nil {
		panic("clock: the clock of the machine cannot be read: " + err.Error())
	}
	return time.Duration(t.Nano())
}

// Boot identifies the boot of the machine; "" if it is unknown. It is read only
// once, because it cannot change while the process lives.
var Boot = sync.OnceValue(readBootID)

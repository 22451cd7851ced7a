package clock

import (
	"time"

	"golang.org/x/sys/unix"
)

// Running reads CLOCK_MONOTONIC_RAW, which on macOS is mach_continuous_time: it
// runs during sleep, and is never adjusted.
func Running() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC_RAW, &t); err != nil {
		panic("clock: the clock of the machine cannot be read: " + err.Error())
	}
	return time.Duration(t.Nano())
}

func readBootID() string {
	id, _ := unix.Sysctl("kern.bootsessionuuid")
	return id
}

package clock

import (
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Running reads a clock that runs while the machine sleeps and cannot be set.
// Only differences between its readings are meaningful.
func Running() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		panic("clock: the clock of the machine cannot be read: " + err.Error())
	}
	return time.Duration(t.Nano())
}

func readBootID() string {
	b, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(b))
}

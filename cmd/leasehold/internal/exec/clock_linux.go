package exec

import (
	"time"

	"golang.org/x/sys/unix"
)

// now is an instant of the clock that goes on while the machine sleeps and that
// nobody can set. The clock of package time stands still during a sleep: after
// one, a lease that is long lost would look held. Instants of now are compared
// with each other only.
func now() time.Time {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		return time.Now()
	}
	return time.Unix(t.Unix())
}

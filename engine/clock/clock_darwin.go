package clock

import "golang.org/x/sys/unix"

// clockID is what macOS calls mach_continuous_time: it runs during sleep, and is
// never adjusted.
const clockID = unix.CLOCK_MONOTONIC_RAW

func readBootID() string {
	id, _ := unix.Sysctl("kern.bootsessionuuid")
	return id
}

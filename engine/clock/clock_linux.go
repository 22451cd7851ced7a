package clock

import (
	"os"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// sinceBoot reads CLOCK_BOOTTIME. It makes the system call without telling Go's
// scheduler, which otherwise may give the processor to others meanwhile, and
// the caller holds a lock that all of them want.
func sinceBoot() time.Duration {
	var t unix.Timespec
	if _, _, errno := unix.RawSyscall(unix.SYS_CLOCK_GETTIME, unix.CLOCK_BOOTTIME, uintptr(unsafe.Pointer(&t)), 0); errno != 0 {
		panic("clock: the clock of the machine cannot be read: " + errno.Error())
	}
	return time.Duration(t.Nano())
}

func readBootID() string {
	b, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(b))
}

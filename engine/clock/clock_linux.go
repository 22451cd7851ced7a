package clock

import (
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

const clockID = unix.CLOCK_BOOTTIME

func readBootID() string {
	b, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(b))
}

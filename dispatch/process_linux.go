package dispatch

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"sync"
)

// processStart names the instant at which a process started: the boot, and the
// ticks since. A zombie has ended.
func processStart(pid int) (string, bool) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", false
	}
	// The command, field 2, is in parentheses and may hold anything.
	i := bytes.LastIndexByte(stat, ')')
	if i < 0 {
		return "", false
	}
	fields := strings.Fields(string(stat[i+1:]))
	const state, startTime = 0, 22 - 3 // proc(5) numbers them from 1, and these begin with the third
	if len(fields) <= startTime || fields[state] == "Z" || fields[state] == "X" {
		return "", false
	}
	return bootID() + ":" + fields[startTime], true
}

var bootID = sync.OnceValue(func() string {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(id))
})

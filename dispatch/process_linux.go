package dispatch

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
)

// look reads a process from /proc. It started at the boot, and the ticks
// since. A zombie has ended.
func look(pid int) (p Process, ok bool) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return p, false
	}
	// The command, field 2, is in parentheses and may hold anything.
	i := bytes.LastIndexByte(stat, ')')
	if i < 0 {
		return p, false
	}
	fields := strings.Fields(string(stat[i+1:]))
	// proc(5) numbers them from 1, and these begin with the third.
	const state, parent, group, session, start = 0, 4 - 3, 5 - 3, 6 - 3, 22 - 3
	if len(fields) <= start || fields[state] == "Z" || fields[state] == "X" {
		return p, false
	}
	number := func(field int) int {
		n, bad := strconv.Atoi(fields[field])
		if bad != nil {
			err = bad
		}
		return n
	}
	p = Process{
		Peer:   Peer{PID: pid, Start: bootID() + ":" + fields[start]},
		Parent: number(parent), Group: number(group), Session: number(session),
	}
	return p, err == nil
}

var bootID = sync.OnceValue(func() string {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(id))
})

package main

import (
	"os"
	"strconv"
	"syscall"
	"unsafe"
)

// standBack lets everybody else have the processor first: every thread of this
// process, and those that they start.
func standBack() {
	const schedIdle = 5
	seen := make(map[int]bool)
	for again := true; again; {
		again = false
		threads, _ := os.ReadDir("/proc/self/task")
		for _, t := range threads {
			if id, _ := strconv.Atoi(t.Name()); !seen[id] {
				seen[id], again = true, true
				priority := int32(0)
				syscall.Syscall(syscall.SYS_SCHED_SETSCHEDULER, uintptr(id), schedIdle, uintptr(unsafe.Pointer(&priority)))
			}
		}
	}
}

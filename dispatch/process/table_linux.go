package process

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/leasehold/leasehold/engine/clock"
)

// openFiles lists the open files of this process. /dev/fd is a link to it that somebody
// must make: the kernel alone does not, as in a small virtual machine.
const openFiles = "/proc/self/fd"

// readTable reads all processes from /proc.
func readTable() ([]entry, error) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, fmt.Errorf("look at the processes: %w", err)
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("look at the processes: %w", err)
	}
	entries := make([]entry, 0, len(names))
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if e, ok := readEntry(pid); ok {
			entries = append(entries, e)
		}
	}
	return entries, nil
}

// readEntry reads one process. ok is false if there is none, or only a zombie.
func readEntry(pid int) (entry, bool) {
	e, dead, ok := readStat(pid)
	return e, ok && !dead
}

// readable reports whether the system describes a process, or its zombie.
func readable(pid int) bool {
	_, _, ok := readStat(pid)
	return ok
}

// readStat reads one process. dead reports whether it is a zombie.
func readStat(pid int) (e entry, dead, ok bool) {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return entry{}, false, false
	}
	// The command, field 2, is in parentheses and may contain any character.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	const state, parent, group, session, threads, start = 0, 1, 2, 3, 20 - 3, 22 - 3 // proc(5), less the first two
	if len(fields) <= start {
		return entry{}, false, false
	}
	// The main thread of a process may end before its other threads.
	s := fields[state]
	dead = s == "X" || s == "Z" && (fields[threads] == "1" || fields[threads] == "0")
	e.pid = pid
	for _, field := range []struct {
		text string
		to   *int
	}{{fields[parent], &e.parent}, {fields[group], &e.group}, {fields[session], &e.session}} {
		if *field.to, err = strconv.Atoi(field.text); err != nil {
			return entry{}, false, false
		}
	}
	e.start, err = strconv.ParseUint(fields[start], 10, 64)
	return e, dead, err == nil
}

func startOf(pid int) (uint64, bool) {
	e, ok := readEntry(pid)
	return e.start, ok
}

// readEnviron returns the environment of a process, or nil if it cannot be
// read.
func readEnviron(pid int) []byte {
	env, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	if err != nil {
		return nil
	}
	return env
}

// ofUser reports whether the real, effective and saved user of a process are
// all user. The owner of its directory in /proc is not enough: that is root for
// a process that may not be dumped.
func ofUser(pid, user int) bool {
	status, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return false
	}
	for line := range bytes.Lines(status) {
		if ids, ok := bytes.CutPrefix(line, []byte("Uid:")); ok {
			for _, id := range bytes.Fields(ids)[:3] {
				if string(id) != strconv.Itoa(user) {
					return false
				}
			}
			return true
		}
	}
	return false
}

// startText returns a start time as text. The boot is part of it because the
// ticks count from there.
func startText(ticks uint64) string {
	return clock.Boot() + ":" + strconv.FormatUint(ticks, 10)
}

func nameOf(pid int) string {
	name, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/comm")
	return strings.TrimSuffix(string(name), "\n")
}

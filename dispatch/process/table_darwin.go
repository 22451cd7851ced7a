package process

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"
)

const zombie = 5 // SZOMB of sys/proc.h

// openFiles lists the open files of this process.
const openFiles = "/dev/fd"

// readTable reads all processes from the kernel.
func readTable() ([]entry, error) {
	infos, err := unix.SysctlKinfoProcSlice("kern.proc.all")
	if err != nil {
		return nil, fmt.Errorf("look at the processes: %w", err)
	}
	entries := make([]entry, 0, len(infos))
	for i := range infos {
		if e, ok := entryOf(&infos[i]); ok {
			entries = append(entries, e)
		}
	}
	return entries, nil
}

func entryOf(info *unix.KinfoProc) (entry, bool) {
	p := &info.Proc
	if p.P_pid == 0 || p.P_stat == zombie {
		return entry{}, false
	}
	e := entry{
		identity: identity{int(p.P_pid), uint64(p.P_starttime.Sec)*1e6 + uint64(p.P_starttime.Usec)},
		parent:   int(info.Eproc.Ppid), group: int(info.Eproc.Pgid),
	}
	e.session, _ = unix.Getsid(e.pid) // 0 if it has just ended; no process leads session 0
	return e, true
}

func kinfo(pid int) (*unix.KinfoProc, bool) {
	info, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	return info, err == nil && int(info.Proc.P_pid) == pid
}

// readable reports whether the system describes a process, or its zombie.
func readable(pid int) bool {
	_, ok := kinfo(pid)
	return ok
}

// readEntry reads one process. ok is false if there is none, or only a zombie.
func readEntry(pid int) (entry, bool) {
	info, ok := kinfo(pid)
	if !ok {
		return entry{}, false
	}
	return entryOf(info)
}

func startOf(pid int) (uint64, bool) {
	e, ok := readEntry(pid)
	return e.start, ok
}

// startText returns a start time as text, in seconds since 1970.
func startText(micros uint64) string {
	return fmt.Sprintf("%d.%06d", micros/1e6, micros%1e6)
}

// readEnviron returns the environment of a process, or nil if it cannot be
// read. The kernel returns the number of arguments, the path of the program,
// padding zeros, the arguments and then the environment; each text ends with a
// zero.
func readEnviron(pid int) []byte {
	raw, err := unix.SysctlRaw("kern.procargs2", pid)
	if err != nil || len(raw) < 4 {
		return nil
	}
	argc := int(binary.NativeEndian.Uint32(raw))
	_, rest, ok := bytes.Cut(raw[4:], []byte{0})
	rest = bytes.TrimLeft(rest, "\x00")
	for ; ok && argc > 0; argc-- {
		_, rest, ok = bytes.Cut(rest, []byte{0})
	}
	return rest
}

// ofUser reports whether both the real and the effective user of a process are
// user.
func ofUser(pid, user int) bool {
	info, ok := kinfo(pid)
	return ok && int(info.Eproc.Ucred.Uid) == user && int(info.Eproc.Pcred.P_ruid) == user
}

func nameOf(pid int) string {
	info, ok := kinfo(pid)
	if !ok {
		return ""
	}
	return unix.ByteSliceToString(info.Proc.P_comm[:])
}

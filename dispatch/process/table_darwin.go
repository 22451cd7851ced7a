package process

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"
)

const zombie = 5 // SZOMB of sys/proc.h

// readTable asks the kernel for all processes.
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
	e.session, _ = unix.Getsid(e.pid) // 0, which nobody leads, if it has just gone
	return e, true
}

func kinfo(pid int) (*unix.KinfoProc, bool) {
	info, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	return info, err == nil && int(info.Proc.P_pid) == pid
}

// readEntry reads one process; not ok if there is none, or a zombie.
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

// startText is a start time as text, in seconds since 1970.
func startText(micros uint64) string {
	return fmt.Sprintf("%d.%06d", micros/1e6, micros%1e6)
}

// readEnviron is nil if it may not be read, or there is none. The kernel gives
// the number of arguments, the path of the program, zeros up to a boundary, the
// arguments and then the environment, all ended by zeros.
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

// ofUser reports whether a process is that user's: its real and its effective
// user alike.
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

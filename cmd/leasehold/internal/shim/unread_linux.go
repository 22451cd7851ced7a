package shim

import (
	"os"

	"golang.org/x/sys/unix"
)

// unreadBytes returns how much of what was written to f has not been read. f
// must be a pipe or a local socket, as a client's stdin usually is.
func unreadBytes(f *os.File) (bytes int, ok bool) {
	conn, err := f.SyscallConn()
	if err != nil {
		return 0, false
	}
	info, err := f.Stat()
	if err != nil {
		return 0, false
	}
	request := uint(unix.TIOCINQ) // for a pipe, at either end
	if info.Mode()&os.ModeSocket != 0 {
		request = unix.TIOCOUTQ
	}
	var failed error
	if err := conn.Control(func(fd uintptr) { bytes, failed = unix.IoctlGetInt(int(fd), request) }); err != nil || failed != nil {
		return 0, false
	}
	return bytes, true
}

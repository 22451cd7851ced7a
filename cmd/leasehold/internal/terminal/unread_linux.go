package terminal

import (
	"errors"
	"io"

	"golang.org/x/sys/unix"
)

// EndUnread ends this process once out is a pipe that nobody reads any more, as a write
// to it would. It is for the commands that print when something happens: the next write
// may be far away, and the shell waits for the whole pipeline.
func EndUnread(out io.Writer) {
	f, ok := FileOf(out)
	if !ok {
		return
	}
	conn, err := f.SyscallConn()
	if err != nil {
		return
	}
	go func() { // ends with the process
		unread := false
		_ = conn.Control(func(fd uintptr) {
			fds := []unix.PollFd{{Fd: int32(fd)}} // errors and hang-ups are always reported
			err := error(unix.EINTR)
			for errors.Is(err, unix.EINTR) {
				_, err = unix.Poll(fds, -1)
			}
			unread = fds[0].Revents != 0
		})
		if unread {
			_, _ = f.Write([]byte("\n")) // nobody sees it
		}
	}()
}

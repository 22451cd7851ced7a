package server

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

func limitSilence(fd int, within time.Duration) error {
	return os.NewSyscallError("setsockopt", unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_RXT_CONNDROPTIME, int(within.Seconds())))
}

package server

import (
	"context"
	"net"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/leasehold/leasehold/dispatch/process"
)

// The socket takes HTTP as well: what it serves at an address it serves there, too. A
// hello begins with a brace and a request with a letter, so the first byte tells.
// Over HTTP it is known which process a connection is from, as it is of others to the
// socket, so launched actors may use it.

// A socketWeb is a connection to the socket that speaks HTTP.
type socketWeb struct {
	*net.UnixConn
	peer   process.Peer
	once   sync.Once
	closed chan struct{}
}

func (c *socketWeb) Close() error {
	defer c.once.Do(func() { close(c.closed) })
	return c.UnixConn.Close()
}

// serveWeb has a connection served by the endpoint, and returns when it is closed or
// ctx ends.
func (s *Server) serveWeb(ctx context.Context, nc *net.UnixConn, peer process.Peer, web *passageListener) {
	s.attendance.add(1)
	defer s.attendance.add(-1)
	c := &socketWeb{UnixConn: nc, peer: peer, closed: make(chan struct{})}
	select {
	case web.conns <- c:
	case <-ctx.Done():
		_ = nc.Close()
		return
	}
	select {
	case <-c.closed:
	case <-ctx.Done(): // the endpoint lets it finish
	}
}

// speaksHTTP waits for the first byte of a connection, and leaves it there.
func speaksHTTP(ctx context.Context, nc *net.UnixConn, timeout time.Duration) bool {
	raw, err := nc.SyscallConn()
	if err != nil {
		return false
	}
	stop := context.AfterFunc(ctx, func() { _ = nc.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	_ = nc.SetReadDeadline(time.Now().Add(timeout))
	defer func() { _ = nc.SetReadDeadline(time.Time{}) }()
	interruptIfOver(ctx, nc)
	var first [1]byte
	n := 0
	err = raw.Read(func(fd uintptr) (done bool) {
		n, _, err = unix.Recvfrom(int(fd), first[:], unix.MSG_PEEK)
		return err != syscall.EAGAIN && err != syscall.EINTR
	})
	return err == nil && n == 1 && first[0] >= 'A' && first[0] <= 'Z'
}

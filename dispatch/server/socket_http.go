package server

import (
	"cmp"
	"context"
	"io"
	"net"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/leasehold/leasehold/dispatch/process"
)

// The socket also accepts HTTP, and serves there what the daemon serves at an
// address. A hello begins with a brace and an HTTP request with a letter, so
// the first byte decides. The process behind a connection is known for HTTP
// over the socket too, so launched actors may use it.

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

// serveWeb passes a connection to the endpoint, and returns when it is closed
// or ctx ends.
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
	case <-ctx.Done(): // the endpoint finishes it
	}
}

// firstByte waits for the first byte of a connection, without consuming it. That
// of a request of HTTP is a capital letter, and that of a hello is none.
func firstByte(ctx context.Context, nc *net.UnixConn, timeout time.Duration) (first byte, err error) {
	raw, err := nc.SyscallConn()
	if err != nil {
		return 0, err
	}
	stop := context.AfterFunc(ctx, func() { _ = nc.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	_ = nc.SetReadDeadline(time.Now().Add(timeout))
	defer func() { _ = nc.SetReadDeadline(time.Time{}) }()
	interruptIfOver(ctx, nc)
	var buf [1]byte
	var n int
	var readErr error
	err = raw.Read(func(fd uintptr) (done bool) {
		n, _, readErr = unix.Recvfrom(int(fd), buf[:], unix.MSG_PEEK)
		return readErr != syscall.EAGAIN && readErr != syscall.EINTR
	})
	if err = cmp.Or(err, readErr); err == nil && n == 0 {
		err = io.EOF
	}
	return buf[0], err
}

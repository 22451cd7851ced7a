package exec

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/leasehold/leasehold/cmd/leasehold/internal/connection"
	"github.com/leasehold/leasehold/dispatch/client"
	"github.com/leasehold/leasehold/dispatch/server"
)

// An execLink is exec's session with the daemon, over a series of connections.
type execLink struct {
	dialer *connection.Dialer
	first  server.Hello // opens a session
	hello  server.Hello // for the next connection

	client *client.Client // nil while not connected
	conn   *tappedConn
}

// A tappedConn reports when nothing more can be read from it.
type tappedConn struct {
	net.Conn
	once  sync.Once
	ended chan struct{}
}

func (c *tappedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err != nil {
		c.once.Do(func() { close(c.ended) })
	}
	return n, err
}

// connect connects, unless there is a connection. It resumes the session, or
// opens another one of the same actor. It does not connect as another actor,
// which would not hold the leases.
func (l *execLink) connect(ctx context.Context) error {
	if l.client != nil {
		return nil
	}
	var conn *tappedConn
	c, err := l.dialer.OpenOver(ctx, l.hello, true, func(nc net.Conn) net.Conn {
		conn = &tappedConn{Conn: nc, ended: make(chan struct{})}
		return conn
	})
	if err != nil {
		return err
	}
	l.client, l.conn = c, conn
	l.hello = server.Hello{Handle: c.Handle, Token: l.hello.Token}
	return nil
}

// call calls a tool, and closes the connection if the call fails without an
// answer.
func (l *execLink) call(ctx context.Context, tool string, args any) (client.Answer, error) {
	if err := l.connect(ctx); err != nil {
		return client.Answer{}, err
	}
	answer, err := connection.Call(ctx, l.client, tool, l.dialer.Arguments(tool, args))
	if refusal := (*client.Refusal)(nil); err != nil && !errors.As(err, &refusal) {
		l.close()
		if ctx.Err() != nil {
			err = context.Cause(ctx) // which names the daemon, and not a deadline
		}
	}
	return answer, err
}

// ended returns a channel that is closed when the connection has ended; nil
// without a connection.
func (l *execLink) ended() <-chan struct{} {
	if l.conn == nil {
		return nil
	}
	return l.conn.ended
}

func (l *execLink) close() {
	if l.client != nil {
		l.client.Close()
		l.client, l.conn = nil, nil
	}
}

// file duplicates the connection's descriptor for another process. The daemon
// sees the end of the connection only when both are closed.
func (l *execLink) file() (*os.File, error) {
	raw, err := l.conn.Conn.(syscall.Conn).SyscallConn()
	if err != nil {
		return nil, err
	}
	// UnixConn.File would put the connection into blocking mode.
	fd, dupErr := -1, error(nil)
	err = raw.Control(func(own uintptr) { fd, dupErr = unix.FcntlInt(own, unix.F_DUPFD_CLOEXEC, 0) })
	if err := errors.Join(err, dupErr); err != nil {
		return nil, fmt.Errorf("share the connection with the watchdog: %w", err)
	}
	return os.NewFile(uintptr(fd), "connection"), nil
}

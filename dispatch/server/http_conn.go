package server

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"syscall"
)

// A webConn is a connection to the endpoint that knows whether its client took
// the last answer.
//
// The system takes an answer from the server long before the client reads it.
// A client that closes its connection with an answer unread resets it, however,
// which says that nobody has had that answer.
type webConn struct {
	net.Conn

	mu     sync.Mutex
	reset  bool
	unread func() // what to do about an answer that turns out not to be read
}

type webConnKey struct{}

func withWebConn(ctx context.Context, nc net.Conn) context.Context {
	return context.WithValue(ctx, webConnKey{}, nc)
}

func webConnOf(r *http.Request) *webConn {
	switch nc := r.Context().Value(webConnKey{}).(type) {
	case *webConn:
		return nc
	case *webTCPConn:
		return &nc.webConn
	default:
		return nil
	}
}

// answered notes that an answer was written, and what to do if the client
// closes its connection without reading it.
func (c *webConn) answered(unread func()) {
	if c == nil {
		return
	}
	c.mu.Lock()
	was := c.reset
	if !was {
		c.unread = unread
	}
	c.mu.Unlock()
	if was {
		unread()
	}
}

// wasReset reports whether the client has closed the connection with something
// unread.
func (c *webConn) wasReset() bool {
	if c == nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.reset
}

func (c *webConn) Read(p []byte) (n int, err error) {
	n, err = c.Conn.Read(p)
	switch {
	case n > 0 || errors.Is(err, io.EOF):
		c.mu.Lock()
		c.unread = nil
		c.mu.Unlock()
	case errors.Is(err, syscall.ECONNRESET):
		c.mu.Lock()
		unread := c.unread
		c.reset, c.unread = true, nil
		c.mu.Unlock()
		if unread != nil {
			go unread() // it writes to the state
		}
	}
	return n, err
}

// A webTCPConn can be closed for writing alone, as net/http does before it
// closes a connection that serves one request.
type webTCPConn struct {
	webConn
	tcp *net.TCPConn
}

func newWebConn(nc net.Conn) net.Conn {
	if tcp, ok := nc.(*net.TCPConn); ok {
		return &webTCPConn{webConn{Conn: nc}, tcp}
	}
	return &webConn{Conn: nc}
}

// CloseWrite tells the client that nothing more comes. net/http reads no more,
// so this does, until the client or net/http closes the connection.
func (c *webTCPConn) CloseWrite() error {
	err := c.tcp.CloseWrite()
	go io.Copy(io.Discard, &c.webConn)
	return err
}

// A webListener makes webConns.
type webListener struct{ net.Listener }

func (l webListener) Accept() (net.Conn, error) {
	nc, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return newWebConn(nc), nil
}

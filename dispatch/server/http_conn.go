package server

import (
	"container/list"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/dispatch/process"
	"github.com/leasehold/leasehold/dispatch/server/fair"
)

// A webConn is a connection to the endpoint. It tracks whether its client
// received the last answer.
//
// The system accepts an answer from the server long before the client reads it.
// But a client that closes its connection without reading an answer resets the
// connection, which shows that the answer was not read. A proxy may reset each
// connection that it is done with, as HAProxy does, which shows nothing: see
// [direct].
type webConn struct {
	net.Conn
	listener *webListener
	vetted   uuid.UUID // the actor whose token it last showed, and was allowed to

	mu      sync.Mutex
	reset   bool
	taken   func() // to call when the last answer turns out to have been read
	unread  func() // to call when it turns out not to have been read
	closing bool

	// Guarded by the listener's mu.
	stranger *list.Element // it has not shown a token yet
	actor    uuid.UUID     // whose token it showed first
	share    *fair.Share   // of that actor
	closed   bool
}

type webConnKey struct{}

func withWebConn(ctx context.Context, nc net.Conn) context.Context {
	return context.WithValue(ctx, webConnKey{}, nc)
}

func webConnOf(r *http.Request) *webConn {
	nc, _ := r.Context().Value(webConnKey{}).(*webConn)
	return nc
}

// peer returns the process at the other end, as far as it is known.
func (c *webConn) peer() process.Peer {
	if c != nil {
		switch local := c.Conn.(type) {
		case *socketWeb:
			return local.peer
		case *passedWeb:
			return local.from
		}
	}
	return process.Peer{Transport: "http"}
}

// vet refuses a local process that shows another actor's token. The requests of
// a connection come one after the other.
func (c *webConn) vet(ctx context.Context, homes *homes, home *home, a dispatch.Actor) error {
	if c == nil || c.vetted == a.ID {
		return nil
	}
	if peer := c.peer(); peer.PID != 0 {
		if err := home.state.Vet(ctx, a, peer); err != nil {
			return err
		}
		if at, known := homes.knowing(peer); known && at != home.partition {
			return &dispatch.ForbiddenError{What: fmt.Sprintf("process %d is one of another run than the token that it shows", peer.PID)}
		}
	}
	c.vetted = a.ID
	return nil
}

// answered notes that an answer was written. It calls taken when the client
// sends more or ends its connection, and unread if the client closes the
// connection without reading the answer. If that cannot be known, it calls taken.
func answered(r *http.Request, taken, unread func()) {
	c := webConnOf(r)
	if c == nil {
		taken()
		return
	}
	if !direct(r) {
		unread = taken
	}
	c.settle()
	c.mu.Lock()
	was := c.reset
	if !was {
		c.taken, c.unread = taken, unread
	}
	c.mu.Unlock()
	if was {
		unread()
		return
	}
	c.checkReset() // the client may have closed it before the answer was written
}

// direct reports whether the client itself is at the other end of the connection. If it
// names the address at which the connection arrived, no proxy is between, because clients
// of a proxy name the proxy's address. In doubt there is a proxy: a grant that is taken back
// although its holder was told of it is worse than one that stays until its ttl is over.
func direct(r *http.Request) bool {
	local, _ := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	if local == nil || !local.AddrPort().Addr().IsValid() {
		return true // a socket of this machine
	}
	host, port, err := net.SplitHostPort(r.Host)
	if err != nil || port != strconv.Itoa(local.Port) {
		return false
	}
	if strings.EqualFold(host, "localhost") {
		return local.IP.IsLoopback()
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap() == local.AddrPort().Addr().Unmap()
}

// settle calls taken for an answer that the client has read.
func (c *webConn) settle() {
	c.mu.Lock()
	taken := c.taken
	c.taken, c.unread = nil, nil
	c.mu.Unlock()
	if taken != nil {
		taken()
	}
}

// checkReset checks whether the client's end is closed and has refused what was
// written since. Reading does not show this, because the end of the client's
// data, which came before, hides it.
func (c *webConn) checkReset() {
	under := c.Conn
	if secure, ok := under.(*tls.Conn); ok {
		under = secure.NetConn()
	}
	socket, ok := under.(syscall.Conn)
	if !ok {
		return
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return
	}
	code := 0
	_ = raw.Control(func(fd uintptr) { code, _ = syscall.GetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_ERROR) })
	if e := syscall.Errno(code); e == syscall.EPIPE || e == syscall.ECONNRESET {
		c.wasClosed()
	}
}

// wasClosed calls unread for an answer that was not read.
func (c *webConn) wasClosed() {
	c.mu.Lock()
	unread := c.unread
	c.reset, c.taken, c.unread = true, nil, nil
	c.mu.Unlock()
	switch {
	case unread == nil:
	case c.listener.leaves():
		go func() { // in a goroutine, because it writes to the state
			defer c.listener.leaving.Done()
			unread()
		}()
	default:
		unread()
	}
}

// wasReset reports whether the client has closed the connection with unread
// data.
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
	case n > 0:
		c.settle()
	case errors.Is(err, syscall.ECONNRESET):
		c.wasClosed()
	default:
		if plain, ok := errors.AsType[tls.RecordHeaderError](err); ok {
			refusePlain(plain)
		}
	}
	return n, err
}

// CloseWrite tells the client that no more data follows.
func (c *webConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}

// A webListener limits the connections to the endpoint. Anybody can open one,
// so connections that have not shown a token get little room, and are closed in
// favour of newer ones. A client with a token shows it at once.
type webListener struct {
	net.Listener
	server *Server

	mu        sync.Mutex
	open      int
	strangers *list.List            // of *webConn, oldest first
	strays    *fair.Pace[struct{}]  // connections that ended without a token
	asked     *fair.Pace[uuid.UUID] // requests that were refused or had no token, by the actor of their connection

	// For connections that only wait for their clients to close them, and for
	// the calls of unread after connections were closed.
	over    context.Context
	end     context.CancelFunc
	leaving sync.WaitGroup
}

func newWebListener(ln net.Listener, s *Server) *webListener {
	l := &webListener{
		Listener: ln, server: s, strangers: list.New(),
		strays: fair.NewPace[struct{}](2*s.opts.HTTPStrangers, strangerEvery),
		asked:  fair.NewPace[uuid.UUID](strangerBurst, strangerEvery),
	}
	l.over, l.end = context.WithCancel(context.Background())
	return l
}

// finish closes the connections that wait for their clients to close them, and
// waits until all their work is done.
func (l *webListener) finish() {
	l.mu.Lock()
	l.end()
	l.mu.Unlock()
	l.leaving.Wait()
}

// leaves reports whether work of a closed connection may still be done. If so,
// the caller must call l.leaving.Done afterwards.
func (l *webListener) leaves() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over.Err() != nil {
		return false
	}
	l.leaving.Add(1)
	return true
}

func (l *webListener) Accept() (net.Conn, error) {
	for {
		time.Sleep(l.strays.Owed(struct{}{}))
		nc, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		c := &webConn{Conn: nc, listener: l}
		displaced, ok := l.enter(c)
		if displaced != nil {
			_ = displaced.Close()
		}
		if ok {
			return c, nil
		}
		nc.Close()
	}
}

// enter admits a connection. If there is no room, it may displace another one,
// which the caller must close.
func (l *webListener) enter(c *webConn) (displaced *webConn, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open >= l.server.opts.HTTPConns || l.strangers.Len() >= l.server.opts.HTTPStrangers {
		oldest := l.strangers.Front()
		if oldest == nil {
			return nil, false
		}
		displaced = l.strangers.Remove(oldest).(*webConn)
		displaced.stranger = nil
		l.strays.Charge(struct{}{})
	}
	l.open++
	c.stranger = l.strangers.PushBack(c)
	return displaced, true
}

// known notes the actor whose token the connection has shown. It refuses an
// actor that has too many connections.
func (c *webConn) known(actor uuid.UUID) error {
	if c == nil {
		return nil
	}
	c.listener.mu.Lock()
	defer c.listener.mu.Unlock()
	if c.stranger == nil || c.closed {
		return nil // it is already known, or is closing
	}
	sh, err := c.listener.server.shares.Take(actor, fair.WebConn)
	if err != nil {
		return err
	}
	c.listener.strangers.Remove(c.stranger)
	c.stranger, c.actor, c.share = nil, actor, sh
	return nil
}

// paced slows down a connection that has shown no token, or was told to show one or to
// come back later: its answer waits or, if that has been sent, its next request. So such
// requests come only so fast that they leave the processors to others. Each actor has a
// pace of its own, and those who have shown no token share one. So a client that is served
// waits for none of them.
func (e *endpoint) paced(routes http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		routes.ServeHTTP(w, r)
		refused := w.Header().Get("WWW-Authenticate") != "" || w.Header().Get("Retry-After") != ""
		c := webConnOf(r)
		if c == nil {
			return
		}
		if actor, known := c.asker(); refused || !known {
			ctx, stop := context.WithCancel(r.Context())
			defer stop()
			defer context.AfterFunc(e.ctx, stop)()
			c.listener.asked.Wait(ctx, actor)
		}
	})
}

// asker returns the actor whose token the connection has shown, if it has shown one.
func (c *webConn) asker() (actor uuid.UUID, known bool) {
	c.listener.mu.Lock()
	defer c.listener.mu.Unlock()
	return c.actor, c.stranger == nil
}

// Close closes the connection. If the client may not have read its last answer,
// as with a client that opens a connection for each request, Close first closes
// only this side. When the client closes its side, that shows whether it has
// read the answer. It has lateCancel for that.
func (c *webConn) Close() error {
	c.checkReset()
	c.mu.Lock()
	waits := c.unread != nil && !c.closing
	c.closing = true
	c.mu.Unlock()
	if !waits || !c.listener.leaves() {
		return c.close()
	}
	if c.SetReadDeadline(time.Now().Add(lateCancel)) != nil || c.CloseWrite() != nil {
		c.listener.leaving.Done()
		return c.close()
	}
	go c.leave()
	return nil
}

// leave waits for the client to close the connection, and then closes it.
func (c *webConn) leave() {
	over := c.listener.over
	defer c.listener.leaving.Done()
	stop := context.AfterFunc(over, func() { _ = c.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	_, _ = io.Copy(io.Discard, c)
	select {
	case <-time.After(lastEvent): // a reset by a client that left before the answer may still arrive
	case <-over.Done():
	}
	_ = c.close()
}

func (c *webConn) close() error {
	c.checkReset()
	c.settle()
	l := c.listener
	l.mu.Lock()
	if !c.closed {
		c.closed = true
		l.open--
		if c.stranger != nil {
			l.strangers.Remove(c.stranger)
			c.stranger = nil
			l.strays.Charge(struct{}{})
		}
		if c.share != nil {
			c.share.GiveBack(fair.WebConn)
		}
	}
	l.mu.Unlock()
	return c.Conn.Close()
}

package server

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"github.com/google/uuid"
	"github.com/leasehold/leasehold/dispatch/process"
	"github.com/leasehold/leasehold/dispatch/server/api"
)

// An HTTP connection whose first request is for a partition elsewhere is passed
// on unchanged, with everything that follows. If a later request is for another
// partition, the server that received it passes it on in the same way, once:
// after the answer the connection is closed, and the client opens another. It does
// the same, once, with a request for a partition that it has ceased to lead, so
// that requests in flight are answered by the next leader. The answering server
// must know whether its answers were read, which only the client's own connection
// shows: see [webConn]. So the frame that says that the client has left is followed
// by a [webEnd].

// passedHTTP is what a passage says about an HTTP client: the names and the
// address by which it may have reached the first server.
type passedHTTP struct {
	Hosts []string       `json:"hosts,omitempty"`
	Local netip.AddrPort `json:"local"`
	Again bool           `json:"again,omitempty"` // a server has passed it on that has ceased to lead
}

// A webEnd says how a client left: how many bytes of answers were written to
// it, and whether it closed its connection with some of them unread.
type webEnd struct {
	Written uint64
	Reset   bool
}

// A passedWeb is an HTTP connection that another server has passed on.
type passedWeb struct {
	passed
	passedHTTP
	from process.Peer
	went bool // the frame that says so has been read, and its webEnd may follow; for the reader alone

	mu      sync.Mutex
	written uint64
	gone    bool // the client has left
	lost    bool // the server through which it came was lost
}

// Read ends, as the client's own connection would, with an error that shows
// whether the client left an answer unread.
func (c *passedWeb) Read(p []byte) (n int, err error) {
	if c.hasGone() {
		return 0, io.EOF
	}
	if !c.went {
		n, err = c.passed.Read(p)
		c.went = errors.Is(err, errWent)
	}
	var end webEnd
	if c.went {
		var b []byte
		if b, err = c.whole(binary.Size(end)); err == nil {
			_, err = binary.Decode(b, binary.BigEndian, &end)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case errors.Is(err, errDoorLost):
		c.lost = true
		err = errDoorLost // that the way to the server was reset says nothing of the client
	case c.went && err == nil:
		c.gone, err = true, io.EOF
		if end.Reset || end.Written < c.written {
			err = syscall.ECONNRESET
		}
	}
	return n, err
}

func (c *passedWeb) hasGone() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.gone
}

func (c *passedWeb) Write(p []byte) (n int, err error) {
	c.mu.Lock()
	gone := c.gone
	c.written += uint64(len(p)) // before the other server can count them
	c.mu.Unlock()
	if gone {
		return 0, syscall.EPIPE
	}
	return c.Conn.Write(p)
}

// CloseWrite tells the client that no more data follows.
func (c *passedWeb) CloseWrite() error {
	return c.Conn.(interface{ CloseWrite() error }).CloseWrite() // it is TLS or TCP
}

// LocalAddr returns the address that the client believes it is connected to.
func (c *passedWeb) LocalAddr() net.Addr { return net.TCPAddrFromAddrPort(c.Local) }

// doorLost reports whether a request came through a server that was lost. Its
// client may then come back through another server, for the answer.
func (c *webConn) doorLost() bool {
	if c == nil {
		return false
	}
	p, ok := c.Conn.(*passedWeb)
	if !ok {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lost
}

// orPass serves a request, or passes its connection on if another server leads
// its partition.
func (e *endpoint) orPass(serve http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := webConnOf(r)
		if c == nil || e.server.opts.Elsewhere == nil || e.checkOrigin(r) != nil {
			serve.ServeHTTP(w, r)
			return
		}
		p := passage{Partition: e.partitionOf(r), Peer: c.peer(), Web: &passedHTTP{Hosts: e.server.opts.HTTPHosts}}
		if local, ok := c.LocalAddr().(*net.TCPAddr); ok {
			p.Web.Local = local.AddrPort()
		}
		if before, again := c.Conn.(*passedWeb); again {
			p.Web.Again = before.partition == p.Partition
			if p.Web.Again && (before.Again || r.URL.Path == RemotePath) {
				serve.ServeHTTP(w, r)
				return
			}
			p.Web.Hosts = before.Hosts
		}
		home, way, to, err := e.server.reach(r.Context(), false, p)
		switch {
		case to != nil:
			defer to.Close()
			if !e.begin() {
				e.tell(w, api.Refuse(errShutdown))
				return
			}
			defer e.endings.Done()
			if _, again := c.Conn.(*passedWeb); again {
				r.Close = r.URL.Path != RemotePath // which is the last request in any case
			}
			e.pass(w, r, way, to)
		case errors.Is(err, errNotReached):
			e.tell(w, api.Refuse(err))
		default:
			if home != nil {
				home.guests.Done()
			}
			serve.ServeHTTP(w, r)
		}
	})
}

// checkOrigin applies checkOrigin with the names of the server to which the
// client connected.
func (e *endpoint) checkOrigin(r *http.Request) error {
	hosts := e.server.opts.HTTPHosts
	if c := webConnOf(r); c != nil {
		if p, ok := c.Conn.(*passedWeb); ok {
			hosts = p.Hosts
		}
	}
	return checkOrigin(r, hosts)
}

// pass connects the connection of a request to the server that leads its
// partition, until either side ends.
func (e *endpoint) pass(w http.ResponseWriter, r *http.Request, way *Way, to net.Conn) {
	body, status, err := e.readAll(w, r, uuid.Nil)
	if err != nil {
		http.Error(w, err.Error(), status)
		return
	}
	r.Body, r.ContentLength, r.TransferEncoding = http.NoBody, int64(len(body)), nil
	if len(body) > 0 {
		r.Body = io.NopCloser(bytes.NewReader(body))
	}
	r.Header.Del("Expect") // the client was already told to continue
	var first bytes.Buffer
	if err := r.Write(&first); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	c := webConnOf(r)
	nc, in, err := http.NewResponseController(w).Hijack()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	c.passedOn()
	defer func() { _ = c.close() }()
	_ = nc.SetDeadline(time.Time{})
	end := func() { c.Conn.Close(); to.Close() }
	defer context.AfterFunc(e.ctx, end)()
	answered := make(chan struct{})
	defer context.AfterFunc(way.Over, func() {
		select {
		case <-time.After(lastAnswer):
			end()
		case <-answered:
		}
	})()

	back := &answers{to: c}
	go func() { // ends with either connection
		defer close(answered)
		_, err := io.Copy(back, to)
		if err != nil || c.CloseWrite() != nil {
			c.Conn.Close()
		}
		_ = c.SetReadDeadline(time.Now().Add(lateCancel)) // so that the client can end its side
	}()
	out := frames{to}
	if _, err = out.Write(first.Bytes()); err == nil {
		_, _ = io.Copy(out, in) // whichever side ends, there is nothing more to pass on
	}
	if e.ctx.Err() == nil && way.Over.Err() == nil && !c.doorLost() {
		_ = to.SetWriteDeadline(time.Now().Add(passageTimeout))
		if out.end() == nil {
			_ = binary.Write(to, binary.BigEndian, back.end())
		}
	}
	to.Close()
	<-answered
}

// lastAnswer is how long connections stay with a server that leads their partition no
// more: it answers what it was asked, and passes on what it is asked now. A client has
// no answer to what it sends on a connection that is closed at that moment.
const lastAnswer = 2 * time.Second

// passedOn notes that another server checks who the client is.
func (c *webConn) passedOn() {
	l := c.listener
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.stranger != nil {
		l.strangers.Remove(c.stranger)
		c.stranger = nil
	}
}

// answers are what is written to a client until it leaves.
type answers struct {
	to *webConn

	mu      sync.Mutex
	written uint64
	at      time.Time // the last write
	over    bool
}

func (a *answers) Write(p []byte) (n int, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.over {
		return 0, net.ErrClosed
	}
	n, err = a.to.Write(p)
	a.written, a.at = a.written+uint64(n), time.Now()
	return n, err
}

// end ends the answers, because the client reads no more. It waits a moment,
// because a reset by the client for a late answer may still arrive.
func (a *answers) end() webEnd {
	a.mu.Lock()
	a.over = true
	recent := lastEvent - time.Since(a.at)
	a.mu.Unlock()
	time.Sleep(recent)
	a.to.checkReset()
	return webEnd{Written: a.written, Reset: a.to.wasReset()}
}

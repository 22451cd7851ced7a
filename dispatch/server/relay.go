package server

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/leasehold/leasehold/dispatch/process"
	"github.com/leasehold/leasehold/dispatch/server/wire"
)

// Servers that share partitions pass their clients on to the one that leads theirs, over
// connections of their own, of which the caller sees to it that only servers have
// them. Such a connection begins with a line, a [passage]. For a client of the socket
// there follow, one way, frames with what the client sends, and at last one that says
// that the client has gone; the other way, what it is answered, as it is. So the
// server that answers can tell the end of a client from the end of a server. HTTP is
// passed on in the same way: see relay_http.go.

// A passage says what comes over a connection between servers.
type passage struct {
	Relay int          `json:"leasehold_relay"` // passageVersion
	Web   *passedHTTP  `json:"web,omitempty"`
	Poke  bool         `json:"poke,omitempty"` // nothing follows; see Options.Poked
	Peer  process.Peer `json:"peer"`
	// Partition is the one that the client is passed on for, and Remote that it came
	// over HTTP and is passed on without that; see remote.go.
	Partition int  `json:"partition,omitempty"`
	Remote    bool `json:"remote,omitempty"`
	// Voucher makes it a link: for whom the other server calls tools.
	Voucher *voucher `json:"voucher,omitempty"`
}

const passageVersion = 1

// A Way leads to the server that leads a partition.
type Way struct {
	Dial func(context.Context) (net.Conn, error)
	Over context.Context // ends when another server leads it
}

// open begins a passage.
func (w *Way) open(ctx context.Context, p passage) (net.Conn, error) {
	nc, err := w.Dial(ctx)
	if err != nil {
		return nil, err
	}
	p.Relay = passageVersion
	nc.SetWriteDeadline(time.Now().Add(passageTimeout))
	if _, err := nc.Write(wire.Line(p)); err != nil {
		nc.Close()
		return nil, err
	}
	nc.SetWriteDeadline(time.Time{})
	return nc, nil
}

// Poke tells the server that there is something to look at.
func (w *Way) Poke(ctx context.Context) error {
	nc, err := w.open(ctx, passage{Poke: true})
	if err != nil {
		return err
	}
	return nc.Close()
}

const (
	passageTimeout = 5 * time.Second
	maxPassage     = 4 << 10
	maxFrame       = 64 << 10
)

// reach is enter for a client that is to be passed on if need be: then there is a
// passage, and no home.
func (s *Server) reach(ctx context.Context, passed bool, p passage) (h *home, way *Way, to net.Conn, err error) {
	for giveUp := time.Now().Add(homeTimeout); ; {
		if h, way, err = s.enter(ctx, p.Partition, passed); err != nil || way == nil {
			return h, nil, nil, err
		}
		if to, err = way.open(ctx, p); err == nil {
			return nil, way, to, nil
		}
		if time.Now().After(giveUp) {
			return nil, nil, nil, fmt.Errorf("%w: %w", errNotReached, err)
		}
		sleep(ctx, passRetry) // it has gone, and this server does not know it yet
		if ctx.Err() != nil {
			return nil, nil, nil, context.Cause(ctx)
		}
	}
}

// passRetry is when a server that cannot be reached is tried again.
const passRetry = 50 * time.Millisecond

// pass joins a client, which has said hello, to the server that has its state, until
// either goes. If the client goes, that server is told.
func (s *Server) pass(ctx context.Context, way *Way, to net.Conn, hello []byte, nc net.Conn, br *bufio.Reader) error {
	defer to.Close()
	nc.SetDeadline(time.Time{})
	end := func() { nc.Close(); to.Close() }
	defer context.AfterFunc(ctx, end)()
	defer context.AfterFunc(way.Over, end)()

	answered := make(chan struct{})
	go func() { // ends with either connection
		defer close(answered)
		defer nc.Close()
		_, _ = io.Copy(nc, to) // however it ends, nothing more comes
	}()
	w := frames{to}
	_, err := w.Write(append(hello, '\n'))
	if err == nil {
		_, err = io.Copy(w, br)
	}
	// If the client has gone this says so. If not, it is not read any more.
	if ctx.Err() == nil && way.Over.Err() == nil {
		to.SetWriteDeadline(time.Now().Add(passageTimeout))
		_ = w.end()
	}
	to.Close()
	<-answered
	return err
}

// errNotReached answers a client whose state is with a server that does not answer.
var errNotReached = errors.New("the server that leads cannot be reached; try again")

// frames writes each write as a frame: its length in four bytes, and what it has.
type frames struct{ net.Conn }

func (w frames) Write(p []byte) (n int, err error) {
	for n < len(p) {
		part := p[n:min(len(p), n+maxFrame)]
		frame := append(binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(part)), uint32(len(part))), part...)
		if _, err := w.Conn.Write(frame); err != nil {
			return n, err
		}
		n += len(part)
	}
	return n, nil
}

// ReadFrom keeps io.Copy from going around Write.
func (w frames) ReadFrom(r io.Reader) (int64, error) {
	return io.CopyBuffer(struct{ io.Writer }{w}, struct{ io.Reader }{r}, make([]byte, maxFrame))
}

// end is the frame without anything.
func (w frames) end() error {
	_, err := w.Conn.Write(make([]byte, 4))
	return err
}

// A passed connection is of a client that another server has passed on.
type passed struct {
	net.Conn
	in        *bufio.Reader
	left      int // of a frame
	partition int
	remote    bool // see passage
	voucher   *voucher
}

var (
	// errWent ends a connection whose client has gone from the server that it came
	// through. Whether it had read its answers is not known.
	errWent = errors.New("the client closed it")

	// errDoorLost ends a connection over which another server has passed a client on
	// that may still be there.
	errDoorLost = cutOff("the server through which the client came was lost")
)

func (c *passed) Read(p []byte) (n int, err error) {
	if c.left == 0 {
		var head [4]byte
		if _, err := io.ReadFull(c.in, head[:]); err != nil {
			return 0, doorLost(err)
		}
		size := binary.BigEndian.Uint32(head[:])
		if size == 0 {
			return 0, errWent
		}
		if size > maxFrame {
			return 0, fmt.Errorf("a frame of %d bytes: %w", size, errDoorLost)
		}
		c.left = int(size)
	}
	n, err = c.in.Read(p[:min(len(p), c.left)])
	c.left -= n
	return n, doorLost(err)
}

// doorLost is why a connection between servers ended; a deadline is this server's own.
func doorLost(err error) error {
	if err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		return err
	}
	return fmt.Errorf("%w: %w", errDoorLost, err)
}

// ServePassages serves the clients that other servers pass on over ln, until ctx ends,
// and closes it.
func (s *Server) ServePassages(ctx context.Context, ln net.Listener) error {
	web := &passageListener{addr: ln.Addr(), conns: make(chan net.Conn), done: make(chan struct{})}
	ended := make(chan error, 1)
	go func() { ended <- s.ServeEndpoint(ctx, web) }()
	err := s.acceptAll(ctx, ln, func(ctx context.Context, nc net.Conn) { s.acceptPassage(ctx, nc, web) },
		func(nc net.Conn, _ *HelloError) { nc.Close() })
	return errors.Join(err, <-ended)
}

func (s *Server) acceptPassage(ctx context.Context, nc net.Conn, web *passageListener) {
	nc.SetReadDeadline(time.Now().Add(passageTimeout))
	br := bufio.NewReaderSize(nc, 16<<10)
	line, err := readLine(br, maxPassage)
	var p passage
	if err == nil {
		err = json.Unmarshal(line, &p)
	}
	if err == nil && p.Relay != passageVersion {
		err = fmt.Errorf("the other server speaks version %d of what servers pass on, and this one %d", p.Relay, passageVersion)
	}
	if err != nil {
		s.opts.Log.Warn().Err(err).Stringer("from", nc.RemoteAddr()).Msg("a connection between servers was turned away")
		nc.Close()
		return
	}
	nc.SetReadDeadline(time.Time{})
	if p.Poke {
		nc.Close()
		s.opts.Poked()
		return
	}
	if p.Peer.Elsewhere() {
		p.Peer.PID = 0 // it means nothing here
	}
	if p.Web != nil {
		select {
		case web.conns <- &passedWeb{passed: passed{Conn: nc, in: br, partition: p.Partition}, passedHTTP: *p.Web, from: p.Peer}:
		case <-web.done:
			nc.Close()
		}
		return
	}
	s.ServeConn(ctx, &passed{Conn: nc, in: br, partition: p.Partition, remote: p.Remote, voucher: p.Voucher}, p.Peer)
}

// A passageListener listens for connections that are handed to it.
type passageListener struct {
	addr  net.Addr
	conns chan net.Conn
	once  sync.Once
	done  chan struct{} // closed
}

func (l *passageListener) Accept() (net.Conn, error) {
	select {
	case nc := <-l.conns:
		return nc, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *passageListener) Close() error   { l.once.Do(func() { close(l.done) }); return nil }
func (l *passageListener) Addr() net.Addr { return l.addr }

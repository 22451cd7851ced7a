package server

import (
	"bufio"
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leasehold/leasehold/dispatch/process"
	"github.com/leasehold/leasehold/dispatch/server/wire"
)

// Servers that share partitions pass a client on to the server that leads its
// partition, over connections between servers; the caller ensures that only
// servers can make these. Such a connection begins with a line, a [passage].
// For a client of the socket, frames with the client's data follow in one
// direction, and at the end a frame that says that the client has left. In the
// other direction its answers follow unchanged. So the answering server can
// distinguish the end of a client from the end of a server. HTTP is passed on
// in a similar way: see relay_http.go.

// A passage says what follows on a connection between servers.
type passage struct {
	Relay int          `json:"leasehold_relay"` // passageVersion
	Web   *passedHTTP  `json:"web,omitempty"`
	Poke  bool         `json:"poke,omitempty"` // nothing follows; see Options.Poked
	Gone  bool         `json:"gone,omitempty"` // nothing follows: the process of Peer has ended, see farewell.go
	Peer  process.Peer `json:"peer"`
	// Partition is the one for which the client is passed on. Remote says that
	// the client came over HTTP and is passed on without it; see remote.go.
	Partition int  `json:"partition,omitempty"`
	Remote    bool `json:"remote,omitempty"`
	// Access is the name of the operator's token that let in a remote client.
	Access string `json:"access,omitempty"`
	// Waited is how long the client has waited for a leader. It does not wait for ever.
	Waited time.Duration `json:"waited,omitempty"`
	began  time.Time     // when it began to wait; zero: it begins now
	// Voucher makes the connection a link: it says for whom the other server
	// calls tools.
	Voucher *voucher `json:"voucher,omitempty"`
}

const passageVersion = 1

// A Way leads to the server that leads a partition.
type Way struct {
	Dial func(context.Context) (net.Conn, error)
	Over context.Context // ends when another server leads the partition
}

// open opens a connection and sends the passage.
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

// Poke tells the server that it has a reason to look.
func (w *Way) Poke(ctx context.Context) error {
	nc, err := w.open(ctx, passage{Poke: true})
	if err != nil {
		return err
	}
	return nc.Close()
}

const (
	passageTimeout = 5 * time.Second
	hearTimeout    = 15 * time.Second // for the end of a session; by then another server leads if this one hangs
	maxPassage     = 4 << 10
	maxFrame       = 64 << 10
)

// reach is enter for a client that may have to be passed on. If it must be,
// reach returns the open connection and no home.
func (s *Server) reach(ctx context.Context, passed bool, p passage) (h *home, way *Way, to net.Conn, err error) {
	began := time.Now()
	for retry := firstPassRetry; ; retry = min(2*retry, lastPassRetry) {
		if h, way, err = s.enter(ctx, p.Partition, passed); err != nil || way == nil {
			return h, nil, nil, err
		}
		p.Waited = time.Since(cmp.Or(p.began, began))
		if to, err = way.open(ctx, p); err == nil {
			return nil, way, to, nil
		}
		if time.Since(began) > homeTimeout {
			s.opts.Log.Warn().Err(err).Int("partition", p.Partition).Msg("a client was turned away: the server that leads cannot be reached")
			return nil, nil, nil, fmt.Errorf("%w: %w", errNotReached, err)
		}
		select {
		case <-time.After(retry): // the server is gone, and this one does not know it yet
		case <-way.Over.Done():
		case <-ctx.Done():
			return nil, nil, nil, context.Cause(ctx)
		}
	}
}

// A server waits a little longer after each attempt to reach another, which may be
// there and log each attempt that it refuses.
const (
	firstPassRetry = 50 * time.Millisecond
	lastPassRetry  = time.Second
)

// pass connects a client that has said hello to the server that has its state,
// until either side ends. If the client leaves, that server is told. heard reports
// whether it has ended the session then.
func (s *Server) pass(ctx context.Context, way *Way, to net.Conn, hello []byte, nc net.Conn, br *bufio.Reader) (heard bool, err error) {
	defer to.Close()
	nc.SetDeadline(time.Time{})
	end := func() { nc.Close(); to.Close() }
	defer context.AfterFunc(ctx, end)()
	defer context.AfterFunc(way.Over, end)()

	answered := make(chan struct{})
	answers := &endNoted{Reader: to}
	go func() { // ends with either connection
		defer close(answered)
		defer nc.Close()
		_, _ = io.Copy(nc, answers) // however it ends, nothing more follows
	}()
	w := frames{to}
	_, err = w.Write(append(hello, '\n'))
	if err == nil {
		_, err = io.Copy(w, br)
	}
	// If the client has left, this says so. Otherwise nothing more is read from
	// it.
	if ctx.Err() == nil && way.Over.Err() == nil {
		left := !answers.over.Load()
		to.SetWriteDeadline(time.Now().Add(passageTimeout))
		if w.end() == nil && left {
			to.SetReadDeadline(time.Now().Add(hearTimeout))
			<-answered
			_, lost := io.Copy(io.Discard, answers) // it closes the connection when it has ended the session
			heard = lost == nil && way.Over.Err() == nil
		}
	}
	to.Close()
	<-answered
	return heard, err
}

// An endNoted notes that there is no more to read.
type endNoted struct {
	io.Reader
	over atomic.Bool
}

func (r *endNoted) Read(p []byte) (n int, err error) {
	if n, err = r.Reader.Read(p); err != nil {
		r.over.Store(true)
	}
	return n, err
}

// errNotReached refuses a client whose state is with a server that does not
// answer.
var errNotReached = errors.New("the server that leads cannot be reached; try again")

// frames writes each write as frames: the length in four bytes, and then the
// data.
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

// ReadFrom prevents io.Copy from bypassing Write.
func (w frames) ReadFrom(r io.Reader) (int64, error) {
	return io.CopyBuffer(struct{ io.Writer }{w}, struct{ io.Reader }{r}, make([]byte, maxFrame))
}

// end writes the empty frame.
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
	remote    bool   // see passage
	access    string // see passage
	waited    time.Duration
	voucher   *voucher
}

var (
	// errWent ends a connection whose client has left. It is unknown whether it
	// had read its answers.
	errWent = errors.New("the client closed it")

	// errDoorLost ends a connection from another server whose client may still
	// be there.
	errDoorLost = cutOff("the server through which the client came was lost")
)

func (c *passed) Read(p []byte) (n int, err error) {
	if c.left == 0 {
		head, err := c.whole(4)
		if err != nil {
			return 0, err
		}
		size := binary.BigEndian.Uint32(head)
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

// whole reads n bytes or none: a read that is ended by a deadline, as net/http ends one
// after each request, is continued by the next. The bytes are valid until then.
func (c *passed) whole(n int) ([]byte, error) {
	b, err := c.in.Peek(n)
	if err != nil {
		return nil, doorLost(err)
	}
	_, err = c.in.Discard(n)
	return b, err
}

// doorLost returns why a connection between servers ended. A deadline is this
// server's own.
func doorLost(err error) error {
	if err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		return err
	}
	return fmt.Errorf("%w: %w", errDoorLost, err)
}

// ServePassages serves the clients that other servers pass on over ln, until
// ctx ends, and closes ln.
func (s *Server) ServePassages(ctx context.Context, ln net.Listener) error {
	looking, stop := context.WithCancel(ctx)
	var looks sync.WaitGroup
	looks.Go(func() { s.tendFarewells(looking) })
	defer looks.Wait()
	defer stop()
	return s.serveBoth(ctx, ln, s.acceptPassage, func(nc net.Conn, _ *HelloError) { nc.Close() })
}

func (s *Server) acceptPassage(ctx context.Context, nc net.Conn, web *passageListener) {
	nc.SetReadDeadline(time.Now().Add(passageTimeout))
	br := bufio.NewReaderSize(nc, 16<<10)
	line, err := readLine(br, maxPassage, nil)
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
	if p.Gone {
		if s.hearGone(farewell{p.Partition, p.Peer}) {
			nc.SetWriteDeadline(time.Now().Add(passageTimeout))
			_, _ = nc.Write([]byte{'\n'}) // otherwise it is told again
		}
		nc.Close()
		return
	}
	if p.Peer.Elsewhere() { // the pid means nothing on this machine
		p.Peer.PID, p.Peer.Away = 0, p.Peer.PID
	}
	if p.Web != nil {
		select {
		case web.conns <- &passedWeb{passed: passed{Conn: nc, in: br, partition: p.Partition}, passedHTTP: *p.Web, from: p.Peer}:
		case <-web.done:
			nc.Close()
		}
		return
	}
	s.ServeConn(ctx, &passed{Conn: nc, in: br, partition: p.Partition, remote: p.Remote, access: p.Access, waited: p.Waited, voucher: p.Voucher}, p.Peer)
}

// A passageListener accepts the connections that are passed to it.
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

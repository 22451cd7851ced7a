package shim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"slices"
	"time"

	"github.com/leasehold/leasehold/cmd/leasehold/internal/connection"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/exit"
	"github.com/leasehold/leasehold/dispatch/process"
	"github.com/leasehold/leasehold/dispatch/server"
	"github.com/leasehold/leasehold/dispatch/server/tools"
	"github.com/leasehold/leasehold/dispatch/server/wire"
)

// A link is a connection to the daemon after its hello.
type link struct {
	nc    net.Conn
	lines chan []byte // from the daemon; closed when there are no more
	stop  chan struct{}

	toDaemon   chan []byte
	unsent     [][]byte // what toDaemon has not taken yet, oldest first
	unsentSize int      // bytes
}

// maxUnsent is how many bytes may wait for the daemon to read before the shim
// stops reading from the client.
const maxUnsent = 64 << 20

func newLink(nc net.Conn, r io.Reader) *link {
	l := &link{nc: nc, lines: make(chan []byte), stop: make(chan struct{}), toDaemon: make(chan []byte)}
	go readLines(r, maxDaemonLine, l.lines, l.stop) // ends with close
	go func() { _ = writeLines(nc, l.toDaemon) }()  // ends with close; when it fails, reading fails too
	return l
}

// send sends a line after those before it. It does not wait: the daemon takes no
// more calls of a client that leaves many answers unread, so each would wait for
// the other.
func (l *link) send(line []byte) {
	l.unsent = append(l.unsent, line)
	l.unsentSize += len(line)
}

// sent is called when toDaemon has taken the first line.
func (l *link) sent() {
	l.unsentSize -= len(l.unsent[0])
	l.unsent = l.unsent[1:]
}

func (l *link) close() {
	close(l.stop)
	close(l.toDaemon)
	l.nc.Close()
}

// writeLines writes lines until there are no more or w fails.
func writeLines(w io.Writer, lines <-chan []byte) error {
	for line := range lines {
		if n := len(line); n == 0 || line[n-1] != '\n' {
			line = append(line[:n:n], '\n')
		}
		if _, err := w.Write(line); err != nil {
			return err
		}
	}
	return nil
}

// lose drops a link that the daemon closed, and starts to look for another one.
func (s *shim) lose(ctx context.Context) {
	s.logf("lost the daemon")
	if len(s.link.unsent) == 0 { // otherwise the daemon may not have read a cancel
		s.forgetCancelled()
	}
	s.link.close()
	s.link = nil
	s.failures = 0
	s.patience = time.Now().Add(s.cfg.Outage)
	s.connect(ctx)
}

// disconnect drops the link and any pending attempt for good.
func (s *shim) disconnect(cancel func()) {
	cancel()
	if s.attempt != nil {
		s.link = (<-s.attempt).link
	}
	if s.link != nil {
		s.link.close()
	}
}

// An attempt is the result of an attempt to connect.
type attempt struct {
	link    *link
	welcome server.Welcome
	err     error
}

// dial makes one attempt.
func dial(ctx context.Context, d *connection.Dialer, hello server.Hello, start bool) attempt {
	nc, err := d.Reach(ctx, start)
	if err != nil {
		return attempt{err: err}
	}
	if d.Apart() {
		hello.Mark = process.Mark(os.Getppid())
	}
	stop := context.AfterFunc(ctx, func() { nc.Close() })
	nc.SetDeadline(time.Now().Add(connection.HelloTimeout))
	br, w, err := server.Greet(nc, d.Current(hello))
	if !stop() || err != nil {
		nc.Close()
		return attempt{err: cmp.Or(err, context.Cause(ctx))}
	}
	nc.SetDeadline(time.Time{})
	return attempt{link: newLink(nc, br), welcome: w}
}

// connect begins an attempt, unless one is in progress or there is a link. It
// may start a daemon only while requests wait, or for a while after a link was lost,
// because the client may hold leases.
func (s *shim) connect(ctx context.Context) {
	s.retry = nil
	if s.attempt != nil || s.link != nil {
		return
	}
	hello := server.Hello{Handle: s.handle, Token: s.cfg.Token, Directory: s.cfg.Directory, Parent: true}
	if s.cfg.Tools != "all" {
		hello.Tools = s.cfg.Tools
	}
	if hello.Token == "" {
		hello.Run, hello.Name = s.cfg.Run, s.name
	}
	start := s.cfg.Start && time.Now().Before(s.patience)
	done := make(chan attempt, 1)
	s.attempt = done
	go func() { done <- dial(ctx, s.dialer, hello, start) }()
}

// The time between attempts grows with each failure. The shim continues to try
// when no request waits any more, because the client may hold leases.
const (
	idleRetry = 2 * time.Second

	// maxStarts is how many started daemons may fail in a row before requests
	// are told why.
	maxStarts = 3
)

// attempted handles the result of an attempt.
func (s *shim) attempted(a attempt) {
	s.attempt = nil
	if a.err == nil {
		s.failures, s.failedStarts = 0, 0
		s.link = a.link
		s.resume(a.welcome)
		return
	}
	final := connection.Final(a.err)
	if s.failures++; s.failures == 1 || final {
		s.logf("%v", a.err)
	}
	if _, failed := errors.AsType[*connection.StartError](a.err); !failed {
		s.failedStarts = 0
	} else if s.failedStarts++; s.failedStarts >= maxStarts {
		s.patience = time.Time{} // another start would fail in the same way
	}
	switch {
	case final: // refused until the next request, which tries again
		s.refuseAll(a.err)
	case time.Now().Before(s.patience):
		s.retry = time.After(connection.RetryAfter(s.failures))
	default:
		s.refuseAll(a.err)
		s.retry = time.After(idleRetry)
	}
}

// refuseAll refuses all requests because no session was opened.
func (s *shim) refuseAll(err error) {
	why := tools.Refusal{Code: "UNAVAILABLE"}
	if refused, ok := errors.AsType[*server.HelloError](err); ok {
		why = refused.Refusal()
	}
	if !connection.Final(err) {
		why.Message = s.unreached(err)
	}
	for _, r := range s.inOrder() {
		s.refuse(r, why)
	}
}

// unreached returns the message for a daemon that cannot be reached.
func (s *shim) unreached(err error) string {
	if s.dialer.Elsewhere() {
		return err.Error()
	}
	var advice exit.Hinted
	if errors.As(err, &advice) {
		return fmt.Sprintf("%v; %s", err, advice.Hint)
	}
	return err.Error()
}

// resume restores the state of the last link on a new one.
func (s *shim) resume(w server.Welcome) {
	s.handle = w.Handle
	s.logf("connected as %s of run %s", w.Actor.Path, w.Actor.Run)
	if s.initialize != nil {
		s.link.send(wire.WithID(s.initialize, replayID))
		if s.initialized != nil {
			s.link.send(s.initialized)
		}
		if s.logLevel != nil {
			s.link.send(wire.WithID(s.logLevel, replayID))
		}
		for i, uri := range slices.Sorted(maps.Keys(s.subscribed)) {
			s.link.send(wire.WithID(s.subscribed[uri], fmt.Sprint(replayID, i)))
			s.tell(wire.Notification(wire.ResourceUpdated, map[string]string{"uri": uri})) // it may have changed meanwhile
		}
	}
	s.cancelAgain()
	for _, r := range s.inOrder() {
		s.send(r)
	}
}

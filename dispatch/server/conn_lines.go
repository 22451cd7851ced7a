package server

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"github.com/leasehold/leasehold/dispatch/server/fair"
	"github.com/leasehold/leasehold/dispatch/server/wire"
)

var (
	// errTooLong ends a connection whose message exceeds the limit.
	errTooLong = fmt.Errorf("a message is larger than %d MiB", wire.MaxMessage>>20)

	// errLateMessage ends a connection whose client does not finish a message.
	errLateMessage = fmt.Errorf("a message did not arrive within %v", bodyTimeout)

	// errSlowPeer ends a connection whose peer does not read.
	errSlowPeer = errors.New("the client reads no answers: it is stopped or too slow")
)

// readLine returns the next line without its newline. The line is a copy,
// because calls keep it. readLine calls large, if it is not nil, when it has read
// largeMessage bytes, and returns its error.
func readLine(br *bufio.Reader, limit int, large func() error) ([]byte, error) {
	var line []byte
	for {
		part, err := br.ReadSlice('\n')
		if len(line)+len(part) > limit+1 { // the newline does not count
			return nil, errTooLong
		}
		if large != nil && len(line)+len(part) >= largeMessage {
			if err := large(); err != nil {
				return nil, err
			}
			large = nil
		}
		line = append(line, part...)
		switch {
		case err == nil:
			return line[:len(line)-1], nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, err // a line without a newline is not a message
		}
	}
}

// A lineWriter writes lines to a peer, one at a time. The goroutine that has an
// answer writes it, and waits for its turn. What a peer leaves unread is
// limited, for each peer and for all together.
type lineWriter struct {
	nc      net.Conn
	timeout time.Duration
	cut     context.CancelCauseFunc // called with the reason when nothing more can be written
	shares  *fair.Shares

	queued atomic.Int64 // bytes of lines that are not written yet
	failed atomic.Bool
	turn   chan struct{} // contains an element while somebody writes; no mutex is held during a write
}

// writePart is how much a peer must read within the timeout.
const writePart = 64 << 10

// write writes a line, including its newline, and reports whether all of it was
// written. After a failure the connection is closed, which also stops its
// reader.
func (w *lineWriter) write(line []byte) bool {
	size := int64(len(line))
	behind := w.queued.Add(size) - size
	room := w.shares.Queue(size, behind)
	defer func() {
		w.queued.Add(-size)
		w.shares.Unqueue(size)
	}()
	if !room {
		w.fail(errSlowPeer)
		return false
	}
	w.turn <- struct{}{}
	defer func() { <-w.turn }()
	for len(line) > 0 && !w.failed.Load() {
		part := line[:min(len(line), writePart)]
		w.nc.SetWriteDeadline(time.Now().Add(w.timeout))
		n, err := w.nc.Write(part)
		if err != nil {
			if ne, ok := errors.AsType[net.Error](err); ok && ne.Timeout() {
				err = errSlowPeer
			}
			w.fail(err)
		}
		line = line[n:]
	}
	return len(line) == 0
}

// caughtUp waits while the peer has much to read, because nothing is done for a
// peer that does not read.
func (w *lineWriter) caughtUp(ctx context.Context) {
	for w.behind() && ctx.Err() == nil {
		select {
		case w.turn <- struct{}{}: // after those that are writing now
			<-w.turn
		case <-ctx.Done():
		}
	}
}

// behind reports whether the peer has much to read. It is false for a nil
// writer.
func (w *lineWriter) behind() bool {
	return w != nil && w.queued.Load() > maxAhead && !w.failed.Load()
}

func (w *lineWriter) fail(err error) {
	if w.failed.CompareAndSwap(false, true) {
		w.cut(err)
		w.nc.Close()
	}
}

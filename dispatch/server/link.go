package server

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/dispatch/process"
	"github.com/leasehold/leasehold/dispatch/server/tools"
	"github.com/leasehold/leasehold/dispatch/server/wire"
	"github.com/leasehold/leasehold/engine/call"
	"github.com/leasehold/leasehold/engine/record"
)

// A link connects a session to a partition: a connection over which it calls
// tools there, in a session that it has there for as long as the link exists.
// The partition treats it as a client that another server has passed on, and
// that server answers for its identity: see [voucher].
type link struct {
	nc  net.Conn
	out frames
	in  *bufio.Reader

	writing sync.Mutex // held to write a line, with a deadline

	mu      sync.Mutex
	next    int
	waiting map[string]chan linkAnswer // by id
	err     error                      // why no more answers come
	over    chan struct{}              // closed when that is so
}

// A voucher says for which actor a server speaks over a link.
type voucher struct {
	ID   uuid.UUID     `json:"id"`
	Name string        `json:"name"`
	Path string        `json:"path"`
	Role dispatch.Role `json:"role"`
}

// errLinkLost refuses a call whose partition is moving to another server.
var errLinkLost = errors.New("the partition goes to another server; try again")

// maxLinkLine is the largest answer, which is at most a page of a list.
const maxLinkLine = 64 << 20

// dialLink makes a link to a partition, wherever it is led.
func (s *Server) dialLink(ctx context.Context, partition int, v voucher, peer process.Peer) (*link, error) {
	h, _, nc, err := s.reach(ctx, false, passage{Partition: partition, Peer: peer, Voucher: &v})
	if err != nil {
		return nil, err
	}
	if h != nil { // it is led here
		near, far := net.Pipe()
		nc = near
		go func() { // ends with the link, or with the home, which waits for its guests
			defer h.guests.Done()
			s.ServeConn(h.ctx, &passed{Conn: far, in: bufio.NewReaderSize(far, 4<<10), partition: partition, voucher: &v}, peer)
		}()
	}
	l := &link{
		nc: nc, out: frames{nc},
		waiting: make(map[string]chan linkAnswer), over: make(chan struct{}),
	}
	if err := l.greet(ctx, s.opts.HelloTimeout); err != nil {
		nc.Close()
		return nil, err
	}
	go l.read() // ends with the connection
	return l, nil
}

func (l *link) greet(ctx context.Context, timeout time.Duration) (err error) {
	stop := context.AfterFunc(ctx, func() { l.nc.Close() })
	defer stop()
	l.nc.SetDeadline(time.Now().Add(timeout))
	defer l.nc.SetDeadline(time.Time{})
	l.in, _, err = Greet(l.out, Hello{Operator: true})
	if _, refused := errors.AsType[*HelloError](err); err != nil && !refused {
		err = fmt.Errorf("%w: %w", errLinkLost, err)
	}
	return err
}

// A linkAnswer is the reply to a call, or the error instead of one.
type linkAnswer struct {
	reply tools.Reply
	err   error
}

// call calls a tool. If ctx ends, the call is cancelled. The call has no effect
// if one of the same name was made before, over this or another link; it then
// gets the same answer.
func (l *link) call(ctx context.Context, name call.Call, tool string, args tools.Arguments) (tools.Reply, error) {
	answer := make(chan linkAnswer, 1)
	l.mu.Lock()
	l.next++
	id := strconv.Itoa(l.next)
	if l.err != nil {
		l.mu.Unlock()
		return tools.Reply{}, l.err
	}
	l.waiting[id] = answer
	l.mu.Unlock()
	if len(args) == 0 {
		args = tools.Arguments("{}")
	}
	line := []byte(`{"jsonrpc":"2.0","id":` + id + `,"method":"tools/call","params":{"name":` + strconv.Quote(tool) + `,"_meta":{"` + wire.NamedMark + `":"` + textOf(name) + `"},"arguments":`)
	if err := l.write(append(append(line, args...), "}}\n"...)); err != nil {
		l.nc.Close()
	}
	select {
	case a := <-answer:
		return a.reply, a.err
	case <-l.over:
	case <-ctx.Done():
		l.mu.Lock()
		delete(l.waiting, id)
		l.mu.Unlock()
		_ = l.write(wire.Notification(wire.Cancelled, map[string]any{"requestId": json.RawMessage(id)})) // if this fails, the link has ended
		return tools.Reply{}, context.Cause(ctx)
	}
	select {
	case a := <-answer: // the answer came before the end
		return a.reply, a.err
	default:
		return tools.Reply{}, l.err
	}
}

// textOf returns the text of a name, which [namedBy] reads.
func textOf(name call.Call) string {
	w := record.New(64)
	w.Flags(name.SentFirst())
	name.Append(w)
	return base64.RawStdEncoding.EncodeToString([]byte(w.String()))
}

// namedBy returns the name of a call that another server makes. If the text
// cannot be read, the call has no name.
func namedBy(text string, se *dispatch.Session) call.Call {
	b, err := base64.RawStdEncoding.DecodeString(text)
	r := record.Read(string(b))
	var first bool
	r.Flags(&first)
	c := call.Read(&r)
	if err != nil || !r.Done() || !c.Lasting() {
		return call.Alone(se.ID())
	}
	c.Log = se.CallLog()
	if c = c.Sent(); first {
		c = c.Original()
	}
	return c
}

func (l *link) write(line []byte) error {
	l.writing.Lock()
	defer l.writing.Unlock()
	l.nc.SetWriteDeadline(time.Now().Add(passageTimeout))
	_, err := l.out.Write(line)
	return err
}

// read reads answers until there are no more.
func (l *link) read() {
	for {
		line, err := readLine(l.in, maxLinkLine, nil)
		if err != nil {
			l.nc.Close()
			l.mu.Lock()
			l.err = fmt.Errorf("%w: %w", errLinkLost, err)
			close(l.over)
			l.mu.Unlock()
			return
		}
		var m struct {
			ID     json.RawMessage
			Result *struct {
				Content           []struct{ Text string }
				StructuredContent json.RawMessage
				IsError           bool
			}
			Error *struct{ Message string }
		}
		if json.Unmarshal(line, &m) != nil || m.ID == nil {
			continue // a notice, which the client gets elsewhere
		}
		l.mu.Lock()
		answer := l.waiting[string(m.ID)]
		delete(l.waiting, string(m.ID))
		l.mu.Unlock()
		switch {
		case answer == nil: // the caller has given up
		case m.Result != nil && len(m.Result.Content) > 0:
			answer <- linkAnswer{reply: tools.ReplyOf(m.Result.StructuredContent, m.Result.Content[0].Text, m.Result.IsError)}
		case m.Error != nil:
			answer <- linkAnswer{err: errors.New(m.Error.Message)}
		}
	}
}

// lost reports whether the link can no longer be used.
func (l *link) lost() bool {
	select {
	case <-l.over:
		return true
	default:
		return false
	}
}

// close ends the session in the partition, and waits until read has returned.
func (l *link) close() {
	l.writing.Lock()
	l.nc.SetWriteDeadline(time.Now().Add(passageTimeout))
	_ = l.out.end() // otherwise the other side finds out by itself
	l.writing.Unlock()
	l.nc.Close()
	<-l.over
}

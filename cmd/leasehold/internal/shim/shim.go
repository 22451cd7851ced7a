package shim

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/cmd/leasehold/internal/connection"
	"github.com/leasehold/leasehold/dispatch/server"
	"github.com/leasehold/leasehold/dispatch/server/tools"
	"github.com/leasehold/leasehold/dispatch/server/wire"
)

const (
	// maxClientLine bounds what is read of one message of the client, so
	// that one too large for the daemon can be refused by its id.
	maxClientLine = 4 * wire.MaxMessage

	// maxDaemonLine bounds one message of the daemon.
	maxDaemonLine = 256 << 20

	// maxUnread is how many messages the client may leave unread before the
	// shim stops to read the daemon's, which then sees a slow peer.
	maxUnread = 64

	// maxSends is how often one request is sent. A daemon that has ended so
	// often may well end because of it.
	maxSends = 10

	// drainTime bounds how long short calls may finish once the client has
	// closed its side.
	drainTime = 5 * time.Second
)

// A shim joins an MCP client to the daemon. To the client it is a server that
// never goes away: when the daemon does, the shim connects again, resumes the
// session, repeats the handshake and sends again what has no answer yet. Each
// request of the client gets one answer at most.
//
// One goroutine, in run, has all the state and waits for nothing but its
// channels. Others read the client, write to it, read the daemon and connect.
type shim struct {
	cfg    Config
	dialer *connection.Dialer
	stderr io.Writer

	id       string // tells its calls from those of other shims of the session
	name     string // to join under; "" until the first message
	handle   string // of the session; "" until there is one
	link     *link  // to the daemon; nil while there is none
	requests map[string]*request
	sequence int
	unread   []outgoing // for the client
	delivery *delivery  // to it

	// The handshake, for the daemon that comes after this one.
	initialize  []byte // answered
	initialized []byte
	logLevel    []byte            // the last logging/setLevel
	subscribed  map[string][]byte // resources/subscribe, by URI

	// While there is no link.
	attempt  <-chan attempt // one that is under way
	retry    <-chan time.Time
	failures int       // in a row
	patience time.Time // requests wait for the daemon until then
}

// A request has no answer yet.
type request struct {
	line     []byte
	message  wire.Message
	since    time.Time // it came
	sequence int
	sends    int
}

func newShim(cfg Config, stderr io.Writer) *shim {
	cfg.Outage = cmp.Or(cfg.Outage, 30*time.Second)
	return &shim{
		cfg: cfg, stderr: stderr, id: uuid.NewString(), name: cfg.Name,
		dialer:   connection.NewDialer(cfg.Target),
		requests: make(map[string]*request), subscribed: make(map[string][]byte),
	}
}

func (s *shim) run(ctx context.Context, stdin io.Reader, stdout io.Writer) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	client := make(chan []byte)
	go readLines(stdin, maxClientLine, client, ctx.Done()) // ends with stdin or the process
	s.delivery = newDelivery(stdout)
	toClient := make(chan []byte)
	deaf := make(chan struct{})
	go func() { // ends with toClient
		defer close(deaf)
		if err := writeLines(s.delivery, toClient); err != nil {
			s.logf("the client is gone: %v", err)
		}
	}()
	defer func() {
		s.disconnect(cancel) // first: the daemon frees what the client held
		close(toClient)
		select {
		case <-deaf: // the last answer is out
		case <-time.After(100 * time.Millisecond):
		}
	}()

	var drained <-chan time.Time
	for {
		if drained != nil && !s.draining() {
			return
		}
		var out chan<- []byte
		var next []byte
		if len(s.unread) > 0 {
			out, next = toClient, s.unread[0].line
		}
		var daemon <-chan []byte
		if s.link != nil && len(s.unread) < maxUnread {
			daemon = s.link.lines
		}
		select {
		case line, ok := <-client:
			if !ok {
				client, drained = nil, time.After(drainTime)
				continue
			}
			s.fromClient(ctx, line)
		case out <- next:
			s.delivery.hand(s.unread[0].answer)
			s.unread = s.unread[1:]
		case <-s.delivery.timer:
			s.delivery.look()
		case line, ok := <-daemon:
			if !ok {
				s.lose(ctx)
				continue
			}
			s.fromDaemon(line)
		case a := <-s.attempt:
			s.attempted(a)
		case <-s.retry:
			s.connect(ctx)
		case <-drained:
			return
		case <-deaf:
			return
		case <-ctx.Done():
			return
		}
	}
}

// draining reports whether there is something left to do for a client that
// has closed its side. It waits for no answer that may take long: a client
// that was killed has left its blocked calls too, and what it holds is to be
// free now.
func (s *shim) draining() bool {
	for _, r := range s.requests {
		if !r.message.Waits(false) {
			return true
		}
	}
	return len(s.unread) > 0
}

// An outgoing line waits for the client to read.
type outgoing struct {
	line   []byte
	answer string // key of the request it answers; "" for anything else
}

func (s *shim) tell(line []byte) { s.unread = append(s.unread, outgoing{line: line}) }

func (s *shim) logf(format string, args ...any) {
	fmt.Fprintf(s.stderr, "leasehold mcp: "+format+"\n", args...)
}

// fromClient takes a message of the client.
func (s *shim) fromClient(ctx context.Context, line []byte) {
	m, fault := wire.Parse(line)
	if s.name == "" {
		s.name = clientName(m, s.cfg.Directory)
	}
	switch {
	case len(line) > wire.MaxMessage:
		s.tell(wire.ErrorReply(m.ID, wire.InvalidRequest, fmt.Sprintf("the message is larger than %d MiB", wire.MaxMessage>>20), nil))
	case fault != nil:
		s.tell(fault.Reply())
	case !m.Request():
		s.notified(m, line)
	case s.requests[m.Key] != nil:
		s.tell(wire.ErrorReply(m.ID, wire.InvalidRequest, "a request with this id is not answered yet", nil))
	default:
		s.sequence++
		r := &request{line: line, message: m, since: time.Now(), sequence: s.sequence}
		if m.Method == wire.ToolsCall && m.Params.Meta.Call == "" {
			r.line = wire.Marked(line, fmt.Sprintf("%s-%d", s.id, s.sequence))
		}
		s.requests[m.Key] = r
		if s.link != nil {
			s.send(r)
			return
		}
		if s.patience.Before(time.Now()) {
			s.patience = time.Now().Add(s.cfg.Outage)
		}
		s.connect(ctx)
	}
}

// notified takes what wants no answer. While there is no daemon it is lost,
// but for what the next one needs to know.
func (s *shim) notified(m wire.Message, line []byte) {
	switch m.Method {
	case wire.Initialized:
		s.initialized = line
	case wire.Cancelled:
		key := wire.Key(m.Params.RequestID)
		if s.delivery.has(key) {
			return // nothing is left to cancel
		}
		// Whether or not the daemon has answered: the client has not seen it,
		// so it is not to see it, and the daemon undoes the call.
		delete(s.requests, key)
		s.unread = slices.DeleteFunc(s.unread, func(o outgoing) bool { return key != "" && o.answer == key })
	}
	if s.link != nil {
		s.link.write(line)
	}
}

// send sends a request, or gives it up.
func (s *shim) send(r *request) {
	if r.sends == maxSends {
		s.refuse(r, "UNAVAILABLE", fmt.Sprintf("the daemon went away %d times with this request; see its log", maxSends))
		return
	}
	line := r.line
	if r.sends > 0 {
		line = wire.Resent(line, time.Since(r.since))
	}
	r.sends++
	s.link.write(line)
}

// refuse answers a request in the daemon's place.
func (s *shim) refuse(r *request, code, message string) {
	delete(s.requests, r.message.Key)
	s.tell(server.Refusal(r.message.ID, r.message.Method, tools.Refusal{Code: code, Message: message}))
}

// inOrder are the requests without an answer, oldest first.
func (s *shim) inOrder() []*request {
	return slices.SortedFunc(maps.Values(s.requests), func(a, b *request) int { return a.sequence - b.sequence })
}

// replayID marks the shim's own requests, whose answers the client must not
// see.
const replayID = "leasehold-shim-replay"

// fromDaemon takes a message of the daemon.
func (s *shim) fromDaemon(line []byte) {
	m, fault := wire.Parse(line)
	if fault != nil || m.Method != "" || m.ID == nil {
		s.tell(line)
		return
	}
	r := s.requests[m.Key]
	if r == nil {
		return // of the replay, or cancelled
	}
	delete(s.requests, m.Key)
	if !m.Failed {
		switch r.message.Method {
		case wire.Initialize:
			s.initialize = r.line
		case wire.SetLevel:
			s.logLevel = r.line
		case wire.Subscribe:
			s.subscribed[r.message.Params.URI] = r.line
		case wire.Unsubscribe:
			delete(s.subscribed, r.message.Params.URI)
		}
	}
	s.unread = append(s.unread, outgoing{line, m.Key})
}

package shim

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/cmd/leasehold/internal/connection"
	"github.com/leasehold/leasehold/dispatch/server"
	"github.com/leasehold/leasehold/dispatch/server/tools"
	"github.com/leasehold/leasehold/dispatch/server/wire"
)

const (
	// maxClientLine limits one message of the client. It is greater than what
	// the daemon accepts, so that a message that is too large can be refused by
	// its id.
	maxClientLine = 4 * wire.MaxMessage

	// maxDaemonLine limits one message of the daemon.
	maxDaemonLine = 256 << 20

	// maxUnread is how many messages the client may leave unread before the
	// shim stops reading from the daemon, which then sees a slow peer.
	maxUnread = 64

	// maxSends is how often one request is sent. A daemon that has ended that
	// often probably ends because of the request.
	maxSends = 10

	// drainTime is how long short calls may take to finish once the client has
	// closed its side.
	drainTime = 5 * time.Second

	// lastWrite is how long the last answer may take to be written.
	lastWrite = time.Second
)

// A shim connects an MCP client to the daemon. The client sees a server that
// never goes away: when the daemon does, the shim reconnects, resumes the
// session, repeats the handshake and sends unanswered requests again. Each
// request of the client gets at most one answer.
//
// One goroutine, in run, owns all state and waits only for its channels. Other
// goroutines read from the client, write to it, do the same for the daemon, and
// connect.
type shim struct {
	cfg    Config
	dialer *connection.Dialer
	stderr io.Writer

	id       string // distinguishes its calls from those of other shims of the session
	name     string // name to join under; "" until the first message
	handle   string // of the session; "" until there is one
	link     *link  // to the daemon; nil while not connected
	requests map[string]*request
	sequence int
	unread   []outgoing // messages that the client has not read
	delivery *delivery  // tracks what the client has read

	cancelled []cancelledCall // oldest first

	// The messages that are repeated to the next daemon.
	initialize  []byte // set once it has been answered
	initialized []byte
	logLevel    []byte            // the last logging/setLevel
	subscribed  map[string][]byte // resources/subscribe, by URI

	// Used while there is no link.
	attempt      <-chan attempt // the attempt in progress
	retry        <-chan time.Time
	failures     int       // in a row
	failedStarts int       // of a daemon, in a row
	patience     time.Time // until when requests wait for the daemon
}

// A request is a request without an answer.
type request struct {
	line     []byte
	message  wire.Message
	since    time.Time // when it arrived
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
	ended := io.MultiReader(stdin, strings.NewReader("\n")) // some clients end the last message with the end of stdin
	go readLines(ended, maxClientLine, client, ctx.Done())  // ends with stdin or the process
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
		s.disconnect(cancel) // first, so that the daemon frees what the client held
		close(toClient)
		select {
		case <-deaf: // the last answer has been written
		case <-time.After(lastWrite):
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
		from := client
		var daemon <-chan []byte
		var toDaemon chan<- []byte
		var unsent []byte
		if s.link != nil {
			if len(s.unread) < maxUnread {
				daemon = s.link.lines
			}
			if len(s.link.unsent) > 0 {
				toDaemon, unsent = s.link.toDaemon, s.link.unsent[0]
			}
			if s.link.unsentSize > maxUnsent {
				from = nil
			}
		}
		select {
		case line, ok := <-from:
			if !ok {
				client, drained = nil, time.After(drainTime)
				continue
			}
			s.fromClient(ctx, line)
		case toDaemon <- unsent:
			s.link.sent()
		case out <- next:
			s.delivery.hand(s.unread[0].key())
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

// draining reports whether something is left to do for a client that has closed
// its side. It does not wait for calls that may take long: a client that was
// killed leaves its waiting calls behind, and what it holds must be freed now.
func (s *shim) draining() bool {
	for _, r := range s.requests {
		if !r.message.Waits(false) {
			return true
		}
	}
	return len(s.unread) > 0
}

// An outgoing line waits until the client reads it.
type outgoing struct {
	line    []byte
	answers *request // nil for other messages
}

// key is that of the request that it answers, or "".
func (o outgoing) key() string {
	if o.answers == nil {
		return ""
	}
	return o.answers.message.Key
}

func (s *shim) tell(line []byte) { s.unread = append(s.unread, outgoing{line: line}) }

func (s *shim) logf(format string, args ...any) {
	fmt.Fprintf(s.stderr, "leasehold mcp: "+format+"\n", args...)
}

// fromClient handles a message of the client.
func (s *shim) fromClient(ctx context.Context, line []byte) {
	m, fault := wire.Parse(line)
	if s.name == "" {
		s.name = clientName(m, s.cfg.Directory)
	}
	switch {
	case len(line) > wire.MaxMessage:
		if fault != nil { // its end was cut off
			m.ID = wire.LeadingID(line)
		}
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
		if m.Method == wire.ToolsCall && s.dialer.Apart() && m.Params.Arguments != nil {
			line = wire.WithArguments(line, connection.Located(s.cfg.Directory, m.Params.Name, m.Params.Arguments))
			r.line = line
		}
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

// notified handles a message that needs no answer. Without a daemon it is
// dropped, except for what the next daemon needs to know.
func (s *shim) notified(m wire.Message, line []byte) {
	switch m.Method {
	case wire.Initialized:
		s.initialized = line
	case wire.Cancelled:
		key := wire.Key(m.Params.RequestID)
		if s.delivery.has(key) {
			return // nothing is left to cancel
		}
		// Even if the daemon has answered, the client has not read the answer.
		// So the answer is dropped, and the daemon undoes the call.
		c := cancelledCall{request: s.requests[key]}
		delete(s.requests, key)
		s.unread = slices.DeleteFunc(s.unread, func(o outgoing) bool {
			answer := key != "" && o.key() == key
			if answer {
				c.request = o.answers
			}
			return answer
		})
		if s.link != nil {
			c.told = time.Now()
		}
		s.cancelLater(c)
	}
	if s.link != nil {
		s.link.send(line)
	}
}

// send sends a request, or refuses it if it was sent too often.
func (s *shim) send(r *request) {
	if r.sends == maxSends {
		s.refuse(r, tools.Refusal{Code: "UNAVAILABLE", Message: fmt.Sprintf("the daemon went away %d times with this request; see its log", maxSends)})
		return
	}
	line := r.line
	if r.sends > 0 {
		line = wire.Resent(line, time.Since(r.since))
	}
	r.sends++
	s.link.send(line)
}

// refuse answers a request in place of the daemon.
func (s *shim) refuse(r *request, why tools.Refusal) {
	delete(s.requests, r.message.Key)
	if r.sends > 0 && r.message.Method == wire.ToolsCall {
		why.Message += tools.Unanswered(r.message.Params.Name)
	}
	s.tell(server.Refusal(r.message.ID, r.message.Method, why))
}

// inOrder returns the requests without an answer, oldest first.
func (s *shim) inOrder() []*request {
	return slices.SortedFunc(maps.Values(s.requests), func(a, b *request) int { return a.sequence - b.sequence })
}

// replayID marks the shim's own requests, whose answers are not for the client.
const replayID = "leasehold-shim-replay"

// fromDaemon handles a message of the daemon.
func (s *shim) fromDaemon(line []byte) {
	m, fault := wire.Parse(line)
	if fault != nil || m.Method != "" || m.ID == nil {
		s.tell(line)
		return
	}
	r := s.requests[m.Key]
	if r == nil {
		return // the answer to a replay, or to a cancelled request
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
	s.unread = append(s.unread, outgoing{line, r})
}

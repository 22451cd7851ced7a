package client

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel/trace"

	"github.com/leasehold/leasehold/engine/clock"
	"github.com/leasehold/leasehold/engine/traceparent"
)

// Options say how to reach a state, and as which actor.
type Options struct {
	// Servers are URLs: unix:///path of a daemon's socket, https://host, or
	// http://localhost:port on this machine. If a server does not answer, the client asks
	// the next one.
	Servers []string
	Token   string        // of an actor, from leasehold actor add
	TLS     *tls.Config   // for https; nil: the system's trusted roots
	Outage  time.Duration // how long a call is retried while no server answers; 0: 30 s
	Log     *slog.Logger  // nil: silent
}

const defaultOutage = 30 * time.Second

// A Client is one session with a state, for as long as it is open. When it is
// closed, or its process ends, everything that it holds is released. It is safe
// for use by many goroutines.
type Client struct {
	opts    Options
	servers *servers
	clock   clock.Clock
	log     *slog.Logger
	ctx     context.Context // ends with Close
	stop    context.CancelCauseFunc
	running sync.WaitGroup // goroutines that end with ctx

	enqueues combiner[string]
	submits  combiner[submitted]

	turns turns

	opening   chan struct{} // held by the call that opens a session
	mu        sync.Mutex
	session   string            // its handle; "" if there is none
	closed    bool              // nothing more can be asked or held
	holds     map[uint64]*hold  // by token
	expecting int               // how many holds may begin with answers that have not come yet
	early     map[uint64]string // why a token was lost that may be in one of those answers
}

// Open opens a session. It lasts until Close, even after ctx has ended.
func Open(ctx context.Context, o Options) (*Client, error) {
	ss, err := newServers(o.Servers, o.TLS)
	if err != nil {
		return nil, err
	}
	return open(ctx, o, ss, clock.Machine())
}

func open(ctx context.Context, o Options, ss *servers, clk clock.Clock) (*Client, error) {
	o.Token = strings.TrimSpace(o.Token) // of a file, with the end of its line
	if strings.ContainsAny(o.Token, "\r\n") {
		return nil, errors.New("the token has several lines: leasehold actor add prints it on the last one")
	}
	if o.Outage == 0 {
		o.Outage = defaultOutage
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	c := &Client{opts: o, servers: ss, clock: clk, log: o.Log, opening: make(chan struct{}, 1), holds: make(map[uint64]*hold), early: make(map[uint64]string), turns: turns{lines: make(map[turnKey][]*turn)}}
	// Requests that combine several callers are sent within this context, so
	// they belong to no caller's span.
	c.ctx, c.stop = context.WithCancelCause(trace.ContextWithSpanContext(context.WithoutCancel(ctx), trace.SpanContext{}))
	c.enqueues.init(c, c.enqueueAll)
	c.submits.init(c, c.submitAll)
	if err := c.openFirst(ctx); err != nil {
		c.stop(ErrClosed)
		return nil, err
	}
	c.running.Go(c.watch)
	return c, nil
}

// openFirst opens the first session. Like a call, it is tried for
// Options.Outage, but once at each server if their certificates are not trusted.
func (c *Client) openFirst(ctx context.Context) error {
	giveUp := c.clock.Running() + c.opts.Outage
	for failures := 0; ; failures++ {
		_, err := c.open(ctx)
		if err == nil || !retriable(err) || untrusted(err) && failures+1 >= len(c.servers.list) || c.clock.Running() > giveUp || pause(ctx, failures) != nil {
			return err
		}
	}
}

// Close ends the session, which releases everything that it holds. The contexts
// of leases and tasks end first.
func (c *Client) Close() error {
	c.mu.Lock()
	handle := c.session
	c.closed = true
	c.mu.Unlock()
	c.loseAll(handle, ErrReleased)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.ctx), closeTimeout)
	defer cancel()
	select { // a call that is opening another session ends it
	case c.opening <- struct{}{}:
		<-c.opening
	case <-ctx.Done():
	}
	var err error
	if handle != "" && c.ctx.Err() == nil {
		err = c.endSession(ctx, handle)
	}
	c.stop(ErrClosed)
	c.running.Wait()
	c.servers.close()
	return err
}

const closeTimeout = 5 * time.Second

// Do calls any route of the API: path is below /api/v1, and in and out are JSON
// or nil. A refusal is an [*Error]. The client does not renew what the call is
// granted; see Acquire and Work for that. Acquire of a key that the client has
// leased by Do releases that lease first.
func (c *Client) Do(ctx context.Context, method, path string, in, out any) error {
	if _, err := http.NewRequestWithContext(ctx, method, apiPrefix+path, http.NoBody); err != nil {
		return err
	}
	r := request{method: method, path: path}
	if in != nil {
		body, err := arguments(in)
		if err != nil {
			return err
		}
		r.body = body
	}
	return c.do(ctx, &r, out)
}

// A request is a call of an API route.
type request struct {
	method, path string
	body         []byte
	wait         time.Duration // how long the server may wait before it answers
	key          string        // identifies the call each time it is sent
	session      string        // the session in which it was sent last
	insists      bool          // it is sent again also while a limit refuses it
	version      string        // that the entry must have; "0": there must be none; "": any
}

// answerTimeout is how long a server may take to answer, apart from the time it
// waits.
const answerTimeout = 5 * time.Second

// do sends a request until it is answered, ctx ends, or no server has answered
// for Options.Outage.
func (c *Client) do(ctx context.Context, r *request, out any) error {
	if r.key == "" && r.method != http.MethodGet {
		r.key = uuid.NewString()
	}
	var giveUp time.Duration
	for failures, sent := 0, false; ; failures++ {
		err := c.try(ctx, r, r.wait+answerTimeout, out)
		sent = sent || r.session != "" && err != nil && reached(err)
		switch {
		case err == nil || !retriable(err) && !(r.insists && limited(err)):
			return err
		case ctx.Err() != nil:
			c.cancelLater(r)
			return context.Cause(ctx)
		case c.ctx.Err() != nil:
			return ErrClosed
		case failures == 0:
			giveUp = c.clock.Running() + c.opts.Outage
		case c.clock.Running() > giveUp:
			if sent && r.method != http.MethodGet {
				err = fmt.Errorf("%w; the call may have taken effect, so look before you repeat it", err)
			}
			return fmt.Errorf("no server answers: %w", err)
		}
		c.log.Debug("a call is sent again", "path", r.path, "err", err)
		if err := pause(ctx, failures); err != nil {
			c.cancelLater(r)
			return err
		}
	}
}

// cancelLater cancels a call that nobody waits for any more, so that it leaves nothing
// behind. The end of its connection does that too, unless its answer was already read
// from there.
func (c *Client) cancelLater(r *request) {
	if r.method != http.MethodPost || r.session == "" {
		return
	}
	c.later(func() {
		cancel := request{method: http.MethodDelete, path: "/calls/" + r.key}
		_ = c.tryIn(c.ctx, &cancel, answerTimeout, r.session) // its TTL is the second net
	})
}

// later does something without the caller, unless Close does.
func (c *Client) later(do func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.running.Go(do)
	}
}

// reached reports whether a call that failed may have come to a server. A server that
// answers 503 has not done it, but a proxy need not know what the server did.
func reached(err error) bool {
	if dialled, ok := errors.AsType[*net.OpError](err); ok {
		return dialled.Op != "dial"
	}
	refusal, ok := errors.AsType[*Error](err)
	return !ok || refusal.foreign || refusal.Status != http.StatusServiceUnavailable
}

// retriable reports whether a failed call may succeed if it is sent again. While
// connections break, the session that was opened for a call may end as well.
func retriable(err error) bool {
	refusal, ok := errors.AsType[*Error](err)
	return !errors.Is(err, ErrClosed) && (!ok || refusal.passing() || refusal.Code == sessionOver)
}

// limited reports whether a limit refused a call for the present.
func limited(err error) bool {
	refusal, ok := errors.AsType[*Error](err)
	return ok && refusal.Code == "LIMIT" && !refusal.unfit()
}

// untrusted reports whether a call failed because of the server's certificate, which
// does not change from one attempt to the next.
func untrusted(err error) bool {
	_, ok := errors.AsType[*tls.CertificateVerificationError](err)
	return ok
}

// try sends a request once in the session. If the session has ended, try opens
// a new one and sends the request again.
func (c *Client) try(ctx context.Context, r *request, timeout time.Duration, out any) error {
	for reopened := false; ; reopened = true {
		handle, err := c.open(ctx)
		if err != nil {
			return err
		}
		r.session = handle
		bounded, cancel := context.WithTimeout(ctx, timeout)
		status, body, err := c.send(bounded, r, handle)
		cancel()
		if err != nil {
			if ended(err) && !reopened {
				c.sessionEnded(handle)
				continue
			}
			return err
		}
		if status == http.StatusNoContent || out == nil {
			return nil
		}
		return json.Unmarshal(body, out)
	}
}

// tryIn sends a request once, and only in a session that is open already.
func (c *Client) tryIn(ctx context.Context, r *request, timeout time.Duration, handle string) error {
	bounded, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	_, _, err := c.send(bounded, r, handle)
	if ended(err) {
		c.sessionEnded(handle)
	}
	return err
}

// ended reports whether a refusal says that the session has ended.
func ended(err error) bool {
	refusal, ok := errors.AsType[*Error](err)
	return ok && (refusal.Code == sessionOver || refusal.Status == http.StatusUnauthorized)
}

// sessionOver is the code of a refusal whose session has ended.
const sessionOver = "SESSION_ENDED"

// send sends a request to the current server. If that does not answer, later
// requests go to the next one.
func (c *Client) send(ctx context.Context, r *request, handle string) (status int, body []byte, err error) {
	s, number := c.servers.current()
	asked, end := context.WithCancel(ctx)
	defer end()
	if r.wait > 0 && len(c.servers.list) > 1 {
		go s.endIfStill(asked, end)
	}
	resp, err := s.http.Do(c.httpRequest(asked, s, r, handle))
	if err != nil {
		c.unanswered(ctx, number)
		return 0, nil, err
	}
	defer resp.Body.Close()
	body, err = io.ReadAll(resp.Body)
	if err != nil {
		c.unanswered(ctx, number)
		return 0, nil, err
	}
	if bytes.Contains(body, []byte(`"notices":`)) {
		c.readNotices(body)
	}
	if resp.StatusCode < 300 && resp.StatusCode != http.StatusAccepted {
		return resp.StatusCode, body, nil
	}
	refusal := refusalOf(resp, body)
	if refusal.Code != sessionOver && refusal.passing() {
		c.servers.failed(number)
	}
	return resp.StatusCode, body, refusal
}

// refusalOf reads a refusal from the response and its body.
func refusalOf(resp *http.Response, body []byte) *Error {
	refusal := errorOf(resp.StatusCode, body)
	if resp.Header.Get(sessionHeader) == "ended" {
		refusal.Code = sessionOver
	}
	return refusal
}

// unanswered makes the next server current, unless the caller itself gave up.
func (c *Client) unanswered(ctx context.Context, number int64) {
	if !errors.Is(ctx.Err(), context.Canceled) {
		c.servers.failed(number)
	}
}

const sessionHeader = "Leasehold-Session"

func (c *Client) httpRequest(ctx context.Context, s *server, r *request, handle string) *http.Request {
	h, err := http.NewRequestWithContext(ctx, r.method, s.url+r.path, bytes.NewReader(r.body))
	if err != nil {
		panic("client: Do has checked the path of a caller, and others are escaped: " + err.Error())
	}
	h.Header.Set("Authorization", "Bearer "+c.opts.Token)
	h.Header.Set("Accept", "application/json")
	h.Header.Set("Leasehold-Messages", "leave") // and what else only a model reads, which may have the same token
	if len(r.body) > 0 {
		h.Header.Set("Content-Type", "application/json")
	}
	if handle != "" {
		h.Header.Set(sessionHeader, handle)
	}
	if r.key != "" {
		h.Header.Set("Idempotency-Key", r.key)
	}
	switch r.version {
	case "":
	case "0":
		h.Header.Set("If-None-Match", "*")
	default:
		h.Header.Set("If-Match", `"`+r.version+`"`)
	}
	if from := traceOf(ctx); from.Parent != "" {
		h.Header.Set(traceparent.Header, from.Parent)
		if from.State != "" {
			h.Header.Set(traceparent.StateHeader, from.State)
		}
	}
	return h
}

// pause waits, longer after each failure. It is randomized, so that clients that
// were cut off together do not come back together each time.
func pause(ctx context.Context, failures int) error {
	longest := min(firstRetry<<min(failures, 10), lastRetry)
	timer := time.NewTimer(longest - rand.N(longest/2))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

const (
	firstRetry = 20 * time.Millisecond
	lastRetry  = time.Second
)

package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/mark3labs/mcp-go/mcp"

	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/dispatch/server/fair"
	"github.com/leasehold/leasehold/dispatch/server/wire"
	"github.com/leasehold/leasehold/engine/call"
	"github.com/leasehold/leasehold/registry"
)

const (
	// bodyTimeout is how long a client may take to send a message.
	bodyTimeout = 30 * time.Second

	// streamAfter is how long an answer may take before the client gets the
	// head of a stream. Some clients send nothing more until they see a head,
	// and every client then knows that the server is there.
	streamAfter = 50 * time.Millisecond
)

// errClientGone is the cause of a call whose client closed its request.
var errClientGone = errors.New("the client closed the request")

// post handles one message. If the client closes the request, its call is
// cancelled, because the answer has no other way to the client.
func (e *endpoint) post(w http.ResponseWriter, r *http.Request, actor dispatch.Actor) {
	var form rpcForm
	form.json, form.stream = accepts(r)
	body, status, err := e.readBody(w, r, form, actor.ID)
	if err != nil {
		tryLine(w, status, wire.ErrorReply(nil, wire.InvalidRequest, err.Error(), nil), e.server.opts.WriteTimeout)
		return
	}
	env, fault := e.server.parse(body)
	if checkVersion(r) != nil {
		fault = versionReply(env.ID, r.Header.Get(mcp.HeaderProtocolVersion))
	}
	if fault != nil {
		tryLine(w, http.StatusBadRequest, fault, e.server.opts.WriteTimeout)
		return
	}
	if env.Method == wire.Initialize && env.Request() {
		e.initialize(w, r, actor, env, body, form)
		return
	}
	hs, status, err := e.session(r, r.Header.Get(sessionHeader), actor)
	if err != nil {
		tryLine(w, status, wire.ErrorReply(env.ID, wire.InvalidRequest, err.Error(), nil), e.server.opts.WriteTimeout)
		return
	}
	switch {
	case env.Request():
		hs.call(w, r, env, body, form)
	case !hs.presence.begin():
		tryLine(w, http.StatusNotFound, wire.ErrorReply(nil, wire.InvalidRequest, errNoSession.Error(), nil), e.server.opts.WriteTimeout)
	default:
		hs.notified(env)
		w.WriteHeader(http.StatusAccepted)
		hs.presence.answered()
	}
}

func (e *endpoint) readBody(w http.ResponseWriter, r *http.Request, f rpcForm, actor uuid.UUID) (body []byte, status int, err error) {
	if media, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); media != "application/json" {
		return nil, http.StatusUnsupportedMediaType, errors.New("Content-Type must be application/json")
	}
	if !f.json && !f.stream {
		return nil, http.StatusNotAcceptable, errNotAcceptable
	}
	return e.readAll(w, r, actor)
}

// readAll reads a body, limited in time and size. A large one must find room
// among those that are being received, of its actor and in all. The actor is nil if
// another server knows it.
func (e *endpoint) readAll(w http.ResponseWriter, r *http.Request, actor uuid.UUID) (body []byte, status int, err error) {
	if coding := r.Header.Get("Content-Encoding"); coding != "" && !strings.EqualFold(coding, "identity") {
		w.Header().Set("Accept-Encoding", "identity")
		w.Header().Set("Connection", "close")
		return nil, http.StatusUnsupportedMediaType, fmt.Errorf("the body must not be compressed: send it as it is, without Content-Encoding (%.40q)", coding)
	}
	if r.ContentLength > wire.MaxMessage {
		return nil, http.StatusRequestEntityTooLarge, errTooLong
	}
	rc := http.NewResponseController(w)
	rc.SetReadDeadline(time.Now().Add(bodyTimeout))
	all := http.MaxBytesReader(w, r.Body, wire.MaxMessage)
	buf := bytes.NewBuffer(make([]byte, 0, min(max(r.ContentLength, 0), sureBody)+bytes.MinRead))
	if _, err = buf.ReadFrom(io.LimitReader(all, largeMessage)); err == nil && buf.Len() == largeMessage {
		err = e.readRest(buf, r, all, actor)
	}
	if too, ok := errors.AsType[*http.MaxBytesError](err); ok {
		err = errTooLong
		if too.Limit < wire.MaxMessage { // that of the request's route
			err = fmt.Errorf("the body is larger than %d KiB", too.Limit>>10)
		}
		return nil, http.StatusRequestEntityTooLarge, err
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil, http.StatusBadRequest, errLateMessage
	}
	if err != nil {
		return nil, http.StatusBadRequest, fmt.Errorf("the message did not arrive: %w", err)
	}
	rc.SetReadDeadline(time.Time{}) // later reads only detect whether the client is there
	return wire.Trim(buf.Bytes()), 0, nil
}

// sureBody is how much memory a request gets for its body before it has sent
// any of it.
const sureBody = 64 << 10

// readRest reads the rest of a large body. It counts for the actor of the request, which
// need not be that of the connection: a proxy sends requests of many over one.
func (e *endpoint) readRest(buf *bytes.Buffer, r *http.Request, rest io.Reader, actor uuid.UUID) error {
	places := []chan struct{}{e.server.shares.Arriving}
	if c := webConnOf(r); actor != uuid.Nil {
		sh, err := e.server.shares.Take(actor, fair.WebBody)
		if err != nil {
			return err
		}
		defer sh.GiveBack(fair.WebBody)
		places = append(places, sh.Arriving)
	} else if c != nil && c.share != nil {
		places = append(places, c.share.Arriving)
	}
	ctx, cancel := context.WithTimeout(r.Context(), bodyTimeout)
	defer cancel()
	for _, place := range slices.Backward(places) { // the actor's own first
		if err := fair.Enter(ctx, place); err != nil {
			return err
		}
		defer func() { <-place }()
	}
	_, err := buf.ReadFrom(rest)
	return err
}

// initialize opens a session.
func (e *endpoint) initialize(w http.ResponseWriter, r *http.Request, actor dispatch.Actor, env wire.Message, body []byte, f rpcForm) {
	hs, err := e.open(r, actor.ID, "")
	if err != nil {
		status := http.StatusServiceUnavailable
		if errors.Is(err, dispatch.ErrUnauthenticated) {
			status = http.StatusUnauthorized
		}
		if _, ok := errors.AsType[*registry.LimitError](err); ok {
			w.Header().Set("Retry-After", "5")
		}
		tryLine(w, status, wire.ErrorReply(env.ID, wire.InternalError, err.Error(), nil), e.server.opts.WriteTimeout)
		return
	}
	hs.presence.begin()
	reply := hs.protocol(hs.ctx, hs.se, &env, body)
	if !hs.client.initialized.Load() {
		hs.end(errors.New("its client sent an initialize that was refused"))
		tryLine(w, http.StatusBadRequest, reply, e.server.opts.WriteTimeout)
		return
	}
	w.Header().Set(sessionHeader, hs.se.Handle())
	if f.write(w, reply, e.server.opts.WriteTimeout) != nil {
		hs.brokeOff(r)
		return
	}
	answered(r, func() {}, func() { hs.presence.lose("", hs.grace(r)) })
	hs.presence.answered()
}

// notified handles a notification, or an answer to nothing that was asked.
func (hs *httpSession) notified(env wire.Message) {
	if env.Method == wire.Cancelled {
		key := wire.Key(env.Params.RequestID)
		switch c, known := hs.requests.cancel(key, errCancelled); {
		case c != nil:
			hs.endpoint.server.undo(hs.se, c)
		case !known:
			hs.requests.cancelEarly(key)
			fallthrough
		default:
			hs.endpoint.server.retell(hs.se)
		}
		hs.presence.forgive(key)
	}
}

// A webForm is the form in which a request over HTTP is answered.
type webForm interface {
	form
	accepts() (json, stream bool)
	write(w http.ResponseWriter, body []byte, timeout time.Duration) error
	noSession(w http.ResponseWriter, env *wire.Message, timeout time.Duration)
	unanswered(w http.ResponseWriter, cause error) // the call was cancelled, or another request has it

	// name returns the name of a call, and whether its client can send it
	// again.
	name(c call.Call, se *dispatch.Session, env *wire.Message) (named call.Call, again bool)
}

// rpcForm is MCP's streamable HTTP.
type rpcForm struct {
	mcpForm
	json, stream bool // what the client accepts
}

func (f rpcForm) accepts() (json, stream bool) { return f.json, f.stream }

func (f rpcForm) write(w http.ResponseWriter, line []byte, timeout time.Duration) error {
	if f.json {
		return writeLine(w, http.StatusOK, line, timeout)
	}
	stream := newEventStream(w, timeout)
	defer stream.close()
	stream.event(line)
	return stream.err
}

func (rpcForm) unanswered(w http.ResponseWriter, _ error) { w.WriteHeader(http.StatusNoContent) }

func (rpcForm) name(c call.Call, _ *dispatch.Session, env *wire.Message) (call.Call, bool) {
	return c, env.Params.Meta.Call != ""
}

func (rpcForm) noSession(w http.ResponseWriter, env *wire.Message, timeout time.Duration) {
	tryLine(w, http.StatusNotFound, wire.ErrorReply(env.ID, wire.InvalidRequest, errNoSession.Error(), nil), timeout)
}

// call runs a request and answers it: as JSON if the answer comes at once,
// otherwise on a stream.
func (hs *httpSession) call(w http.ResponseWriter, r *http.Request, env wire.Message, body []byte, f webForm) {
	s := hs.endpoint.server
	if !hs.presence.begin() {
		f.noSession(w, &env, s.opts.WriteTimeout)
		return
	}
	name, again := f.name(hs.nameOf(hs.se, &env), hs.se, &env)
	waits := hs.waits(&env)
	c, err := hs.requests.begin(hs.ctx, &env, waits, len(body), name)
	if d, ok := errors.AsType[duplicateError](err); ok && hs.requests.awaitBroken(r.Context(), d.earlier) {
		c, err = hs.requests.begin(hs.ctx, &env, waits, len(body), name)
	}
	if err != nil {
		_ = f.write(w, f.refuse(&env, err), s.opts.WriteTimeout)
		hs.presence.answered()
		return
	}
	defer hs.requests.free(c)
	c.open, c.stream = !again, resumable(r, &env, name)
	if again {
		hs.presence.forgive(c.key)
	}

	reply := make(chan []byte, 1) // nil: the answer is not wanted
	var void error                // why the token is valid no more; read after reply
	go func() {                   // ends with the call, for which the caller waits
		if again && c.name.Recorded() {
			defer s.marked.enter(&hs.requests, c)()
		}
		line := hs.serveCall(hs.share, c, nil, hs.se, &env, body, f)
		if c.waits {
			if void = hs.void(r); void != nil {
				hs.requests.giveUp(c, void)
			}
		}
		switch {
		case hs.requests.settle(c):
			reply <- line
			return
		case hs.requests.toUndo(c):
			s.undo(hs.se, c)
			line = nil
		case errors.Is(context.Cause(c.ctx), errShutdown):
			line = f.refuse(&env, errShutdown)
		default:
			line = nil
		}
		if void != nil {
			line = f.refuse(&env, void)
		}
		hs.requests.forget(c)
		reply <- line
	}()
	if hs.answer(w, r, c, reply, f) {
		if void != nil {
			hs.presence.done() // it does not show that the client may come back
		} else {
			hs.presence.answered()
		}
		return
	}
	alive := c.sentSince()
	if !alive {
		hs.lose(r, c.key) // while the call ends, its client may send it again, or cancel it
	}
	switch {
	case webConnOf(r).doorLost():
		hs.requests.cutOff(c, errDoorLost)
		<-reply
		hs.requests.taken(c)
	case hs.undoIf(c, func() bool { return hs.requests.giveUp(c, errClientGone) }):
	default:
		<-reply
		s.retell(hs.se)
	}
	if !alive && c.sentSince() {
		hs.presence.forgive(c.key)
	}
	hs.presence.done()
}

// void returns why the token of a request is valid no more, or nil.
func (hs *httpSession) void(r *http.Request) error {
	_, err := hs.endpoint.authenticate(r)
	if !errors.Is(err, dispatch.ErrUnauthenticated) {
		return nil
	}
	return err
}

// undoIf undoes a call if its answer turns out to be lost.
func (hs *httpSession) undoIf(c *request, lost func() bool) bool {
	s := hs.endpoint.server
	defer s.marked.hold(&hs.requests, c)()
	if !lost() {
		return false
	}
	s.undo(hs.se, c)
	hs.requests.forget(c)
	return true
}

// unread undoes a call whose answer was written to a client that closed its
// connection without reading it.
func (hs *httpSession) unread(c *request) {
	if !hs.undoIf(c, func() bool { return hs.requests.lost(c) }) {
		hs.endpoint.server.retell(hs.se)
	}
	if !hs.requests.sentAgain(c) {
		hs.presence.lose(c.key, hs.endpoint.server.opts.HTTPGrace)
	}
	hs.endpoint.server.opts.Log.Debug().Stringer("session", hs.se.ID()).Str("request", c.key).Msg("an answer was not read")
}

// answer writes the reply when it comes, and reports whether it was written to
// a client that was there. If not, the reply may still be coming.
func (hs *httpSession) answer(w http.ResponseWriter, r *http.Request, c *request, reply chan []byte, f webForm) bool {
	asJSON, asStream := f.accepts()
	if asJSON {
		if written, over := hs.answerAtOnce(w, r, c, reply, f, asStream); over {
			return written
		}
	}
	return hs.answerOnStream(w, r, c, reply)
}

// answerAtOnce writes the reply as JSON. It is not over if the answer takes longer and the
// client also accepts a stream.
func (hs *httpSession) answerAtOnce(w http.ResponseWriter, r *http.Request, c *request, reply chan []byte, f webForm, asStream bool) (written, over bool) {
	var head <-chan time.Time
	if asStream {
		timer := time.NewTimer(streamAfter)
		defer timer.Stop()
		head = timer.C
	}
	timeout, shares := hs.endpoint.server.opts.WriteTimeout, hs.endpoint.server.shares
	select {
	case line := <-reply:
		reply <- nil
		switch {
		case r.Context().Err() != nil:
			return false, true
		case line != nil:
			size := int64(len(line))
			defer shares.Unqueue(size)
			if !shares.Queue(size, 0) || f.write(w, line, timeout) != nil {
				return false, true
			}
			answered(r, func() { hs.requests.taken(c) }, func() { hs.unread(c) })
		case asStream:
			newEventStream(w, timeout).close()
		default:
			f.unanswered(w, context.Cause(c.ctx))
		}
		return true, true
	case <-r.Context().Done():
		return false, true
	case <-head:
		return false, false
	}
}

// answerOnStream begins a stream at once, and ends it with the reply.
func (hs *httpSession) answerOnStream(w http.ResponseWriter, r *http.Request, c *request, reply chan []byte) bool {
	timeout, shares := hs.endpoint.server.opts.WriteTimeout, hs.endpoint.server.shares
	stream := newEventStream(w, timeout)
	defer stream.close()
	stream.reached(beforeAnswer, c.stream)
	alive := time.NewTicker(hs.endpoint.server.opts.HTTPKeepAlive)
	defer alive.Stop()
	for stream.err == nil {
		select {
		case line := <-reply:
			reply <- nil
			if r.Context().Err() != nil {
				return false
			}
			if line == nil {
				stream.reached(afterAnswer, c.stream)
				return true
			}
			size := int64(len(line))
			defer shares.Unqueue(size)
			if !shares.Queue(size, 0) {
				return false
			}
			stream.answer(c.stream, line)
			took := stream.err == nil && tookEvent(r)
			if took {
				hs.requests.taken(c)
			}
			return took
		case <-alive.C:
			stream.comment()
		case <-r.Context().Done():
			return false
		}
	}
	return false
}

// lastEvent is how long the end of a stream is delayed after its last event.
// Some clients close the connection as soon as they have that event. If the end
// were unread then, it would seem that they had not read the event either.
const lastEvent = 10 * time.Millisecond

// tookEvent reports whether the client was there to read the last event.
func tookEvent(r *http.Request) bool {
	timer := time.NewTimer(lastEvent)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-r.Context().Done():
		return !direct(r) || !webConnOf(r).wasReset()
	}
}

// tryLine is writeLine for a refusal: a client that does not get it can ask
// again.
func tryLine(w http.ResponseWriter, status int, line []byte, timeout time.Duration) {
	_ = writeLine(w, status, line, timeout)
}

// writeLine writes an MCP answer that is not a stream.
func writeLine(w http.ResponseWriter, status int, line []byte, timeout time.Duration) error {
	return writeBody(w, status, "application/json", line, timeout)
}

// writeBody writes an answer that is not a stream.
func writeBody(w http.ResponseWriter, status int, media string, body []byte, timeout time.Duration) error {
	rc := http.NewResponseController(w)
	rc.SetWriteDeadline(time.Now().Add(timeout))
	defer rc.SetWriteDeadline(time.Time{})
	if len(body) > 0 {
		w.Header().Set("Content-Type", media)
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	}
	w.WriteHeader(status)
	if _, err := w.Write(body); err != nil && len(body) > 0 {
		return err
	}
	return rc.Flush()
}

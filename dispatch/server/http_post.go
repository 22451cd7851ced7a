package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/dispatch/server/wire"
	"github.com/leasehold/leasehold/registry"
)

const (
	// bodyTimeout bounds how long a client takes to send a message.
	bodyTimeout = 30 * time.Second

	// streamAfter is how long an answer may take before the client is given
	// the head of a stream. Some clients send nothing else until they see a
	// head, and every client then knows that the server is there.
	streamAfter = 50 * time.Millisecond
)

// errClientGone is the cause of a call whose client broke off.
var errClientGone = errors.New("the client closed the request")

// post takes one message. Whoever breaks off a POST gives up its call: there
// is no other way for the answer.
func (e *endpoint) post(w http.ResponseWriter, r *http.Request, actor dispatch.Actor) {
	body, status, err := readBody(w, r)
	if err != nil {
		writeLine(w, status, wire.ErrorReply(nil, wire.InvalidRequest, err.Error(), nil), e.server.opts.WriteTimeout)
		return
	}
	env, fault := parse(body)
	if fault == nil && checkVersion(r) != nil {
		fault = versionReply(env.ID, r.Header.Get(mcp.HeaderProtocolVersion))
	}
	if fault != nil {
		writeLine(w, http.StatusBadRequest, fault, e.server.opts.WriteTimeout)
		return
	}
	if env.Method == wire.Initialize && env.Request() {
		e.initialize(w, r, env, body)
		return
	}
	hs, status, err := e.session(r, actor)
	if err != nil {
		writeLine(w, status, wire.ErrorReply(env.ID, wire.InvalidRequest, err.Error(), nil), e.server.opts.WriteTimeout)
		return
	}
	switch {
	case env.Request():
		hs.call(w, r, env, body)
	case !hs.presence.begin():
		writeLine(w, http.StatusNotFound, wire.ErrorReply(nil, wire.InvalidRequest, errNoSession.Error(), nil), e.server.opts.WriteTimeout)
	default:
		hs.notified(env, body)
		w.WriteHeader(http.StatusAccepted)
		hs.presence.answered()
	}
}

func readBody(w http.ResponseWriter, r *http.Request) (body []byte, status int, err error) {
	media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || media != "application/json" {
		return nil, http.StatusUnsupportedMediaType, errors.New("Content-Type must be application/json")
	}
	if asJSON, asStream := accepts(r); !asJSON && !asStream {
		return nil, http.StatusNotAcceptable, errNotAcceptable
	}
	if r.ContentLength > wire.MaxMessage {
		return nil, http.StatusRequestEntityTooLarge, errTooLong
	}
	rc := http.NewResponseController(w)
	rc.SetReadDeadline(time.Now().Add(bodyTimeout))
	defer rc.SetReadDeadline(time.Time{}) // what is read on is whether the client is there
	body, err = io.ReadAll(http.MaxBytesReader(w, r.Body, wire.MaxMessage))
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, http.StatusRequestEntityTooLarge, errTooLong
	}
	if err != nil {
		return nil, http.StatusBadRequest, fmt.Errorf("the message did not arrive: %w", err)
	}
	return body, 0, nil
}

// initialize opens a session.
func (e *endpoint) initialize(w http.ResponseWriter, r *http.Request, env wire.Message, body []byte) {
	hs, err := e.open(r, dispatch.Credentials{Token: bearer(r)})
	if err != nil {
		status := http.StatusServiceUnavailable
		if errors.Is(err, dispatch.ErrUnauthenticated) {
			status = http.StatusUnauthorized
		}
		if _, ok := errors.AsType[*registry.LimitError](err); ok {
			w.Header().Set("Retry-After", "5")
		}
		writeLine(w, status, wire.ErrorReply(env.ID, wire.InternalError, err.Error(), nil), e.server.opts.WriteTimeout)
		return
	}
	hs.presence.begin()
	reply := hs.mcp.HandleMessage(hs.ctx, body)
	if _, failed := reply.(mcp.JSONRPCError); failed {
		hs.end(errors.New("its client sent an initialize that was refused"))
		writeLine(w, http.StatusBadRequest, encodeReply(env.ID, reply), e.server.opts.WriteTimeout)
		return
	}
	w.Header().Set(sessionHeader, hs.se.Handle())
	writeLine(w, http.StatusOK, encodeReply(env.ID, reply), e.server.opts.WriteTimeout)
	if r.Context().Err() != nil {
		hs.presence.lost("")
		return
	}
	hs.presence.answered()
}

// notified takes a notification, or an answer, which nothing asked for.
func (hs *httpSession) notified(env wire.Message, body []byte) {
	switch {
	case env.Method == wire.Cancelled:
		key := wire.Key(env.Params.RequestID)
		hs.calls.cancel(key, errCancelled)
		hs.presence.cancelled(key)
	case env.Notification():
		hs.mcp.HandleMessage(hs.ctx, body)
	}
}

// call runs a request and answers it: as JSON if the answer comes at once,
// else on a stream.
func (hs *httpSession) call(w http.ResponseWriter, r *http.Request, env wire.Message, body []byte) {
	if !hs.presence.begin() {
		writeLine(w, http.StatusNotFound, wire.ErrorReply(env.ID, wire.InvalidRequest, errNoSession.Error(), nil), hs.endpoint.server.opts.WriteTimeout)
		return
	}
	c, err := hs.calls.begin(hs.ctx, &env, len(body))
	if err != nil {
		writeLine(w, http.StatusOK, refuseCall(&env, err), hs.endpoint.server.opts.WriteTimeout)
		hs.presence.answered()
		return
	}
	defer hs.calls.free(c)

	reply := make(chan []byte, 1) // nil: it is not wanted
	go func() {                   // ends with the call, which is waited for
		line := hs.service.answer(c.ctx, hs.se, &env, body)
		wanted := hs.calls.settle(c)
		switch {
		case context.Cause(c.ctx) == errShutdown:
			reply <- refuseCall(&env, errShutdown)
		case !wanted:
			reply <- nil
		default:
			reply <- line
		}
	}()
	if hs.answer(w, r, reply) {
		hs.presence.answered()
		return
	}
	hs.calls.cancel(c.key, errClientGone)
	<-reply
	if context.Cause(c.ctx) == errCancelled {
		hs.presence.answered() // its client said so first
		return
	}
	hs.presence.lost(c.key)
}

// answer writes the reply once it is there, and reports whether the client
// was there for it. If not, the reply may still be to come.
func (hs *httpSession) answer(w http.ResponseWriter, r *http.Request, reply chan []byte) bool {
	asJSON, asStream := accepts(r)
	var head <-chan time.Time
	if asStream {
		wait := streamAfter
		if !asJSON {
			wait = 0
		}
		timer := time.NewTimer(wait)
		defer timer.Stop()
		head = timer.C
	}
	timeout := hs.endpoint.server.opts.WriteTimeout
	select {
	case line := <-reply:
		defer func() { reply <- nil }()
		switch {
		case line != nil:
			writeLine(w, http.StatusOK, line, timeout)
		case asStream:
			newEventStream(w, timeout).close()
		default:
			w.WriteHeader(http.StatusNoContent)
		}
		return r.Context().Err() == nil
	case <-r.Context().Done():
		return false
	case <-head:
	}

	stream := newEventStream(w, timeout)
	defer stream.close()
	alive := time.NewTicker(hs.endpoint.server.opts.HTTPKeepAlive)
	defer alive.Stop()
	for stream.err == nil {
		select {
		case line := <-reply:
			reply <- nil
			if line != nil {
				stream.event(line)
			}
			return stream.err == nil && r.Context().Err() == nil
		case <-alive.C:
			stream.comment()
		case <-r.Context().Done():
			return false
		}
	}
	return false
}

// writeLine writes an answer that is not a stream.
func writeLine(w http.ResponseWriter, status int, line []byte, timeout time.Duration) {
	rc := http.NewResponseController(w)
	rc.SetWriteDeadline(time.Now().Add(timeout))
	defer rc.SetWriteDeadline(time.Time{})
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(line)))
	w.WriteHeader(status)
	w.Write(line)
	rc.Flush()
}

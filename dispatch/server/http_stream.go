package server

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/dispatch/server/wire"
	"github.com/leasehold/leasehold/registry"
)

// stream serves a GET: it carries the notices to the client for as long as the
// client keeps it open, unless the client resumes the stream of a call. A session
// may have several streams; each notice is sent on one of them, or waits until there is
// one.
func (e *endpoint) stream(w http.ResponseWriter, r *http.Request, actor dispatch.Actor) {
	if _, asStream := accepts(r); !asStream {
		http.Error(w, "Accept must allow text/event-stream", http.StatusNotAcceptable)
		return
	}
	hs, status, err := e.session(r, r.Header.Get(sessionHeader), actor)
	if err != nil {
		http.Error(w, err.Error(), status)
		return
	}
	if hs.resume(w, r) {
		return
	}
	refused := e.streamTo(w, r, hs, func(stream *eventStream, notice mcp.JSONRPCNotification) { stream.event(wire.Line(notice)) })
	switch {
	case errors.Is(refused, errNoSession):
		http.Error(w, refused.Error(), http.StatusNotFound)
	case refused != nil:
		w.Header().Set("Retry-After", "5")
		http.Error(w, refused.Error(), http.StatusTooManyRequests)
	}
}

// streamTo sends the notices to the session's client, until the client, the
// session or the daemon ends. If it returns an error, it has sent nothing.
func (e *endpoint) streamTo(w http.ResponseWriter, r *http.Request, hs *httpSession, send func(*eventStream, mcp.JSONRPCNotification)) error {
	if !hs.addStream() {
		return &registry.LimitError{Which: "streams of one session", Max: maxStreams}
	}
	defer hs.dropStream()
	if !hs.presence.begin() {
		return errNoSession
	}
	// On this side only the end of the daemon or of the session closes a
	// stream, and then it no longer matters whether the client is there.
	defer hs.brokeOff(r)

	stream := newEventStream(w, e.server.opts.WriteTimeout)
	defer stream.close()
	stream.comment()
	alive := time.NewTicker(e.server.opts.HTTPKeepAlive)
	defer alive.Stop()
	for stream.err == nil {
		select {
		case notice := <-hs.client.notices:
			send(stream, notice)
		case update := <-hs.client.updates:
			send(stream, update)
		case <-alive.C:
			if hs.void(r) != nil {
				return nil
			}
			stream.comment()
		case <-r.Context().Done():
			return nil
		case <-hs.ctx.Done():
			return nil
		case <-hs.home.ctx.Done():
			return nil
		case <-e.ctx.Done():
			return nil
		}
	}
	return nil
}

func (hs *httpSession) addStream() bool {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	if hs.streams == maxStreams {
		return false
	}
	hs.streams++
	return true
}

func (hs *httpSession) dropStream() {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	hs.streams--
}

// An eventStream is a response of server-sent events. A client that accepts
// nothing within the timeout is cut off.
type eventStream struct {
	w       http.ResponseWriter
	rc      *http.ResponseController
	timeout time.Duration
	err     error
}

// newEventStream sends the head of a stream.
func newEventStream(w http.ResponseWriter, timeout time.Duration) *eventStream {
	s := &eventStream{w: w, rc: http.NewResponseController(w), timeout: timeout}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Accel-Buffering", "no") // otherwise some proxies delay events
	w.WriteHeader(http.StatusOK)
	s.write(nil)
	return s
}

// event sends one message.
func (s *eventStream) event(line []byte) { s.named("message", line) }

func (s *eventStream) named(kind string, line []byte) {
	s.write(fmt.Appendf(nil, "event: %s\ndata: %s\n\n", kind, bytes.TrimSpace(line)))
}

// silence is something that clients ignore. It shows proxies that a silent
// stream is alive, and detects one that is dead.
const silence = ":\n\n"

func (s *eventStream) comment() { s.write([]byte(silence)) }

func (s *eventStream) write(p []byte) {
	if s.err != nil {
		return
	}
	s.rc.SetWriteDeadline(time.Now().Add(s.timeout))
	if _, s.err = s.w.Write(p); s.err == nil {
		s.err = s.rc.Flush()
	}
}

// close lets the end of the stream be written, however long it has been silent.
func (s *eventStream) close() {
	if s.err == nil {
		s.rc.SetWriteDeadline(time.Time{})
	}
}

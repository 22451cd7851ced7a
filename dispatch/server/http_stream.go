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

// stream is a GET: it carries what the client is told unasked, for as long as
// the client keeps it open. A session may have several; each notice goes out on
// one of them, and waits for one while there is none.
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
	refused := e.streamTo(w, r, hs, func(stream *eventStream, notice mcp.JSONRPCNotification) { stream.event(wire.Line(notice)) })
	switch {
	case errors.Is(refused, errNoSession):
		http.Error(w, refused.Error(), http.StatusNotFound)
	case refused != nil:
		w.Header().Set("Retry-After", "5")
		http.Error(w, refused.Error(), http.StatusTooManyRequests)
	}
}

// streamTo sends what the session's client is told unasked, until the client, the
// session or the daemon ends. A refusal has sent nothing.
func (e *endpoint) streamTo(w http.ResponseWriter, r *http.Request, hs *httpSession, send func(*eventStream, mcp.JSONRPCNotification)) error {
	if !hs.addStream() {
		return &registry.LimitError{Which: "streams of one session", Max: maxStreams}
	}
	defer hs.dropStream()
	if !hs.presence.beginStream() {
		return errNoSession
	}
	// Only the daemon's end and the session's close a stream from this side,
	// and then nobody asks any more whether the client is there.
	defer hs.presence.lost("")

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

// An eventStream is a response of server-sent events. A client that takes
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
	w.Header().Set("X-Accel-Buffering", "no") // else some proxies keep events back
	w.WriteHeader(http.StatusOK)
	s.write(nil)
	return s
}

// event sends one message.
func (s *eventStream) event(line []byte) { s.named("message", line) }

func (s *eventStream) named(kind string, line []byte) {
	s.write(fmt.Appendf(nil, "event: %s\ndata: %s\n\n", kind, bytes.TrimSpace(line)))
}

// identified sends an event that a client can name when it comes again.
func (s *eventStream) identified(id, kind string, line []byte) {
	s.write(fmt.Appendf(nil, "id: %s\nevent: %s\ndata: %s\n\n", id, kind, line))
}

// comment sends what clients skip. It keeps what lies between from taking a
// silent stream for a dead one, and finds out which is the case.
func (s *eventStream) comment() { s.write([]byte(":\n\n")) }

func (s *eventStream) write(p []byte) {
	if s.err != nil {
		return
	}
	s.rc.SetWriteDeadline(time.Now().Add(s.timeout))
	if _, s.err = s.w.Write(p); s.err == nil {
		s.err = s.rc.Flush()
	}
}

// close lets the connection be used for another request.
func (s *eventStream) close() {
	if s.err == nil {
		s.rc.SetWriteDeadline(time.Time{})
	}
}

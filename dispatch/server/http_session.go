package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/dispatch/server/fair"
	"github.com/leasehold/leasehold/registry"
)

const sessionHeader = "Mcp-Session-Id"

// maxStreams is how many streams of a session may be open at once.
const maxStreams = 8

// errNoSession refuses a session id that is unknown, ended, or another actor's.
// It does not reveal which.
var errNoSession = errors.New("no such session: it has ended or is not yours; send initialize to open one")

// errDeleted is why a session ends that one of its clients has deleted. Calls of others
// are answered with it.
var errDeleted = errors.New("the session has ended: its client deleted it")

// An httpSession is one client of the endpoint.
type httpSession struct {
	endpoint *endpoint
	*service
	home     *home
	se       *dispatch.Session
	share    *fair.Share // of its actor
	client   *client
	presence presence
	requests requests

	ctx context.Context // of its calls and streams; ends with it
	cut context.CancelCauseFunc

	over atomic.Bool // it ends: no further call finds it

	watch   sync.WaitGroup // WatchNotices and the watch over se
	release func()         // stops them; the end of the session does so, too

	mu      sync.Mutex
	streams int
}

// open opens a session for the actor of the request's token, or resumes the one
// with a handle.
func (e *endpoint) open(r *http.Request, actor uuid.UUID, handle string) (*httpSession, error) {
	c := dispatch.Credentials{Token: bearer(r)}
	var sh *fair.Share
	var err error
	if handle != "" {
		c = dispatch.Credentials{Handle: handle, Actor: actor}
		sh = e.server.shares.TakeBack(actor, fair.WebSession)
	} else if err = e.room(); err == nil {
		sh, err = e.server.shares.Take(actor, fair.WebSession)
	}
	if err != nil {
		return nil, err
	}
	taken := false
	defer func() {
		if !taken {
			sh.GiveBack(fair.WebSession)
		}
	}()
	e.server.shares.Openings.Wait(r.Context(), actor)
	if err := context.Cause(r.Context()); err != nil {
		return nil, err
	}
	// A client that leaves meanwhile must not leave a session behind that
	// nobody closes.
	se, err := homeOf(r).state.Connect(context.WithoutCancel(r.Context()), c, webConnOf(r).peer())
	if err != nil {
		return nil, err
	}
	hs := &httpSession{endpoint: e, service: homeOf(r).serviceFor(se), home: homeOf(r), se: se, share: sh, client: newClient()}
	hs.requests.share = sh
	hs.client.idle, hs.client.subscriptions.lasting = e.server.opts.HTTPIdle, true
	if se.Resumed() {
		if err := hs.client.subscriptions.restore(context.WithoutCancel(r.Context()), se); err != nil {
			return nil, err // the engine has failed, or another server leads now
		}
	}
	hs.presence.idle = e.server.opts.HTTPIdle
	hs.presence.over = func(cause error) { e.ending(func() { hs.end(cause) }) }

	ctx, cut := context.WithCancelCause(context.Background())
	hs.ctx, hs.cut = withClient(ctx, hs.client), cut

	// This holds the lock, so that others find the session only when it is
	// complete.
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closing || hs.home.ctx.Err() != nil {
		return nil, errShutdown
	}
	watchCtx, stopWatch := context.WithCancel(hs.ctx)
	stopEnd := context.AfterFunc(se.Context(), func() {
		e.ending(func() { hs.end(context.Cause(se.Context())) })
	})
	hs.release = func() { stopEnd(); stopWatch() }
	tellNotices := se.WatchNotices()
	hs.watch.Go(func() { tellNotices(watchCtx, hs.client.tellNotice) })
	hs.watch.Go(func() { hs.client.tellUpdates(watchCtx, se) })
	e.sessions[se.Handle()] = hs
	taken = true
	e.server.opts.Log.Info().Stringer("session", se.ID()).Str("actor", se.Actor().Path).Str("run", se.Actor().Run).
		Bool("resumed", se.Resumed()).Msg("connected over HTTP")
	return hs, nil
}

func (e *endpoint) room() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if limit := e.server.opts.HTTPSessions; len(e.sessions) >= limit {
		return &registry.LimitError{Which: "HTTP sessions", Max: int64(limit)}
	}
	return nil
}

// session returns the session of a request. If it returns an error, status is
// that of the answer.
func (e *endpoint) session(r *http.Request, handle string, actor dispatch.Actor) (hs *httpSession, status int, err error) {
	if handle == "" {
		return nil, http.StatusBadRequest, fmt.Errorf("header %s is missing: send initialize first", sessionHeader)
	}
	hs, err = e.find(r, handle, actor)
	switch {
	case errors.Is(err, dispatch.ErrUnauthenticated), err == nil && hs.se.Actor().ID != actor.ID:
		return nil, http.StatusNotFound, errNoSession
	case err != nil:
		return nil, http.StatusServiceUnavailable, err
	}
	return hs, 0, nil
}

// find returns the session with a handle. It resumes one from before the daemon's
// restart, once for all requests that arrive before it is there.
func (e *endpoint) find(r *http.Request, handle string, actor dispatch.Actor) (*httpSession, error) {
	found, err, _ := e.resumes.Do(handle+" "+actor.ID.String(), func() (any, error) {
		e.mu.Lock()
		hs, ended := e.sessions[handle], e.ends[handle]
		e.mu.Unlock()
		if hs != nil {
			return hs, nil
		}
		if ended != nil {
			<-ended // until then it could be resumed
		}
		hs, err := e.open(r, actor.ID, handle)
		if err != nil {
			return nil, err
		}
		// The session was initialized, because otherwise its client would have no
		// id.
		hs.client.initialized.Store(true)
		hs.touch() // the request may be refused
		return hs, nil
	})
	if err != nil {
		return nil, err
	}
	return found.(*httpSession), nil
}

// during returns a context that also ends with the session or the daemon.
func (hs *httpSession) during(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	stops := []func() bool{context.AfterFunc(hs.ctx, cancel), context.AfterFunc(hs.home.ctx, cancel), context.AfterFunc(hs.endpoint.ctx, cancel)}
	return ctx, func() {
		for _, stop := range stops {
			stop()
		}
		cancel()
	}
}

// brokeOff notes that a request ended without its answer.
func (hs *httpSession) brokeOff(r *http.Request) {
	hs.lose(r, "")
	hs.presence.done()
}

// lose notes that a request was broken off. call is the key of its call, or "".
func (hs *httpSession) lose(r *http.Request, call string) {
	hs.presence.lose(call, hs.grace(r))
	hs.endpoint.server.opts.Log.Debug().Stringer("session", hs.se.ID()).Str("method", r.Method).Str("request", call).
		Bool("server_lost", webConnOf(r).doorLost()).Msg("a request broke off")
}

// grace is how long a client may take to come back after a request broke off.
func (hs *httpSession) grace(r *http.Request) time.Duration {
	o := &hs.endpoint.server.opts
	if webConnOf(r).doorLost() {
		return max(o.HTTPGrace, o.DoorGrace)
	}
	return o.HTTPGrace
}

// touch starts the idle time of a session that has no request yet.
func (hs *httpSession) touch() {
	if hs.presence.begin() {
		hs.presence.answered()
	}
}

// ending runs the end of a session that no request asked for. It does nothing
// while the daemon stops, which ends no session.
func (e *endpoint) ending(end func()) {
	if e.begin() {
		defer e.endings.Done()
		end()
	}
}

// end ends the session and releases what it holds. Its calls are cancelled
// first, so that none of them is granted what the session releases.
func (hs *httpSession) end(cause error) {
	e := hs.endpoint
	ended := make(chan struct{})
	e.mu.Lock()
	first := e.sessions[hs.se.Handle()] == hs
	if first {
		delete(e.sessions, hs.se.Handle())
		e.ends[hs.se.Handle()] = ended
	}
	e.mu.Unlock()
	if !first {
		return
	}
	hs.over.Store(true)
	defer func() {
		e.mu.Lock()
		delete(e.ends, hs.se.Handle())
		e.mu.Unlock()
		close(ended)
	}()
	defer hs.share.GiveBack(fair.WebSession)
	hs.stop(cause)
	log := e.server.opts.Log
	if err := hs.se.Close(cause); err != nil {
		log.Error().Err(err).Stringer("session", hs.se.ID()).Msg("a session could not be closed")
	} else {
		log.Info().Stringer("session", hs.se.ID()).Str("actor", hs.se.Actor().Path).AnErr("cause", cause).Msg("disconnected")
	}
	hs.watch.Wait()
}

// detach stops serving a session without ending it, because the daemon stops.
func (hs *httpSession) detach() {
	hs.requests.drain(errShutdown)
	hs.presence.stop()
	hs.release()
	hs.watch.Wait()
	hs.share.GiveBack(fair.WebSession)
}

func (hs *httpSession) stop(cause error) {
	hs.presence.stop()
	hs.requests.cancelAll(cause, false)
	hs.cut(cause) // with its watch
}

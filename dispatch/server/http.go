package server

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/dispatch/server/api"
)

// An endpoint serves MCP's streamable HTTP at /mcp, in the versions that have
// sessions.
//
// It is a thin handler of its own over a service. mcp-go's
// StreamableHTTPServer behind a guard was the choice not taken: it never
// learns that a client died, its idle sweep ends sessions in the midst of a
// call, DELETE leaves calls running, any POST may take a notification meant for
// another stream, and a session is known to it only from a GET on. A guard
// would keep the same table of sessions and calls a second time, and still not
// reach what is inside.
//
// The session id is the handle of the [dispatch.Session]: a secret, kept only
// as a hash, that the daemon knows again after a restart. So a client goes on
// with its session and its leases, and never sees a 404 for the daemon's sake.
//
// Streams carry no event ids and cannot be resumed: what is told on them is
// told again in the next answer.
type endpoint struct {
	server *Server
	ctx    context.Context // ends with the daemon

	mu       sync.Mutex
	sessions map[string]*httpSession // by handle
	shared   map[uuid.UUID]string    // by actor: the handle of that for calls of the API that name none
	closing  bool
	endings  sync.WaitGroup // sessions that end by themselves, remotes, and what is passed on
}

// ServeEndpoint serves streamable HTTP on ln until ctx ends, and closes it.
// Sessions outlast it.
func (s *Server) ServeEndpoint(ctx context.Context, ln net.Listener) error {
	e := &endpoint{server: s, ctx: ctx, sessions: make(map[string]*httpSession), shared: make(map[uuid.UUID]string)}
	s.homes.mu.Lock()
	s.homes.endpoints = append(s.homes.endpoints, e)
	s.homes.mu.Unlock()
	mux := http.NewServeMux()
	mux.Handle("/mcp", e.orPass(e))
	mux.Handle(api.Prefix+"/", e.orPass(e.api()))
	mux.Handle(RemotePath, e.orPass(http.HandlerFunc(e.connect)))
	e.servePage(mux)
	mux.HandleFunc("GET /healthz", e.healthy)
	mux.HandleFunc("GET /readyz", e.ready)
	mux.HandleFunc("GET /metrics", e.metrics)
	web := &http.Server{
		Handler:           mux,
		ReadHeaderTimeout: 5 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ConnContext:       withWebConn,
		ErrorLog:          log.New(s.opts.Log, "", 0),
		// No WriteTimeout: streams last. Each write has a deadline instead.
	}
	conns := newWebListener(ln, &s.shares)
	defer conns.finish()
	stopped := make(chan error, 1)
	stop := context.AfterFunc(ctx, func() { stopped <- e.shutdown(web) })
	err := web.Serve(conns)
	if stop() {
		e.detachAll() // nobody can come any more
		err = errors.Join(err, web.Close())
		e.endings.Wait()
		return err
	}
	return <-stopped
}

// shutdown lets short calls finish, and cuts the rest. No session ends.
func (e *endpoint) shutdown(web *http.Server) error {
	e.detachAll()
	ctx, cancel := context.WithTimeout(context.Background(), e.server.opts.DrainTimeout)
	defer cancel()
	err := web.Shutdown(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		err = web.Close()
	}
	e.endings.Wait()
	return err
}

// detach lets go of the sessions of a home that this process has no more.
func (e *endpoint) detach(h *home) {
	var sessions []*httpSession
	e.mu.Lock()
	for handle, hs := range e.sessions {
		if hs.home == h {
			sessions = append(sessions, hs)
			delete(e.sessions, handle)
		}
	}
	e.mu.Unlock()
	for _, hs := range sessions {
		hs.detach()
	}
}

// partitionOf is where a request belongs, by the token that it bears. One without is
// of the page, which is for those who are in no tree, or of nobody.
func (e *endpoint) partitionOf(r *http.Request) int { return e.server.partitionOfSecret(bearer(r)) }

type homeKey struct{}

// homeOf is the home whose guest a request is.
func homeOf(r *http.Request) *home { return r.Context().Value(homeKey{}).(*home) }

func (e *endpoint) detachAll() {
	e.mu.Lock()
	e.closing = true
	sessions := e.sessions
	e.sessions = nil
	e.mu.Unlock()
	for _, hs := range sessions {
		hs.detach()
	}
}

// ServeHTTP checks who asks, from where, before anything is read.
func (e *endpoint) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	r, actor, leave, refused := e.admit(r)
	defer leave()
	if refused != nil {
		refused.tell(w)
		return
	}
	if err := checkVersion(r); err != nil && r.Method != http.MethodPost {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	switch r.Method {
	case http.MethodPost:
		e.post(w, r, actor)
	case http.MethodGet:
		e.stream(w, r, actor)
	case http.MethodDelete:
		e.delete(w, r, actor)
	default:
		w.Header().Set("Allow", "GET, POST, DELETE")
		http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
	}
}

// A refusedRequest is one that nobody serves: of a page that is not ours, without a
// token, of an actor with too many connections, or for a state that is elsewhere.
type refusedRequest struct {
	status int
	err    error
}

// admit says whose request it is. The request that it gives knows its home, whose guest
// it is until it leaves.
func (e *endpoint) admit(r *http.Request) (admitted *http.Request, actor dispatch.Actor, leave func(), refused *refusedRequest) {
	leave = func() {}
	if err := e.checkOrigin(r); err != nil {
		return r, actor, leave, &refusedRequest{http.StatusForbidden, err}
	}
	home, _, err := e.server.enter(r.Context(), e.partitionOf(r), true) // else it was passed on
	if err != nil {
		return r, actor, leave, &refusedRequest{http.StatusServiceUnavailable, err}
	}
	leave = home.guests.Done
	r = r.WithContext(context.WithValue(r.Context(), homeKey{}, home))
	actor, err = e.authenticate(r)
	switch {
	case errors.Is(err, dispatch.ErrUnauthenticated):
		return r, actor, leave, &refusedRequest{http.StatusUnauthorized, err}
	case err != nil:
		return r, actor, leave, &refusedRequest{http.StatusServiceUnavailable, err}
	}
	if err := webConnOf(r).vet(r.Context(), &e.server.homes, home, actor); err != nil {
		return r, actor, leave, &refusedRequest{http.StatusForbidden, err}
	}
	if err := webConnOf(r).known(actor.ID); err != nil {
		return r, actor, leave, &refusedRequest{http.StatusTooManyRequests, err}
	}
	return r, actor, leave, nil
}

// tell answers it over MCP.
func (f *refusedRequest) tell(w http.ResponseWriter) {
	switch f.status {
	case http.StatusUnauthorized:
		w.Header().Set("WWW-Authenticate", `Bearer realm="leasehold"`)
	case http.StatusTooManyRequests:
		w.Header().Set("Connection", "close")
		w.Header().Set("Retry-After", "5")
	case http.StatusServiceUnavailable:
		w.Header().Set("Retry-After", "1")
	}
	http.Error(w, f.err.Error(), f.status)
}

// answer answers it over the API.
func (f *refusedRequest) answer() api.Answer {
	if f.status == http.StatusForbidden {
		return api.Problem(f.status, "FORBIDDEN", f.err.Error())
	}
	a := api.Refuse(f.err)
	if f.status == http.StatusTooManyRequests {
		a.Header["Connection"] = "close"
	}
	return a
}

// delete ends a session at once.
func (e *endpoint) delete(w http.ResponseWriter, r *http.Request, actor dispatch.Actor) {
	hs, status, err := e.session(r, r.Header.Get(sessionHeader), actor)
	if err != nil {
		http.Error(w, err.Error(), status)
		return
	}
	hs.end(errors.New("its client deleted it"))
	w.WriteHeader(http.StatusNoContent)
}

// keepAlive notices within half a minute that the machine of a client is gone.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 3}

// ListenHTTP listens at a TCP address, of the loopback unless public.
func ListenHTTP(addr string, public bool) (net.Listener, error) {
	config := net.ListenConfig{KeepAliveConfig: keepAlive}
	ln, err := config.Listen(context.Background(), "tcp", addr)
	if err != nil {
		return nil, err
	}
	if ip := ln.Addr().(*net.TCPAddr).IP; !public && !ip.IsLoopback() {
		ln.Close()
		return nil, fmt.Errorf("http address %q is reachable from other machines, where tokens and leases would travel in the clear: "+
			"use 127.0.0.1, or TLS", addr)
	}
	return ln, nil
}

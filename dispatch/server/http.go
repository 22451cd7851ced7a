package server

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"net/url"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/singleflight"

	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/dispatch/server/api"
	"github.com/leasehold/leasehold/registry"
)

// An endpoint serves MCP's streamable HTTP at /mcp, in the versions that have
// sessions.
//
// It is a small handler of our own over a service. The alternative was mcp-go's
// StreamableHTTPServer behind a guard. We did not choose it: it never learns
// that a client died, its idle sweep ends sessions during a call, DELETE leaves
// calls running, any POST may take a notification meant for another stream, and
// it knows a session only after a GET. A guard would need a second table of
// sessions and calls, and could still not change these.
//
// The session id is the handle of the [dispatch.Session]. It is a secret, of
// which only a hash is stored, and the daemon recognizes it after a restart. So
// a client keeps its session and leases, and never gets a 404 because of a
// restart.
//
// A daemon has one endpoint and several listeners: its address, its socket, and
// the connections that other servers pass on. The requests of one client may
// come through all of them, for example a call and its cancellation.
//
// Streams of notices carry no event ids and cannot be resumed: what was sent on them
// is repeated in the next answer. A call whose stream broke is answered at once when its
// client resumes the stream: see [httpSession.resume].
type endpoint struct {
	server *Server
	ctx    context.Context // ends with the daemon
	end    context.CancelFunc
	routes http.Handler

	mu       sync.Mutex
	sessions map[string]*httpSession  // by handle
	resumes  singleflight.Group       // by handle and actor
	ends     map[string]chan struct{} // by handle, of sessions that are ending: closed when the state knows
	shared   map[uuid.UUID]string     // by actor: the handle of the session for API calls that name none
	closing  bool
	endings  sync.WaitGroup // sessions that end by themselves, remotes, and requests that are passed on
}

func newEndpoint(s *Server) *endpoint {
	e := &endpoint{server: s, sessions: make(map[string]*httpSession), ends: make(map[string]chan struct{}), shared: make(map[uuid.UUID]string)}
	e.ctx, e.end = context.WithCancel(context.Background())
	mux := http.NewServeMux()
	mux.Handle("/mcp", e.orPass(e))
	mux.Handle(api.Prefix+"/", e.orPass(e.api()))
	mux.Handle(RemotePath, e.orPass(http.HandlerFunc(e.connect)))
	e.servePage(mux)
	mux.HandleFunc("GET /healthz", e.healthy)
	mux.HandleFunc("GET /readyz", e.ready)
	mux.HandleFunc("GET /metrics", e.metrics)
	e.routes = e.paced(e.unambiguous(mux))
	return e
}

// onlyOnce are the headers that say who asks, and which call it is. If there are several,
// a proxy may read another one than this server.
var onlyOnce = []string{"Authorization", sessionHeader, apiSession, idempotencyKey, pageKey}

// unambiguous refuses requests that repeat a header of onlyOnce, and calls of the API whose
// path is not canonical. A ServeMux would redirect their client to the path of another call.
func (e *endpoint) unambiguous(routes http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for _, name := range onlyOnce {
			if n := len(r.Header.Values(name)); n > 1 {
				e.tell(w, api.Refuse(&registry.ArgumentError{Argument: name, Problem: fmt.Sprintf("must be one header, and not %d", n)}))
				return
			}
		}
		asked := r.URL.EscapedPath()
		canonical := path.Clean(asked)
		if canonical != strings.TrimSuffix(asked, "/") && strings.HasPrefix(canonical, api.Prefix+"/") {
			if entry, ok := strings.CutPrefix(canonical, api.Prefix+"/store/"); ok {
				if name, err := url.PathUnescape(entry); err == nil {
					canonical = "/" + name // the path of the entry, as the tools take it
				}
			}
			e.tell(w, api.Refuse(&registry.ArgumentError{Argument: "path", Problem: "must be canonical: " + canonical}))
			return
		}
		routes.ServeHTTP(w, r)
	})
}

// ServeEndpoint serves streamable HTTP on ln until ctx ends, and closes ln. The
// end of ctx is the end of the daemon: no listener serves any session after it.
// Sessions continue to exist.
func (s *Server) ServeEndpoint(ctx context.Context, ln net.Listener) error {
	e := s.endpoint
	web := &http.Server{
		Handler:           e.routes,
		ReadHeaderTimeout: 5 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ConnContext:       withWebConn,
		ErrorLog:          log.New(s.opts.Log, "", 0),
		// There is no WriteTimeout, because streams stay open. Each write has a
		// deadline instead.
	}
	conns := newWebListener(ln, s)
	defer conns.finish()
	stopped := make(chan error, 1)
	stop := context.AfterFunc(ctx, func() { stopped <- e.shutdown(web) })
	err := web.Serve(conns)
	if stop() {
		e.detachAll() // nobody can connect any more
		err = errors.Join(err, web.Close())
		e.endings.Wait()
		return err
	}
	return <-stopped
}

// shutdown lets short calls finish, and cuts off the rest. It ends no session.
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

// detach detaches the sessions of a home that this process no longer has.
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

// partitionOf returns the partition for a request, from its token. A request
// without a token comes from the page, which is for operators and readers, or
// from nobody known.
func (e *endpoint) partitionOf(r *http.Request) int { return e.server.partitionOfSecret(bearer(r)) }

type homeKey struct{}

// homeOf returns the home to which a request was admitted.
func homeOf(r *http.Request) *home { return r.Context().Value(homeKey{}).(*home) }

func (e *endpoint) detachAll() {
	e.end()
	e.mu.Lock()
	e.closing = true
	sessions := e.sessions
	e.sessions = nil
	e.mu.Unlock()
	for _, hs := range sessions {
		hs.detach()
	}
}

// ServeHTTP checks who sends the request, and from where, before it reads
// anything.
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

// A refusedRequest is a request that is not served: it comes from another web
// page, has no valid token, is from an actor with too many connections, or is
// for a state that is elsewhere.
type refusedRequest struct {
	status int
	err    error
}

// admit finds the actor of a request. The returned request has its home in its
// context, and is the home's guest until leave is called.
func (e *endpoint) admit(r *http.Request) (admitted *http.Request, actor dispatch.Actor, leave func(), refused *refusedRequest) {
	leave = func() {}
	if err := e.checkOrigin(r); err != nil {
		return r, actor, leave, &refusedRequest{http.StatusForbidden, err}
	}
	home, _, err := e.server.enter(r.Context(), e.partitionOf(r), true) // otherwise the request was passed on
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

// tell answers an MCP request with the refusal.
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

// answer returns the refusal as an answer of the API.
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
	hs.end(errDeleted)
	w.WriteHeader(http.StatusNoContent)
}

// peerSilence is how long a client's machine may not answer.
const peerSilence = Silence(30 * time.Second)

// ListenHTTP listens at a TCP address, which must be a loopback address unless
// public is true.
func ListenHTTP(addr string, public bool) (net.Listener, error) {
	config := net.ListenConfig{KeepAliveConfig: peerSilence.KeepAlive(), Control: peerSilence.Control}
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

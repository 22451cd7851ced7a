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

	"github.com/leasehold/leasehold/dispatch"
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
	closing  bool
	endings  sync.WaitGroup // sessions that end by themselves
}

// ServeEndpoint serves streamable HTTP on ln until ctx ends, and closes it.
// Sessions outlast it.
func (s *Server) ServeEndpoint(ctx context.Context, ln net.Listener) error {
	e := &endpoint{server: s, ctx: ctx, sessions: make(map[string]*httpSession)}
	mux := http.NewServeMux()
	mux.Handle("/mcp", e)
	web := &http.Server{
		Handler:           mux,
		ReadHeaderTimeout: 5 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ConnContext:       withWebConn,
		ErrorLog:          log.New(s.opts.Log, "", 0),
		// No WriteTimeout: streams last. Each write has a deadline instead.
	}
	stopped := make(chan error, 1)
	stop := context.AfterFunc(ctx, func() { stopped <- e.shutdown(web) })
	err := web.Serve(newWebListener(ln, &s.shares))
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
	if err := checkOrigin(r, e.server.opts.HTTPHosts); err != nil {
		http.Error(w, err.Error(), http.StatusForbidden)
		return
	}
	actor, err := e.authenticate(r)
	if err != nil {
		status := http.StatusServiceUnavailable
		if errors.Is(err, dispatch.ErrUnauthenticated) {
			w.Header().Set("WWW-Authenticate", `Bearer realm="leasehold"`)
			status = http.StatusUnauthorized
		}
		http.Error(w, err.Error(), status)
		return
	}
	if err := webConnOf(r).known(actor.ID); err != nil {
		w.Header().Set("Connection", "close")
		w.Header().Set("Retry-After", "5")
		http.Error(w, err.Error(), http.StatusTooManyRequests)
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

// delete ends a session at once.
func (e *endpoint) delete(w http.ResponseWriter, r *http.Request, actor dispatch.Actor) {
	hs, status, err := e.session(r, actor)
	if err != nil {
		http.Error(w, err.Error(), status)
		return
	}
	hs.end(errors.New("its client deleted it"))
	w.WriteHeader(http.StatusNoContent)
}

// ListenHTTP listens at a TCP address, of the loopback unless public.
func ListenHTTP(addr string, public bool) (net.Listener, error) {
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, err
	}
	if ip := ln.Addr().(*net.TCPAddr).IP; !public && !ip.IsLoopback() {
		ln.Close()
		return nil, fmt.Errorf("http address %q is reachable from other machines, where tokens and leases would travel in the clear: "+
			"use 127.0.0.1, or put a TLS proxy before it and say so", addr)
	}
	return ln, nil
}

package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/dispatch/process"
)

// readyWithin is how long a ready daemon may take to read its state.
const readyWithin = time.Second

// healthy answers that the daemon runs. It requires no token, because load
// balancers and init systems have none.
func (e *endpoint) healthy(w http.ResponseWriter, _ *http.Request) { plain(w, http.StatusOK, "ok") }

// ready answers whether the daemon serves clients: it reads its state in time,
// or knows another server that leads and passes clients on to it, and it is not
// stopping. A server that has lost its database does not know who leads.
func (e *endpoint) ready(w http.ResponseWriter, r *http.Request) {
	if e.ctx.Err() != nil {
		plain(w, http.StatusServiceUnavailable, "the daemon is stopping")
		return
	}
	if why := e.unready(r.Context()); why != "" {
		w.Header().Set("Retry-After", "1")
		plain(w, http.StatusServiceUnavailable, why)
		return
	}
	plain(w, http.StatusOK, "ok")
}

// unready returns why a daemon that is not stopping serves no clients, or "".
func (e *endpoint) unready(ctx context.Context) string {
	if reached := e.server.opts.Reached; reached != nil && !reached() {
		return "this server has lost its database, which says who leads" + e.server.why("")
	}
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	homes := e.server.homes.all()
	read := make(chan error, 1)
	go func() { // an engine that waits for its database does not watch ctx
		var failed error
		for _, home := range homes {
			if failed == nil {
				_, failed = home.state.Clocks(ctx)
			}
			home.guests.Done()
		}
		read <- failed
	}()
	var failed error
	select {
	case failed = <-read:
	case <-ctx.Done():
		failed = fmt.Errorf("not within %v%s", readyWithin, e.server.why(""))
	}
	switch {
	case homes == nil && !e.server.knowsLeader():
		return "this server does not lead, and knows none that does" + e.server.why("")
	case failed != nil:
		return "the daemon cannot read its state: " + failed.Error()
	}
	return ""
}

// knowsLeader reports whether this server knows of another server that leads a
// partition.
func (s *Server) knowsLeader() bool {
	if s.opts.Elsewhere == nil {
		return false
	}
	for partition := range max(1, s.opts.Partitions) {
		if way, _ := s.opts.Elsewhere(partition); way != nil {
			return true
		}
	}
	return false
}

// metrics serves the metrics of this server, which no other server has. It
// serves them only to operators and readers, because they reveal the names of
// queues and how busy they are.
func (e *endpoint) metrics(w http.ResponseWriter, r *http.Request) {
	if e.server.opts.Metrics == nil {
		plain(w, http.StatusNotFound, "there are no metrics here")
		return
	}
	role, refused := e.roleOf(r)
	switch {
	case refused != nil:
		refused.tell(w)
	case role != dispatch.Operator && role != dispatch.Reader:
		plain(w, http.StatusForbidden, "forbidden: metrics need the token of a reader or operator; this is that of a "+string(role))
	default:
		e.server.opts.Metrics.ServeHTTP(w, r)
	}
}

// roleOf returns the role of the actor of a request. If another server knows the
// token, that server is asked.
func (e *endpoint) roleOf(r *http.Request) (role dispatch.Role, refused *refusedRequest) {
	if home, _ := e.server.homes.look(e.partitionOf(r)); home != nil || e.server.opts.Elsewhere == nil {
		if home != nil {
			home.guests.Done()
		}
		_, actor, leave, refused := e.admit(r)
		leave()
		return actor.Role, refused
	}
	if err := e.checkOrigin(r); err != nil {
		return "", &refusedRequest{http.StatusForbidden, err}
	}
	token := bearer(r)
	if !dispatch.IsAccess(token) {
		return "", &refusedRequest{http.StatusUnauthorized, fmt.Errorf("%w: metrics need the token of a reader or operator", dispatch.ErrUnauthenticated)}
	}
	ctx, stop := context.WithTimeoutCause(r.Context(), askTimeout, errNotReached)
	defer stop()
	role, err := e.server.askRole(ctx, e.partitionOf(r), token, webConnOf(r).peer())
	if said, _ := errors.AsType[*HelloError](err); said != nil && said.Code == "UNAUTHENTICATED" {
		return "", &refusedRequest{http.StatusUnauthorized, said}
	}
	if err != nil {
		return "", &refusedRequest{http.StatusServiceUnavailable, err}
	}
	return role, nil
}

// askTimeout is how long another server may take to say whose token it is.
const askTimeout = 5 * time.Second

// askRole asks the server that leads a partition for the role of a token of an
// operator or reader. It connects with the token, and leaves.
func (s *Server) askRole(ctx context.Context, partition int, token string, peer process.Peer) (dispatch.Role, error) {
	home, _, nc, err := s.reach(ctx, false, passage{Partition: partition, Peer: peer})
	if err != nil {
		return "", err
	}
	if home != nil { // this server has just taken the lead
		home.guests.Done()
		return "", errNotReached
	}
	defer nc.Close()
	defer context.AfterFunc(ctx, func() { nc.Close() })()
	out := frames{nc} // it reads what comes unchanged
	_, welcome, err := Greet(out, Hello{Token: token})
	if err != nil {
		return "", err
	}
	_ = out.end() // otherwise that server notices by itself
	return welcome.Actor.Role, nil
}

func plain(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Cache-Control", "no-store")
	_ = writeBody(w, status, "text/plain; charset=utf-8", []byte(text+"\n"), time.Second)
}

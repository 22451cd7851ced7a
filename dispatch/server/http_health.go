package server

import (
	"context"
	"net/http"
	"time"

	"github.com/leasehold/leasehold/dispatch"
)

// readyWithin is how long a ready daemon may take to read its state.
const readyWithin = time.Second

// healthy answers that the daemon runs. It requires no token, because load
// balancers and init systems have none.
func (e *endpoint) healthy(w http.ResponseWriter, _ *http.Request) { plain(w, http.StatusOK, "ok") }

// ready answers whether the daemon serves clients: it reads its state in time,
// or knows another server that leads and passes clients on to it, and it is not
// stopping.
func (e *endpoint) ready(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), readyWithin)
	defer cancel()
	if e.ctx.Err() != nil {
		plain(w, http.StatusServiceUnavailable, "the daemon is stopping")
		return
	}
	homes := e.server.homes.all()
	var failed error
	for _, home := range homes {
		if failed == nil {
			_, failed = home.state.Clocks(ctx)
		}
		home.guests.Done()
	}
	switch {
	case homes == nil && !e.server.knowsLeader():
		w.Header().Set("Retry-After", "1")
		plain(w, http.StatusServiceUnavailable, "this server does not lead, and knows none that does")
	case failed != nil:
		w.Header().Set("Retry-After", "1")
		plain(w, http.StatusServiceUnavailable, "the daemon cannot read its state: "+failed.Error())
	default:
		plain(w, http.StatusOK, "ok")
	}
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
	home, _ := e.server.homes.look(e.partitionOf(r)) // of the token
	switch {
	case e.server.opts.Metrics == nil:
		plain(w, http.StatusNotFound, "there are no metrics here")
		return
	case home == nil:
		plain(w, http.StatusServiceUnavailable, "another server leads, which alone knows the tokens; leasehold serve --metrics asks for none")
		return
	}
	home.guests.Done()
	r, actor, leave, refused := e.admit(r)
	defer leave()
	switch {
	case refused != nil:
		refused.tell(w)
	case actor.Role != dispatch.Operator && actor.Role != dispatch.Reader:
		plain(w, http.StatusForbidden, "forbidden: metrics need the token of a reader or operator; this is that of a "+string(actor.Role))
	default:
		e.server.opts.Metrics.ServeHTTP(w, r)
	}
}

func plain(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Cache-Control", "no-store")
	_ = writeBody(w, status, "text/plain; charset=utf-8", []byte(text+"\n"), time.Second)
}

package server

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/rs/zerolog"

	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/dispatch/server/fair"
	"github.com/leasehold/leasehold/dispatch/server/tools"
)

// Options of a Server. The zero value is a production one.
type Options struct {
	Version string         // of the daemon, told to clients
	Log     zerolog.Logger // the zero Logger is silent
	Machine string         // where clients of the socket run; see [process.Peer]
	// Partitions is how many there are, which servers share; 0: the state is whole.
	Partitions int
	Settled    dispatch.Settled // runs that are in the first of them
	// Elsewhere gives the way to another server that leads a partition, or nil, and a
	// channel that is closed when that may have changed. Nil: there are no others.
	Elsewhere func(partition int) (*Way, <-chan struct{})
	// Trouble says in a few words why this server cannot lead; "" if it does not know.
	// Nil: it has no reason not to.
	Trouble func() string
	// Reached reports whether the database, which says who leads, was reached lately.
	// Nil: there is none.
	Reached func() bool
	Poked   func() // another server says that there is something to look at
	// Metrics serves /metrics to operators and readers; nil: nobody does. Called is
	// told of each call of a tool; nil: nobody is. It must be quick.
	Metrics http.Handler
	Called  func(tool string, refused bool)
	Logs    tools.LogReader
	Backup  tools.Backup // nil: the state is in a database
	Transport
}

// A Server speaks MCP for a State.
type Server struct {
	opts     Options
	homes    homes
	endpoint *endpoint

	attendance  *attendance
	connections atomic.Uint64 // ever, on the socket
	marked      marked
	shares      *fair.Shares
	parsing     sync.Mutex // held while a large message is parsed
	pages       pages
	farewells   farewells
}

// New returns a Server for state. Without one, its clients wait for [Server.Host].
func New(state *dispatch.State, opts Options) *Server {
	opts.Transport = opts.withDefaults()
	if opts.Called == nil {
		opts.Called = func(string, bool) {}
	}
	s := &Server{opts: opts, attendance: newAttendance(), shares: fair.New(opts.shares())}
	s.homes.now, s.homes.changed = make(map[int]*home), make(chan struct{})
	s.farewells.waiting, s.farewells.came = make(map[farewell]*lookout), make(chan struct{}, 1)
	s.pages.asked = make(chan chan<- pagePort)
	s.endpoint = newEndpoint(s)
	if state != nil {
		s.homes.now[0] = s.newHome(context.Background(), 0, state, func() error { return nil })
	}
	return s
}

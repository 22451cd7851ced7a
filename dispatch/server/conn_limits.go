package server

import (
	"cmp"
	"syscall"
	"time"

	"github.com/leasehold/leasehold/dispatch/server/fair"
	"github.com/leasehold/leasehold/dispatch/server/wire"
)

const (
	// A connection's calls are limited separately: those that give wait_secs,
	// and the others. Otherwise blocked calls could leave no room for the
	// release that they wait for. The rules allow one actor fewer waits than
	// this.
	maxWaits = 256
	maxCalls = 256

	// maxRoom is how many calls that do not wait are under way at once on a
	// connection to the socket. After that the connection is not read. Each has a
	// goroutine, and thousands of goroutines, of clients that send and do not read,
	// would keep all others waiting for a processor.
	maxRoom = 16

	// maxCallBytes is the total size of the messages of a connection's running
	// calls.
	maxCallBytes = 8 * wire.MaxMessage

	// maxNotices is how many unread notifications a client may have.
	maxNotices = 64

	// maxSubscriptions is how many resources a client can subscribe to.
	maxSubscriptions = 64

	// largeMessage is the size from which a message makes its call take a long
	// turn.
	largeMessage = 64 << 10

	// maxAhead is how many bytes of answers a client may leave unread before
	// its next calls wait until it reads.
	maxAhead = 256 << 10

	// fileReserve is how many file descriptors are reserved for the state, the
	// log and the listeners.
	fileReserve = 256

	// strangerEvery is the interval between HTTP connections that end without a
	// token, once twice as many have ended as may be open. It is also the interval
	// between requests that are refused or have no token, after the first
	// strangerBurst. Each costs work that everybody waits for.
	strangerEvery = time.Millisecond
	strangerBurst = 128
)

// Transport has the limits of connections. The zero value is for production.
type Transport struct {
	HelloTimeout time.Duration // a connection must say who it is within this; 5 s
	WriteTimeout time.Duration // a peer that reads nothing for this long is cut off; 10 s
	DrainTimeout time.Duration // short calls may finish within this on shutdown; 2 s

	// DoorGrace is how long the session of a client lasts that another server
	// has passed on, after the connection to that server was lost; 10 s.
	DoorGrace time.Duration

	// How many connections the socket has at once, how many of them one process
	// may have, which can serve several actors, and how many one actor may
	// have. 4096, or what the limit of open files allows; a quarter; 256.
	MaxConns     int
	ProcessConns int
	ActorConns   int

	// HTTPGrace is how long a session lasts after its client lost a stream, a
	// call or a remote connection. HTTPIdle is how long it lasts after the last
	// answered call of a client without a stream: see [presence]. 4 s and 15
	// min.
	HTTPGrace time.Duration
	HTTPIdle  time.Duration

	// How many sessions there are over HTTP, and how many one actor may have;
	// how many connections, and how many one actor may have. 4096, 256, 8192 or
	// what the limit of open files allows, and a quarter. A program has one
	// session and two or three connections, one of them for its notices.
	HTTPSessions      int
	ActorHTTPSessions int
	HTTPConns         int
	ActorHTTPConns    int

	// HTTPStrangers is how many HTTP connections may be open that have not
	// shown a token yet. A new one then replaces the oldest. There is room for
	// many programs that come back at once, as after a restart. An eighth of
	// HTTPConns, and at least 128.
	HTTPStrangers int

	HTTPKeepAlive time.Duration // between comments on a silent stream; 15 s

	// HTTPHosts are names, besides those of the loopback, by which clients may
	// reach the endpoint, and from whose pages browsers may.
	HTTPHosts []string
}

func (t Transport) withDefaults() Transport {
	t.HelloTimeout = cmp.Or(t.HelloTimeout, 5*time.Second)
	t.WriteTimeout = cmp.Or(t.WriteTimeout, 10*time.Second)
	t.DrainTimeout = cmp.Or(t.DrainTimeout, 2*time.Second)
	t.DoorGrace = cmp.Or(t.DoorGrace, 10*time.Second)
	files := openFiles() - fileReserve
	t.MaxConns = cmp.Or(t.MaxConns, max(16, min(maxConns, files*3/4)))
	t.ProcessConns = cmp.Or(t.ProcessConns, max(8, t.MaxConns/4))
	t.ActorConns = cmp.Or(t.ActorConns, min(256, t.ProcessConns))
	t.HTTPGrace = cmp.Or(t.HTTPGrace, 4*time.Second)
	t.HTTPIdle = cmp.Or(t.HTTPIdle, 15*time.Minute)
	t.HTTPSessions = cmp.Or(t.HTTPSessions, 4096)
	t.ActorHTTPSessions = cmp.Or(t.ActorHTTPSessions, max(1, min(256, t.HTTPSessions/2)))
	t.HTTPConns = cmp.Or(t.HTTPConns, max(16, min(8192, files-t.MaxConns)))
	t.ActorHTTPConns = cmp.Or(t.ActorHTTPConns, max(8, t.HTTPConns/4))
	t.HTTPStrangers = cmp.Or(t.HTTPStrangers, max(128, t.HTTPConns/8))
	t.HTTPKeepAlive = cmp.Or(t.HTTPKeepAlive, 15*time.Second)
	return t
}

// shares are the limits of one process and of one actor.
func (t Transport) shares() fair.Limits {
	return fair.Limits{ProcessConns: t.ProcessConns, ActorConns: t.ActorConns, ActorHTTPConns: t.ActorHTTPConns, ActorHTTPSessions: t.ActorHTTPSessions}
}

// maxConns is MaxConns where the limit of open files allows it.
const maxConns = 4096

// openFiles returns how many files this process may have open. The Go runtime
// has already raised the limit as far as allowed.
func openFiles() int {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 1024
	}
	return int(min(limit.Cur, 1<<20))
}

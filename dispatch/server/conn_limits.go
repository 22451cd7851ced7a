package server

import (
	"cmp"
	"time"

	"github.com/leasehold/leasehold/dispatch/server/wire"
)

const (
	// A connection's calls are bounded apart: those that say wait_secs and
	// those that do not. Otherwise as many blocked calls as fit would leave
	// no room for the release they wait for. The rules allow one actor fewer
	// waits than this.
	maxWaits = 256
	maxCalls = 256

	// maxCallBytes bounds the messages of the calls under way.
	maxCallBytes = 8 * wire.MaxMessage

	// maxNotices is how many notifications a client may leave unread.
	maxNotices = 64
)

// Transport has the bounds of connections. The zero value is a production one.
type Transport struct {
	HelloTimeout time.Duration // a connection says who it is within this; 5 s
	WriteTimeout time.Duration // a peer that takes no byte for this long is cut off; 10 s
	DrainTimeout time.Duration // short calls may finish within this on shutdown; 2 s
	MaxConns     int           // on the socket at once; 4096

	// HTTPGrace is how long a session outlives the stream or call that its
	// client lost, and HTTPIdle the last answered call of a client that
	// holds no stream: see [presence]. 4 s and 15 min.
	HTTPGrace time.Duration
	HTTPIdle  time.Duration

	HTTPSessions  int           // at once; 1024
	HTTPKeepAlive time.Duration // between comments on a silent stream; 15 s

	// HTTPHosts are names, besides those of the loopback, by which clients
	// may reach the endpoint and from whose pages browsers may.
	HTTPHosts []string
}

func (t Transport) withDefaults() Transport {
	t.HelloTimeout = cmp.Or(t.HelloTimeout, 5*time.Second)
	t.WriteTimeout = cmp.Or(t.WriteTimeout, 10*time.Second)
	t.DrainTimeout = cmp.Or(t.DrainTimeout, 2*time.Second)
	t.MaxConns = cmp.Or(t.MaxConns, 4096)
	t.HTTPGrace = cmp.Or(t.HTTPGrace, 4*time.Second)
	t.HTTPIdle = cmp.Or(t.HTTPIdle, 15*time.Minute)
	t.HTTPSessions = cmp.Or(t.HTTPSessions, 1024)
	t.HTTPKeepAlive = cmp.Or(t.HTTPKeepAlive, 15*time.Second)
	return t
}

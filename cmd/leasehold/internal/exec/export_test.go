package exec

import (
	"context"
	"time"

	"github.com/leasehold/leasehold/cmd/leasehold/internal/connection"
	"github.com/leasehold/leasehold/dispatch/client"
	"github.com/leasehold/leasehold/dispatch/server"
)

// Outage is how long a waiting exec waits for a daemon to come back.
const Outage = execOutage

// Confirm renews a lease that was granted over a connection.
func Confirm(ctx context.Context, d *connection.Dialer, c *client.Client, ttl time.Duration) error {
	link := &execLink{dialer: d, client: c, conn: &tappedConn{ended: make(chan struct{})}}
	h := &hold{cfg: execConfig{ttl: ttl}, link: link, leases: []lease{{LeaseID: "1"}}}
	return h.confirm(ctx)
}

// Keep keeps a lease of a ttl that was granted over a connection, until ctx ends. clock
// reads the clock that runs while the machine sleeps. changed is called after each renewal
// and before each late one.
func Keep(ctx context.Context, d *connection.Dialer, c *client.Client, ttl time.Duration, clock func() time.Duration, changed func()) error {
	real := running
	running = clock
	defer func() { running = real }()
	link := &execLink{dialer: d, client: c, conn: &tappedConn{ended: make(chan struct{})}}
	h := &hold{cfg: execConfig{ttl: ttl}, link: link, leases: []lease{{LeaseID: "1"}}, until: now().Add(ttl), changed: changed}
	if lost := h.keep(ctx); lost != nil {
		return lost
	}
	return nil
}

// Obtain waits for a lease over a connection.
func Obtain(ctx context.Context, d *connection.Dialer, c *client.Client, wait time.Duration) error {
	link := &execLink{dialer: d, hello: server.Hello{Handle: "h"}, client: c, conn: &tappedConn{ended: make(chan struct{})}}
	h := &hold{cfg: execConfig{wait: wait, wanted: make([]wanted, 1)}, link: link}
	return h.obtain(ctx)
}

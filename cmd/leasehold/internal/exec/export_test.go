package exec

import (
	"context"
	"time"

	"github.com/leasehold/leasehold/cmd/leasehold/internal/connection"
	"github.com/leasehold/leasehold/dispatch/client"
)

// Confirm renews a lease that was granted over a connection.
func Confirm(ctx context.Context, d *connection.Dialer, c *client.Client, ttl time.Duration) error {
	link := &execLink{dialer: d, client: c, conn: &tappedConn{ended: make(chan struct{})}}
	h := &hold{cfg: execConfig{ttl: ttl}, link: link, leases: []lease{{LeaseID: "1"}}}
	return h.confirm(ctx)
}

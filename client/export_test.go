package client

import (
	"context"
	"net"
	"net/http"

	"github.com/leasehold/leasehold/engine/clock"
)

// OpenAt is Open for a client with another clock, which reaches its servers another way.
func OpenAt(ctx context.Context, o Options, clk clock.Clock, dial func(ctx context.Context, network, addr string) (net.Conn, error)) (*Client, error) {
	ss, err := newServers(o.Servers, o.TLS)
	if err != nil {
		return nil, err
	}
	for _, s := range ss.list {
		s.http.Transport.(*http.Transport).DialContext = dial
	}
	return open(ctx, o, ss, clk)
}

// Combined returns a call that is sent together with others by send, which gets
// the number of calls in the request.
func Combined(ctx context.Context, send func(calls int)) (call func() error) {
	b := new(combiner[struct{}])
	b.init(&Client{ctx: ctx}, func(_ context.Context, list []item) ([]struct{}, error) {
		send(len(list))
		return make([]struct{}, len(list)), nil
	})
	return func() error {
		_, err := b.do(ctx, nil)
		return err
	}
}

package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/leasehold/leasehold/dispatch/server"
)

// listenMetrics opens the port of the metrics on the loopback, because that
// port does not ask for a token. An empty address opens no port.
func listenMetrics(addr string) (net.Listener, error) {
	if addr == "" {
		return nil, nil
	}
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, err
	}
	if !ln.Addr().(*net.TCPAddr).IP.IsLoopback() {
		ln.Close()
		return nil, fmt.Errorf("--metrics %s is reachable from other machines, and asks nobody for a token: use 127.0.0.1, or /metrics of --http", addr)
	}
	return ln, nil
}

// scrapers is how many connections read the metrics at once. Anybody on the machine may
// open one, and each takes an open file of those that are left to the state.
const scrapers = 64

// serveMetrics serves them until ctx ends. No page of a browser can read them:
// hosts are the names by which others may.
func serveMetrics(ctx context.Context, ln net.Listener, hosts []string, metrics http.Handler) error {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", metrics)
	var open atomic.Int64
	web := &http.Server{
		Handler: server.GuardHost(hosts, mux), ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: 30 * time.Second,
		IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 16 << 10,
		ConnState: func(nc net.Conn, state http.ConnState) {
			switch {
			case state == http.StateNew && open.Add(1) > scrapers:
				_ = nc.Close()
			case state == http.StateClosed:
				open.Add(-1)
			}
		},
	}
	stop := context.AfterFunc(ctx, func() { _ = web.Close() })
	defer stop()
	if err := web.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

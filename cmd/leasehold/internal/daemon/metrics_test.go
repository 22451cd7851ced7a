package daemon

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"testing"
)

// Connections that read the metrics are bounded, so that they leave open files to the
// state. When some end, others are served.
func TestConnectionsThatReadTheMetricsAreBounded(t *testing.T) {
	ln, err := listenMetrics("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error)
	go func() {
		served <- serveMetrics(ctx, ln, nil, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "up 1") }))
	}()
	scrape := func() (nc net.Conn, answered bool) {
		nc, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(nc, "GET /metrics HTTP/1.1\r\nHost: %s\r\n\r\n", ln.Addr())
		answer, err := http.ReadResponse(bufio.NewReader(nc), nil)
		return nc, err == nil && answer.StatusCode == http.StatusOK
	}
	var open []net.Conn
	for i := range scrapers {
		nc, answered := scrape()
		open = append(open, nc)
		if !answered {
			t.Fatalf("connection %d is not served", i)
		}
	}
	for range 3 {
		nc, answered := scrape()
		nc.Close()
		if answered {
			t.Errorf("more than %d connections are served", scrapers)
		}
	}
	for _, nc := range open {
		nc.Close()
	}
	for answered := false; !answered; { // once the daemon has seen that they are closed
		var nc net.Conn
		nc, answered = scrape()
		nc.Close()
	}
	stop()
	if err := <-served; err != nil {
		t.Error(err)
	}
}

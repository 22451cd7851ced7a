package server_test

import (
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/leasehold/leasehold/dispatch/server"
)

// A client that speaks plain HTTP to a port with TLS is told so, also if it sends much.
// What is no HTTP is told nothing.
func TestPlainHTTPWhereTLSIsServedIsToldSo(t *testing.T) {
	d := newDaemon(t, server.Options{})
	config, err := server.ClusterTLS([]byte(clusterSecret))
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	url := d.serveTCP(t, tls.NewListener(ln, config))
	for _, body := range []string{"", strings.Repeat("x", 32<<10)} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatalf("%d bytes: %v", len(body), err)
		}
		text, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != http.StatusBadRequest || !strings.Contains(string(text), `"detail":"this port is served over TLS: the URL must begin with https://"`) {
			t.Errorf("%d bytes: %s %s %v", len(body), resp.Status, text, err)
		}
	}
	nc, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	if _, err := nc.Write([]byte("\x00\x01\x02\x03\x04\x05")); err != nil {
		t.Fatal(err)
	}
	if text, _ := io.ReadAll(nc); len(text) > 0 {
		t.Errorf("what is no HTTP is answered with %q", text)
	}
}

package server_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"io"
	"math/big"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/leasehold/leasehold/dispatch/client"
	"github.com/leasehold/leasehold/dispatch/server"
)

// The socket takes a hello, or HTTP: who speaks which is told by the first byte.
func TestSocketServesTheAPI(t *testing.T) {
	d := newDaemon(t, server.Options{})
	path := d.listenSocket(t)
	d.token(t, "root")
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}}
	p := newProgram(t, &web{daemon: d, client: &http.Client{Transport: transport}, token: d.token(t, "w")}).open()
	p.want(201, "POST", "/leases", `{"key":"a"}`)

	nc, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.Connect(t.Context(), nc, server.Hello{Token: d.token(t, "w2")}, "test", "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Call(t.Context(), "run_lease_acquire", map[string]any{"key": "a"}); err == nil {
		t.Error("what is held over HTTP was granted")
	}
	p.want(204, "DELETE", "/session", "")
	if _, err := c.Call(t.Context(), "run_lease_acquire", map[string]any{"key": "a"}); err != nil {
		t.Errorf("what a session over HTTP has given back: %v", err)
	}
	c.Close()

	silent, err := net.Dial("unix", path) // it says nothing, and holds up nobody
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	p.open().want(200, "GET", "/leases", "")
	d.close()
}

// TestNothingIsSaidToASilentConnection opens a connection and says nothing, as a client
// of HTTP may do that keeps connections for later. It would take what is said to it for
// the answer to its next request.
func TestNothingIsSaidToASilentConnection(t *testing.T) {
	d := newDaemon(t, server.Options{Transport: server.Transport{HelloTimeout: 100 * time.Millisecond}})
	path := d.listenSocket(t)
	silent, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	if said, err := io.ReadAll(silent); err != nil || len(said) > 0 {
		t.Errorf("the daemon said %q (%v)", said, err)
	}
}

// Over TLS the endpoint is as it is without.
func TestEndpointOverTLS(t *testing.T) {
	d := newDaemon(t, server.Options{})
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"localhost"}}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	parsed, _ := x509.ParseCertificate(cert)
	trusted := x509.NewCertPool()
	trusted.AddCert(parsed)
	plain, err := server.ListenHTTP("127.0.0.1:0", false)
	if err != nil {
		t.Fatal(err)
	}
	ln := tls.NewListener(plain, &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{cert}, PrivateKey: key}}})
	served := make(chan error, 1)
	go func() { served <- d.ServeEndpoint(d.ctx, ln) }()
	d.token(t, "root")
	transport := &http.Transport{DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
		secure := &tls.Dialer{Config: &tls.Config{RootCAs: trusted, ServerName: "localhost"}}
		return secure.DialContext(ctx, network, plain.Addr().String())
	}}
	p := newProgram(t, &web{daemon: d, client: &http.Client{Transport: transport}, token: d.token(t, "w")}).open()
	p.want(201, "POST", "/leases", `{"key":"a"}`)

	// What is granted to a client that went without its answer is taken back.
	impatient, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	two := p.another("two").open()
	if resp, err := two.client.Do(two.request(impatient, "POST", "/leases", `{"key":"a","wait_secs":30}`)); err == nil {
		resp.Body.Close()
		t.Error("it was granted")
	}
	p.want(204, "DELETE", "/session", "")
	p.open().want(201, "POST", "/leases", `{"key":"a"}`)

	raw, err := net.Dial("tcp", plain.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	_, _ = raw.Write([]byte("GET /api/v1/leases HTTP/1.1\r\nHost: localhost\r\n\r\n"))
	answer := make([]byte, 100)
	if n, _ := raw.Read(answer); !bytes.HasPrefix(answer[:n], []byte("HTTP/1.1 400 ")) {
		t.Errorf("without TLS it answers %q", answer[:n])
	}
	d.stop()
	if err := <-served; err != nil {
		t.Error(err)
	}
}

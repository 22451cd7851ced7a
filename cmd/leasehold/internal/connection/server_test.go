package connection

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/leasehold/leasehold/cmd/leasehold/internal/place"
	"github.com/leasehold/leasehold/dispatch/server"
)

// The system accepts connections for a server that stands still. A client goes on to the
// next server long before it would give up on the only one.
func TestAServerThatStandsStillIsPassedOver(t *testing.T) {
	still, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer still.Close()
	answers := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "this is an answer", http.StatusForbidden)
	}))
	defer answers.Close()
	d := NewDialer(place.Target{Servers: &place.Servers{URLs: []*url.URL{
		{Scheme: "http", Host: still.Addr().String()},
		{Scheme: "http", Host: answers.Listener.Addr().String()},
	}}})
	d.helloTimeout = time.Hour
	_, err = d.Reach(t.Context(), false)
	if refused, ok := errors.AsType[*server.HelloError](err); !ok || refused.Code != "FORBIDDEN" {
		t.Errorf("%v; want the refusal of the second", err)
	}
}

// A server may be late because it waits for its database. That says nothing about TLS.
func TestAServerThatIsLateIsNotTakenForAnother(t *testing.T) {
	late, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer late.Close()
	d := NewDialer(place.Target{Servers: &place.Servers{URLs: []*url.URL{{Scheme: "http", Host: late.Addr().String()}}}})
	d.helloTimeout = 10 * time.Millisecond
	if _, err = d.Reach(t.Context(), false); err == nil || !strings.Contains(err.Error(), "not answered yet") || strings.Contains(err.Error(), "https") {
		t.Errorf("it says %v", err)
	}
}

// A proxy whose server is away answers with a page for people. The error is one line that
// names the proxy.
func TestAPageOfAProxyIsNotShown(t *testing.T) {
	for _, status := range []int{http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout} {
		proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "<html>\r\n<body>nginx</body>\r\n</html>", status)
		}))
		d := NewDialer(place.Target{Servers: &place.Servers{URLs: []*url.URL{{Scheme: "http", Host: proxy.Listener.Addr().String()}}}})
		_, err := d.Reach(t.Context(), false)
		proxy.Close()
		if err == nil || strings.Contains(err.Error(), "<html>") || strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), "a proxy before it answers") || !strings.Contains(err.Error(), http.StatusText(status)) {
			t.Errorf("%d: %v", status, err)
		}
	}
}

// An authority that is known does not help if the server does not send the certificates
// between that and its own.
func TestTheCertificatesBetweenAreNamed(t *testing.T) {
	secure := httptest.NewTLSServer(nil)
	defer secure.Close()
	d := NewDialer(place.Target{Servers: &place.Servers{URLs: []*url.URL{{Scheme: "https", Host: secure.Listener.Addr().String()}}, TLS: &tls.Config{RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS12}}})
	if _, err := d.Reach(t.Context(), false); err == nil || !strings.Contains(err.Error(), "LEASEHOLD_SERVER_CA") || !strings.Contains(err.Error(), "certificates between") {
		t.Errorf("it says %v", err)
	}
}

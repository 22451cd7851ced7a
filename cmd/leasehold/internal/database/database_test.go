package database_test

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/leasehold/leasehold/cmd/leasehold/internal/database"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/exit"
)

// Whoever does not trust the certificate of a database is told about certificates, and not
// to see whether the database runs.
func TestACertificateThatIsRefusedIsExplained(t *testing.T) {
	web := httptest.NewTLSServer(nil)
	web.Close() // only its certificate is of use
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	go func() { // as a database answers until the certificate is refused
		for {
			nc, err := ln.Accept()
			if err != nil {
				return
			}
			if _, err = io.ReadFull(nc, make([]byte, 8)); err == nil {
				_, _ = nc.Write([]byte("S"))
				_ = tls.Server(nc, web.TLS).Handshake()
			}
			_ = nc.Close()
		}
	}()
	host, port, _ := net.SplitHostPort(ln.Addr().String())
	for _, mode := range []string{"verify-full", "verify-ca"} {
		_, err = pgx.Connect(t.Context(), "host="+host+" port="+port+" user=test sslmode="+mode)
		if err == nil {
			t.Fatal("it is trusted")
		}
		hinted, _ := errors.AsType[exit.Hinted](database.Explain(err))
		if !strings.Contains(hinted.Hint, "certificate") {
			t.Errorf("%s: %v: %q", mode, err, hinted.Hint)
		}
	}
}

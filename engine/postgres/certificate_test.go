package postgres_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/leasehold/leasehold/engine/postgres"
	"github.com/leasehold/leasehold/engine/postgres/postgrestest"
)

// A database may know its users by their certificates. One that is replaced while a server
// runs, in the files that the DSN names, is used for the next connection.
func TestACertificateIsRenewed(t *testing.T) {
	t.Parallel()
	address := postgrestest.Address()
	s := postgrestest.Start(t, "listen_addresses = '"+address+"'")
	cert, key := postgrestest.Certificate(t, address, time.Now().Add(time.Hour))
	s.Write(t, "server.crt", cert)
	s.Write(t, "server.key", key)
	s.Write(t, "pg_hba.conf", []byte("local all all trust\nhostssl all all 127.0.0.0/8 cert\n"))
	dir := t.TempDir()
	issue := func() {
		t.Helper()
		own, ownKey := postgrestest.Certificate(t, "test", time.Now().Add(time.Hour))
		s.Write(t, "root.crt", own)
		for name, text := range map[string][]byte{"cert": own, "key": ownKey} {
			if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	issue()
	for _, set := range []string{"ssl = on", "ssl_ca_file = 'root.crt'"} {
		postgrestest.Exec(t, s.DSN(), "ALTER SYSTEM SET "+set)
	}
	s.Kill()
	s.Restart(t)
	dsn := fmt.Sprintf("host=%s user=test dbname=postgres sslmode=require sslcert=%s sslkey=%s", address, filepath.Join(dir, "cert"), filepath.Join(dir, "key"))
	e := mustOpen(t, postgres.Options{DSN: dsn})
	put(t, e, "a")
	issue()
	s.Kill()
	s.Restart(t)
	put(t, e, "b")
	if got := keys(t, e); got != "a b" {
		t.Errorf("it has %q", got)
	}
}

package database_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/leasehold/leasehold/cmd/leasehold/internal/database"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/exit"
	"github.com/leasehold/leasehold/engine/postgres"
	"github.com/leasehold/leasehold/engine/postgres/postgrestest"
)

// Whoever is refused by a database is told what to change: TLS, a certificate, the user, or
// the number of connections.
func TestARefusalIsExplained(t *testing.T) {
	t.Parallel()
	address := postgrestest.Address()
	server := postgrestest.Start(t, "listen_addresses = '"+address+"'")
	exec := func(sql string) { t.Helper(); postgrestest.Exec(t, server.DSN(), sql) }
	conn, err := pgx.Connect(t.Context(), server.DSN())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	write := func(name string, text []byte) { t.Helper(); server.Write(t, name, text) }
	write("pg_hba.conf", []byte("local all all trust\nhost all all 127.0.0.0/8 trust\n"))
	exec("CREATE ROLE absent NOLOGIN")
	exec("CREATE ROLE crowded LOGIN CONNECTION LIMIT 0")
	exec("SELECT pg_reload_conf()")
	try := func(dsn, reason, hint string) {
		t.Helper()
		// A reload is seen by connections that are made soon after it.
		for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
			conn, err := pgx.Connect(t.Context(), dsn)
			if err == nil {
				_ = conn.Close(t.Context()) // nothing is in progress
			}
			hinted, _ := errors.AsType[exit.Hinted](database.Explain(err))
			if err != nil && postgres.Reason(err) == reason && strings.Contains(hinted.Hint, hint) {
				return
			}
			if time.Now().After(deadline) {
				t.Errorf("%s: %v: the reason is %q, the hint %q", dsn, err, postgres.Reason(err), hinted.Hint)
				return
			}
		}
	}
	on := "host=" + address + " dbname=postgres user="
	try(on+"absent", "its database does not accept its user", "whether that user may log in")
	try(on+"crowded", "its database accepts no more connections", "CONNECTION LIMIT")
	exec("CREATE DATABASE broken")
	var oid int
	if err := conn.QueryRow(t.Context(), "SELECT oid::int FROM pg_database WHERE datname = 'broken'").Scan(&oid); err != nil {
		t.Fatal(err)
	}
	write(fmt.Sprintf("base/%d/pg_filenode.map", oid), make([]byte, 512))
	try("host="+address+" dbname=broken user=test", "its database fails; its disk may be full", "see whether its disk is full")
	try(on+"test sslmode=require", "its database does not use TLS", "turn ssl on")
	try(on+"test sslmode=require sslnegotiation=direct", "its database does not answer", "sslnegotiation=direct in it needs")
	// Nobody waits for that to change.
	_, err = postgres.OpenCluster(t.Context(), postgres.Options{DSN: on + "test sslmode=require", SingleNode: true, Patience: time.Minute}, 0)
	if !postgres.Unencrypted(err) || strings.Contains(err.Error(), "did not come back") {
		t.Errorf("without TLS, it is opened with %v", err)
	}

	expired, expiredKey := postgrestest.Certificate(t, address, time.Now().Add(-time.Hour))
	write("server.crt", expired)
	write("server.key", expiredKey)
	write("root.crt", expired)
	exec("ALTER SYSTEM SET ssl = on")
	exec("ALTER SYSTEM SET ssl_ca_file = 'root.crt'")
	exec("SELECT pg_reload_conf()")
	file := func(name string, text []byte) string {
		t.Helper()
		name = filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(name, text, 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	for _, mode := range []string{"verify-full", "verify-ca"} {
		try(on+"test sslmode="+mode+" sslrootcert="+file("ca", expired), "it does not trust the certificate of its database", "give the database a certificate")
	}
	try(on+"test sslmode=require sslcert="+file("cert", expired)+" sslkey="+file("key", expiredKey), "its database does not accept its certificate", "sslcert")
}

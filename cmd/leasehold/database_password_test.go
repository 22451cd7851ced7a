package main

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/leasehold/leasehold/engine/postgres/postgrestest"
)

// A server whose database gets another password, or another user, goes on with what
// --postgres-file has then, without a restart.
func TestAServerReadsItsPasswordAgain(t *testing.T) {
	t.Parallel()
	database := postgrestest.Start(t)
	newDir(t)
	postgrestest.Exec(t, database.DSN(), "CREATE ROLE renewed LOGIN PASSWORD 'first'")
	postgrestest.Exec(t, database.DSN(), "CREATE DATABASE renewed OWNER renewed")
	conn, err := pgx.Connect(t.Context(), database.DSN())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	var hba string
	if err := conn.QueryRow(t.Context(), "SHOW hba_file").Scan(&hba); err != nil {
		t.Fatal(err)
	}
	rules, err := os.ReadFile(hba)
	if err == nil {
		err = os.WriteFile(hba, append([]byte("local all renewed,successor scram-sha-256\n"), rules...), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	postgrestest.Exec(t, database.DSN(), "SELECT pg_reload_conf()")
	dsn := inDir(t, "dsn")
	write := func(user, password string) {
		t.Helper()
		text := strings.NewReplacer("user=test", "user="+user+" password="+password, "dbname=postgres", "dbname=renewed").Replace(database.DSN())
		if err := os.WriteFile(dsn, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("renewed", "first")
	startDaemon(t, "--single-node", "--postgres-file", dsn)
	await := func(password string) {
		t.Helper()
		for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
			out, err := testProgram(t, "call", "run_lease_acquire", "key="+password).CombinedOutput()
			if err == nil {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("with password %q it never answered: %v %s", password, err, out)
			}
		}
	}
	await("first")
	postgrestest.Exec(t, database.DSN(), "ALTER ROLE renewed PASSWORD 'second'")
	write("renewed", "second")
	postgrestest.Exec(t, database.DSN(), "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'renewed'")
	await("second")
	postgrestest.Exec(t, database.DSN(), "CREATE ROLE successor LOGIN PASSWORD 'third' IN ROLE renewed")
	postgrestest.Exec(t, database.DSN(), "ALTER ROLE renewed NOLOGIN")
	write("successor", "third")
	postgrestest.Exec(t, database.DSN(), "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'renewed'")
	await("third")
}

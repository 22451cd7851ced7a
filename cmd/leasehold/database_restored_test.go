package main

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/leasehold/leasehold/engine/postgres/postgrestest"
)

// A server that runs while its database is replaced by an earlier copy issues no
// token that was issued since the copy was made.
func TestTokensRiseThoughTheDatabaseIsRestoredUnderAServer(t *testing.T) {
	t.Parallel()
	database := postgrestest.Start(t)
	newDir(t, "LEASEHOLD_POSTGRES="+strings.Replace(database.DSN(), "dbname=postgres", "dbname=state", 1))
	postgrestest.Exec(t, database.DSN(), "CREATE DATABASE state")
	var last int64
	lease := func() {
		t.Helper()
		for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
			cmd := testProgram(t, "call", "run_lease_acquire", "key=deploy", "--json")
			out, err := cmd.Output()
			var got struct{ Token int64 }
			if err == nil {
				err = json.Unmarshal(out, &got)
			}
			switch {
			case err == nil && got.Token > last:
				last = got.Token
				return
			case err == nil:
				t.Fatalf("token %d comes after %d", got.Token, last)
			case time.Now().After(deadline):
				t.Fatalf("it never answered: %v %s", err, out)
			}
		}
	}
	free := func() { // of connections
		t.Helper()
		postgrestest.Exec(t, database.DSN(), "UPDATE pg_database SET datallowconn = false WHERE datname = 'state'")
		postgrestest.Exec(t, database.DSN(), "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE datname = 'state'")
	}
	for i := range 3 {
		daemon := startDaemon(t, "--single-node")
		lease()
		if i == 2 {
			break // it knows the third epoch
		}
		_ = daemon.Process.Signal(os.Interrupt)
		_ = daemon.Wait()
		if i == 0 {
			postgrestest.Exec(t, database.DSN(), "CREATE DATABASE copy TEMPLATE state")
		}
	}
	free()
	postgrestest.Exec(t, database.DSN(), "DROP DATABASE state")
	postgrestest.Exec(t, database.DSN(), "ALTER DATABASE copy RENAME TO state")
	lease()
}

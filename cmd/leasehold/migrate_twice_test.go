package main

import (
	"os"
	"strings"
	"testing"

	"github.com/leasehold/leasehold/engine/postgres"
	"github.com/leasehold/leasehold/engine/postgres/postgrestest"
)

// A database into which a copy is made is refused, to another copy and to a server, and
// nothing happens to that copy.
func TestADatabaseIsCopiedToOnceAtATime(t *testing.T) {
	t.Parallel()
	dsn := postgrestest.Database(t)
	newDir(t)
	daemon := startDaemon(t)
	_ = daemon.Process.Signal(os.Interrupt)
	_ = daemon.Wait()
	release, err := postgres.Reserve(t.Context(), postgres.Options{DSN: dsn})
	if err != nil {
		t.Fatal(err)
	}
	for _, command := range [][]string{{"migrate", "postgres", "--single-node"}, {"migrate", "directory", "--single-node", "--state", inDir(t, "other")}, {"serve", "--single-node"}} {
		out, err := testProgram(t, append(command, "--postgres", dsn)...).CombinedOutput()
		if err == nil || !strings.Contains(string(out), "another process copies a state into this database") || !strings.Contains(string(out), "hint: nothing was changed: wait until") || strings.Contains(string(out), "drop its tables") {
			t.Errorf("%v: %v %s", command, err, out)
		}
	}
	release()
	if out, err := testProgram(t, "migrate", "postgres", "--single-node", "--postgres", dsn).CombinedOutput(); err != nil {
		t.Errorf("%v %s", err, out)
	}
}

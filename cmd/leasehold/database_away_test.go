package main

import (
	"strings"
	"testing"
	"time"

	"github.com/leasehold/leasehold/engine/postgres/postgrestest"
)

// Whoever asks a server that cannot lead, because its database is away, is told so. The
// server leads again when the database is back.
func TestAServerWithoutItsDatabaseSaysWhy(t *testing.T) {
	t.Parallel()
	database := postgrestest.Start(t)
	newDir(t, "LEASEHOLD_POSTGRES="+database.DSN())
	startDaemon(t, "--single-node")
	await := func(what string, is func(out string, err error) bool) {
		t.Helper()
		for deadline := time.Now().Add(patience); ; {
			out, err := testProgram(t, "call", "lease_list").CombinedOutput()
			switch {
			case is(string(out), err):
				return
			case time.Now().After(deadline):
				t.Fatalf("it never %s; last it said: %v %s", what, err, out)
			}
			time.Sleep(50 * time.Millisecond)
		}
	}
	answers := func(_ string, err error) bool { return err == nil }
	await("answered", answers)
	database.Kill()
	await("said why", func(out string, err error) bool {
		return err != nil && strings.Contains(out, "does not lead at present") && strings.Contains(out, ": its database does not answer; try again")
	})
	database.Restart(t)
	await("answered again", answers)
}

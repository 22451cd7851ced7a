package main

import (
	"bytes"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/leasehold/leasehold/engine/postgres"
	"github.com/leasehold/leasehold/engine/postgres/postgrestest"
)

// stateToCopy makes the state of a daemon that has ended, and a database for it.
func stateToCopy(t *testing.T) (dsn string) {
	t.Helper()
	dsn = postgrestest.Database(t)
	newDir(t)
	daemon := startDaemon(t)
	_ = daemon.Process.Signal(os.Interrupt)
	_ = daemon.Wait()
	return dsn
}

// A database into which a copy is made is refused, to another copy and to a server, and
// nothing happens to that copy.
func TestADatabaseIsCopiedToOnceAtATime(t *testing.T) {
	t.Parallel()
	dsn := stateToCopy(t)
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

// A copy whose terminal is closed says what it leaves, as after Ctrl-C. The signal comes
// while the database keeps it from writing.
func TestAnInterruptedCopySaysWhatItLeaves(t *testing.T) {
	if signal.Ignored(syscall.SIGHUP) {
		t.Skip("this signal is ignored here")
	}
	t.Parallel()
	dsn := stateToCopy(t)
	migrate := []string{"migrate", "postgres", "--single-node", "--postgres", dsn}
	if out, err := testProgram(t, migrate...).CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	db, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close(t.Context())
	if _, err := db.Exec(t.Context(), "TRUNCATE leasehold_log, leasehold_record, leasehold_settled"); err != nil {
		t.Fatal(err)
	}
	held, err := db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := held.Exec(t.Context(), "LOCK TABLE leasehold_log IN EXCLUSIVE MODE"); err != nil {
		t.Fatal(err)
	}
	var said bytes.Buffer
	copying := testProgram(t, migrate...)
	copying.Stderr = &said
	if err := copying.Start(); err != nil {
		t.Fatal(err)
	}
	awaitTrue(t, "the copy waits to write", func() (waits bool) {
		err := held.QueryRow(t.Context(), "SELECT EXISTS (SELECT 1 FROM pg_locks WHERE NOT granted AND relation = 'leasehold_log'::regclass)").Scan(&waits)
		if err != nil {
			t.Fatal(err)
		}
		return waits
	})
	for range 2 { // as it comes from the kernel and a shell
		if err := copying.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
	}
	if err := held.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	_ = copying.Wait()
	if code := copying.ProcessState.ExitCode(); code != 128+int(syscall.SIGHUP) || !strings.Contains(said.String(), "drop its tables") {
		t.Errorf("exit code %d: %s", code, said.String())
	}
}

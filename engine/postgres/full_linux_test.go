package postgres_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/postgres"
	"github.com/leasehold/leasehold/engine/postgres/postgrestest"
)

// A commit that finds no space on the database's disk waits for some, and takes effect
// when there is. If there is none for too long, the engine ends; what was acknowledged
// is there when it opens again.
func TestADatabaseWithoutSpace(t *testing.T) {
	t.Parallel()
	disk := t.TempDir()
	if err := syscall.Mount("tmpfs", disk, "tmpfs", 0, "size=48m"); err != nil {
		t.Skipf("a small file system cannot be mounted here: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(disk, syscall.MNT_DETACH) })
	s := postgrestest.Start(t)
	space := filepath.Join(disk, "space")
	if err := os.Mkdir(space, 0o700); err != nil {
		t.Fatal(err)
	}
	for dir := disk; dir != "/" && dir != os.TempDir(); dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil { // the server's user must reach it
			t.Fatal(err)
		}
	}
	if u, err := user.Lookup("postgres"); err == nil && os.Getuid() == 0 {
		uid, _ := strconv.Atoi(u.Uid)
		gid, _ := strconv.Atoi(u.Gid)
		if err := os.Chown(space, uid, gid); err != nil {
			t.Fatal(err)
		}
	}
	conn, err := pgx.Connect(t.Context(), s.DSN())
	if err != nil {
		t.Fatal(err)
	}
	for _, sql := range []string{fmt.Sprintf("CREATE TABLESPACE small LOCATION '%s'", space), "CREATE DATABASE small TABLESPACE small"} {
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	_ = conn.Close(t.Context())

	filler := filepath.Join(disk, "filler")
	fill := func() {
		f, err := os.Create(filler)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		for block := make([]byte, 64<<10); err == nil; {
			_, err = f.Write(block)
		}
		if !errors.Is(err, syscall.ENOSPC) {
			t.Fatal(err)
		}
	}
	told := make(chan string, 100)
	o := postgres.Options{
		DSN: strings.Replace(s.DSN(), "dbname=postgres", "dbname=small", 1), Partition: 1, SingleNode: true, Patience: time.Hour,
		Logf: func(format string, args ...any) { told <- fmt.Sprintf(format, args...) },
	}
	open := func() *postgres.Engine {
		e, err := postgres.Open(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	large := func(e *postgres.Engine, key string) error {
		value := make([]byte, 512<<10)
		rand.Read(value) // else the database compresses it
		return e.Update(context.Background(), func(tx engine.Tx) error {
			tx.Put(engine.Row{Key: key, Value: string(value)})
			return nil
		})
	}
	e := open()
	put(t, e, "before")
	fill()
	waits := make(chan error, 1)
	go func() { waits <- large(e, "waits") }()
	for !strings.Contains(<-told, "No space left") {
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	if err := <-waits; err != nil {
		t.Errorf("a commit that waited for space: %v", err)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}

	o.Patience = time.Second
	e = open()
	fill()
	err = large(e, "never")
	if !errors.Is(err, engine.ErrFailed) {
		t.Errorf("without space for longer than the patience: %v", err)
	}
	if got := postgres.Reason(err); got != "its database has no space left on its disk" {
		t.Errorf("the reason of %v is %q", err, got)
	}
	_ = e.Close()
	// The server may still be at the last attempt, which would find space.
	for query[int](t, s.DSN(), "SELECT count(*)::int FROM pg_stat_activity WHERE datname = 'small' AND backend_type = 'client backend'") > 0 {
		time.Sleep(10 * time.Millisecond)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	e = open()
	defer e.Close()
	if got := keys(t, e); got != "before waits" {
		t.Errorf("it has %s", got)
	}
}

package postgrestest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// Pooler starts a PgBouncer before the server, and gives the DSN of the server's first
// database through it. The test is skipped where PgBouncer is not installed.
func (s *Server) Pooler(t testing.TB, mode string) (dsn string) {
	t.Helper()
	path, err := exec.LookPath("pgbouncer")
	if err != nil {
		path = "/usr/sbin/pgbouncer" // which is on the path of administrators only
		if _, err := os.Stat(path); err != nil {
			t.Skip("pgbouncer is not here: apt-get install pgbouncer")
		}
	}
	dir := filepath.Join(s.dir, mode)
	conf := filepath.Join(dir, "conf")
	text := fmt.Sprintf(`[databases]
postgres = host=%s user=test
[pgbouncer]
listen_addr =
listen_port = 6432
unix_socket_dir = %s
auth_type = any
pool_mode = %s
`, s.dir, dir, mode)
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(conf, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if s.as != nil {
		if err := os.Chown(dir, int(s.as.Uid), int(s.as.Gid)); err != nil {
			t.Fatal(err)
		}
	}
	var said strings.Builder
	cmd := exec.Command(path, conf)
	cmd.SysProcAttr, cmd.Dir, cmd.Stdout, cmd.Stderr = &syscall.SysProcAttr{Credential: s.as}, dir, &said, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // it is killed
		close(ended)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		<-ended
	})
	dsn = "host=" + dir + " port=6432 user=test dbname=postgres"
	for {
		conn, err := pgx.Connect(context.Background(), dsn)
		if err == nil {
			_ = conn.Close(context.Background()) // nothing is in progress
			return dsn
		}
		select {
		case <-ended:
			t.Fatalf("pgbouncer ended: %s", said.String())
		case <-time.After(10 * time.Millisecond):
		}
	}
}

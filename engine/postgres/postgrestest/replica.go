package postgrestest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// A Group is a primary with two standbys that stream from whichever is the primary.
type Group struct {
	servers []*Server

	mu      sync.Mutex
	primary int
}

// StartGroup makes a group for one test. If it is synchronous, the primary acknowledges a
// commit when one standby has it on its disk.
func StartGroup(t testing.TB, synchronous bool) *Group {
	t.Helper()
	skipWithout(t)
	g := new(Group)
	t.Cleanup(func() {
		for _, s := range g.servers {
			if err := s.remove(); err != nil {
				t.Error(err)
			}
		}
	})
	first, err := start("max_wal_senders = 8", "wal_keep_size = 256MB", "wal_retrieve_retry_interval = 100ms")
	if err != nil {
		t.Fatal(err)
	}
	g.servers = append(g.servers, first)
	for range 2 {
		s, err := first.standby()
		if err != nil {
			t.Fatal(err)
		}
		g.servers = append(g.servers, s)
	}
	var names []string
	if synchronous {
		names = append(names, "synchronous_standby_names = 'ANY 1 (*)'")
	}
	for i, s := range g.servers {
		own := append(names, fmt.Sprintf("primary_conninfo = 'host=%s user=test target_session_attrs=read-write application_name=s%d'", g.hosts(), i))
		if err := s.configure(own...); err != nil {
			t.Fatal(err)
		}
		if i > 0 {
			if err := s.up(); err != nil {
				t.Fatal(err)
			}
		}
	}
	g.awaitStandbys(t, 2)
	Exec(t, first.DSN(), "SELECT pg_reload_conf()")
	return g
}

// standby copies a server to another directory.
func (s *Server) standby() (*Server, error) {
	dir, err := os.MkdirTemp("", "postgres-")
	if err != nil {
		return nil, err
	}
	c := &Server{dir: dir, as: s.as}
	if c.as != nil {
		if err := os.Chown(dir, int(c.as.Uid), int(c.as.Gid)); err != nil {
			return c, err
		}
	}
	program, err := find("pg_basebackup")
	if err != nil {
		return c, err
	}
	cmd := exec.Command(program, "-h", s.dir, "-U", "test", "-D", c.data(), "-X", "stream", "-c", "fast")
	cmd.SysProcAttr, cmd.Dir = &syscall.SysProcAttr{Credential: c.as}, dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return c, fmt.Errorf("pg_basebackup: %w: %s", err, out)
	}
	if err := os.WriteFile(filepath.Join(c.data(), "standby.signal"), nil, 0o644); err != nil {
		return c, err
	}
	return c, c.configure("unix_socket_directories = '" + dir + "'")
}

// configure adds settings, which a reload or the next start reads.
func (s *Server) configure(settings ...string) error {
	f, err := os.OpenFile(filepath.Join(s.data(), "postgresql.conf"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(strings.Join(settings, "\n") + "\n")
	return errors.Join(err, f.Close())
}

func (g *Group) hosts() string {
	var dirs []string
	for _, s := range g.servers {
		dirs = append(dirs, s.dir)
	}
	return strings.Join(dirs, ",")
}

// DSN names the group's database, on whichever server is the primary.
func (g *Group) DSN() string {
	return "host=" + g.hosts() + " user=test dbname=postgres target_session_attrs=read-write"
}

// Directory has the socket of the server that is the primary now.
func (g *Group) Directory() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.servers[g.primary].dir
}

// awaitStandbys waits until so many stream.
func (g *Group) awaitStandbys(t testing.TB, n int) {
	t.Helper()
	for g.number(t, g.servers[g.primary], "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'") < int64(n) {
		time.Sleep(10 * time.Millisecond)
	}
}

func (g *Group) number(t testing.TB, s *Server, sql string) (n int64) {
	t.Helper()
	conn, err := pgx.Connect(context.Background(), s.DSN())
	if err == nil {
		err = errors.Join(conn.QueryRow(context.Background(), sql).Scan(&n), conn.Close(context.Background()))
	}
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return n
}

// Detach has the standbys receive nothing more, so that what is committed from now on is
// on the primary alone.
func (g *Group) Detach(t testing.TB) {
	t.Helper()
	for i, s := range g.servers {
		if i != g.primary {
			Exec(t, s.DSN(), "ALTER SYSTEM SET primary_conninfo = ''")
			Exec(t, s.DSN(), "SELECT pg_reload_conf()")
		}
	}
	for g.number(t, g.servers[g.primary], "SELECT count(*) FROM pg_stat_replication") > 0 {
		time.Sleep(10 * time.Millisecond)
	}
}

// FailOver kills the primary as a crash would, and promotes the standby that has
// received most, as a manager of such a group does.
func (g *Group) FailOver(t testing.TB) {
	t.Helper()
	g.servers[g.primary].Kill()
	g.promote(t)
}

// SwitchOver makes the primary read-only, but leaves it and its connections as they are,
// and promotes a standby in its place.
func (g *Group) SwitchOver(t testing.TB) {
	t.Helper()
	before := g.servers[g.primary].DSN()
	Exec(t, before, "ALTER SYSTEM SET default_transaction_read_only = on")
	Exec(t, before, "SELECT pg_reload_conf()")
	g.Detach(t) // the other standby must not be ahead of the one that is promoted
	old := g.primary
	g.promote(t)
	for i, s := range g.servers {
		if i != g.primary && i != old {
			Exec(t, s.DSN(), "ALTER SYSTEM RESET primary_conninfo")
			Exec(t, s.DSN(), "SELECT pg_reload_conf()")
		}
	}
}

func (g *Group) promote(t testing.TB) {
	t.Helper()
	best, most := -1, int64(-1)
	for i, s := range g.servers {
		if i == g.primary || s.cmd == nil {
			continue
		}
		if n := g.number(t, s, "SELECT (coalesce(greatest(pg_last_wal_receive_lsn(), pg_last_wal_replay_lsn()), '0/0') - '0/0')::bigint"); n > most {
			best, most = i, n
		}
	}
	if best < 0 {
		t.Fatal("no standby is left")
	}
	g.mu.Lock()
	g.primary = best
	g.mu.Unlock()
	Exec(t, g.servers[best].DSN(), "SELECT pg_promote(true)")
}

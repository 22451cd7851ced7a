package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/jackc/pgx/v5/pgxpool"
)

// A sqlServer is a PostgreSQL with its defaults, which sync every commit.
type sqlServer struct {
	*daemon
	pool    *pgxpool.Pool // with a connection for each worker
	dir     string
	version string
}

func (s *sqlServer) dsn() string { return fmt.Sprintf("host=%s user=bench dbname=postgres", s.dir) }

func (s *sqlServer) close() error {
	s.pool.Close()
	return s.stop(syscall.SIGINT)
}

func startPostgres(ctx context.Context, p place) (_ *sqlServer, err error) {
	postgres, err := find("postgresql", "postgres", "/usr/lib/postgresql/*/bin", "/opt/homebrew/opt/postgresql*/bin")
	if err != nil {
		return nil, err
	}
	user, err := postgresUser()
	if err != nil {
		return nil, err
	}
	dir, err := p.own(user)
	if err != nil {
		return nil, err
	}
	data := filepath.Join(dir, "data")
	initdb := exec.CommandContext(ctx, filepath.Join(filepath.Dir(postgres), "initdb"), "-D", data, "-U", "bench", "-A", "trust", "-E", "UTF8", "--no-locale")
	initdb.SysProcAttr = &syscall.SysProcAttr{Credential: user}
	initdb.Dir = dir
	if out, err := initdb.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("initdb: %w: %s", err, out)
	}
	d, err := start(user, postgres, "-D", data, "-k", dir,
		"-c", "listen_addresses=", "-c", "fsync=on", "-c", "synchronous_commit=on", "-c", "full_page_writes=on", "-c", "max_connections=200")
	if err != nil {
		return nil, err
	}
	// SIGINT ends it without waiting for clients.
	defer func() {
		if err != nil {
			err = errors.Join(err, d.stop(syscall.SIGINT))
		}
	}()
	pc, err := pgxpool.ParseConfig(fmt.Sprintf("host=%s user=bench dbname=postgres pool_max_conns=%d", dir, maxWorkers))
	if err != nil {
		return nil, err
	}
	pool, err := pgxpool.NewWithConfig(ctx, pc)
	if err != nil {
		return nil, err
	}
	if err := d.up(ctx, pool.Ping); err != nil {
		return nil, err
	}
	var version string
	if err := pool.QueryRow(ctx, "show server_version").Scan(&version); err != nil {
		return nil, err
	}
	return &sqlServer{d, pool, dir, version}, nil
}

// postgresUser returns the user as which PostgreSQL runs, or nil for the current user.
// PostgreSQL refuses to run as root.
func postgresUser() (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		return nil, fmt.Errorf("postgresql does not run as root, and there is no user for it: %w", err)
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		return nil, err
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, err
}

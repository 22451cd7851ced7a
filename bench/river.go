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
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
	"github.com/riverqueue/river/rivertype"
)

// jobArgs is a job whose arguments are the payload.
type jobArgs struct{}

func (jobArgs) Kind() string { return "bench" }

// MarshalJSON is an object, as River wants one, of the payload's size.
func (jobArgs) MarshalJSON() ([]byte, error) {
	return append(append([]byte(`{"p":`), append(payload[:249:249], `"`...)...), `}`...), nil
}

// startRiver is River on a PostgreSQL of its own, with PostgreSQL's defaults,
// which sync every commit. Jobs are claimed and completed by the statements of
// River's own workers, through its driver, so that each worker takes one job
// at a time; River's client would fetch for all of them and complete in the
// background.
func startRiver(ctx context.Context, p place) (_ *contender, err error) {
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
		"-c", "listen_addresses=", "-c", "fsync=on", "-c", "synchronous_commit=on", "-c", "full_page_writes=on", "-c", "max_connections=100")
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
	driver := riverpgxv5.New(pool)
	migrator, err := rivermigrate.New(driver, nil)
	if err != nil {
		return nil, err
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return nil, err
	}
	client, err := river.NewClient(driver, &river.Config{})
	if err != nil {
		return nil, err
	}
	r := &riverQueue{client, driver.GetExecutor()}
	return &contender{
		version: fmt.Sprintf("river %s, postgresql %s", module("github.com/riverqueue/river"), version),
		steps: map[operation]step{
			enqueue:     r.enqueue,
			cycle:       r.cycle(1),
			enqueueMany: r.enqueueMany,
			cycleMany:   r.cycle(many),
		},
		close: func() error {
			pool.Close()
			return d.stop(syscall.SIGINT)
		},
	}, nil
}

// postgresUser is who PostgreSQL is to run as, nil for who this is: it refuses
// to run as root.
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

type riverQueue struct {
	client *river.Client[pgx.Tx]
	exec   riverdriver.Executor
}

func (r *riverQueue) enqueue(ctx context.Context, _ int) (int, error) {
	_, err := r.client.Insert(ctx, jobArgs{}, nil)
	return 1, err
}

func (r *riverQueue) enqueueMany(ctx context.Context, _ int) (int, error) {
	jobs := make([]river.InsertManyParams, many)
	for i := range jobs {
		jobs[i].Args = jobArgs{}
	}
	n, err := r.client.InsertManyFast(ctx, jobs)
	return n, err
}

func (r *riverQueue) cycle(count int) step {
	return func(ctx context.Context, worker int) (int, error) {
		got, err := r.exec.JobGetAvailable(ctx, &riverdriver.JobGetAvailableParams{
			ClientID: strconv.Itoa(worker), MaxAttemptedBy: 100, MaxToLock: count, Queue: river.QueueDefault,
		})
		if err != nil {
			return 0, err
		}
		n := len(got.Jobs)
		if n == 0 {
			return 0, errDry
		}
		done := &riverdriver.JobSetStateIfRunningManyParams{
			Attempt: make([]*int, n), ErrData: make([][]byte, n), MetadataDoMerge: make([]bool, n),
			MetadataUpdates: make([][]byte, n), ScheduledAt: make([]*time.Time, n),
		}
		now := time.Now()
		for _, j := range got.Jobs {
			done.ID = append(done.ID, j.ID)
			done.State = append(done.State, rivertype.JobStateCompleted)
			done.FinalizedAt = append(done.FinalizedAt, &now)
		}
		rows, err := r.exec.JobSetStateIfRunningMany(ctx, done)
		if err == nil && len(rows) != n {
			err = fmt.Errorf("%d of %d jobs were completed", len(rows), n)
		}
		return n, err
	}
}

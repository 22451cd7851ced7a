package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
	"github.com/riverqueue/river/rivertype"
)

// jobArgs is a job whose arguments are the payload.
type jobArgs struct{}

func (jobArgs) Kind() string { return "bench" }

// MarshalJSON returns an object of the payload's size. River accepts only objects.
func (jobArgs) MarshalJSON() ([]byte, error) {
	return append(append([]byte(`{"p":`), append(payload[:249:249], `"`...)...), `}`...), nil
}

// startRiver starts River on its own PostgreSQL with PostgreSQL's defaults, which sync
// every commit.
func startRiver(ctx context.Context, p place) (_ *contender, err error) {
	db, err := startPostgres(ctx, p)
	if err != nil {
		return nil, err
	}
	c, err := riverOn(ctx, db)
	if err != nil {
		return nil, errors.Join(err, db.close())
	}
	c.close = db.close
	return c, nil
}

// riverOn is River on a database that is up. Jobs are claimed and completed by the
// statements of River's own workers, through its driver, so that each worker takes one
// job at a time; River's client would fetch for all of them and complete in the
// background.
func riverOn(ctx context.Context, db *sqlServer) (*contender, error) {
	driver := riverpgxv5.New(db.pool)
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
		version: fmt.Sprintf("river %s, postgresql %s", module("github.com/riverqueue/river"), db.version),
		steps: map[operation]step{
			enqueue:     r.enqueue,
			cycle:       r.cycle(1),
			enqueueMany: r.enqueueMany,
			cycleMany:   r.cycle(many),
		},
	}, nil
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

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// plainPoll is the time between two attempts to take a lease in a table. A shorter time
// hands it over sooner, and costs all workers more.
const plainPoll = 5 * time.Millisecond

// A lease as people often write it by hand: a row that another worker takes over once it
// has expired.
const (
	plainTables = `CREATE TABLE plain_lease (key text PRIMARY KEY, holder int NOT NULL, token bigint NOT NULL, expires timestamptz NOT NULL);
CREATE SEQUENCE plain_token;
CREATE TABLE plain_task (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, payload jsonb NOT NULL, state text NOT NULL DEFAULT 'ready',
    claimed_by int, claimed_until timestamptz, result jsonb);
CREATE INDEX plain_ready ON plain_task (id) WHERE state = 'ready'`

	plainAcquire = `INSERT INTO plain_lease AS l VALUES ($1, $2, nextval('plain_token'), now() + interval '60 s')
ON CONFLICT (key) DO UPDATE SET holder = excluded.holder, token = excluded.token, expires = excluded.expires
WHERE l.expires < now() OR l.holder = excluded.holder RETURNING token`
	plainRelease = `DELETE FROM plain_lease WHERE key = $1 AND token = $2`

	plainEnqueue     = `INSERT INTO plain_task (payload) VALUES ($1)`
	plainEnqueueMany = `INSERT INTO plain_task (payload) SELECT $1::jsonb FROM generate_series(1, $2::int)`
	plainClaim       = `UPDATE plain_task SET state = 'running', claimed_by = $1, claimed_until = now() + interval '60 s'
WHERE id IN (SELECT id FROM plain_task WHERE state = 'ready' ORDER BY id LIMIT $2 FOR UPDATE SKIP LOCKED) RETURNING id, payload`
	plainSubmit = `UPDATE plain_task SET state = 'completed', result = '{}' WHERE id = ANY($1) AND claimed_by = $2 AND state = 'running'`
)

// plainOn starts what people write by hand on a database: a polled lease with INSERT … ON
// CONFLICT, and a queue with SKIP LOCKED.
func plainOn(ctx context.Context, db *sqlServer) (*contender, error) {
	if _, err := db.pool.Exec(ctx, plainTables, pgx.QueryExecModeSimpleProtocol); err != nil {
		return nil, err
	}
	take := func(ctx context.Context, worker int, key string) (int, error) {
		var token int64
		for {
			err := db.pool.QueryRow(ctx, plainAcquire, key, worker).Scan(&token)
			if err == nil {
				break
			}
			if !errors.Is(err, pgx.ErrNoRows) {
				return 0, err
			}
			time.Sleep(plainPoll)
		}
		_, err := db.pool.Exec(ctx, plainRelease, key, token)
		return 1, err
	}
	claim := func(count int) step {
		return func(ctx context.Context, worker int) (int, error) {
			rows, _ := db.pool.Query(ctx, plainClaim, worker, count) // CollectRows returns its error
			ids, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (id int64, err error) {
				var text []byte
				return id, row.Scan(&id, &text)
			})
			if err != nil {
				return 0, err
			}
			if len(ids) == 0 {
				return 0, errDry
			}
			tag, err := db.pool.Exec(ctx, plainSubmit, ids, worker)
			if err == nil && int(tag.RowsAffected()) != len(ids) {
				err = fmt.Errorf("%d of %d were completed", tag.RowsAffected(), len(ids))
			}
			return len(ids), err
		}
	}
	return &contender{
		version: fmt.Sprintf("INSERT … ON CONFLICT, polled every %v, and SKIP LOCKED, postgresql %s", plainPoll, db.version),
		steps: map[operation]step{
			takeOwn:   func(ctx context.Context, w int) (int, error) { return take(ctx, w, fmt.Sprint("own", w)) },
			takeTurns: func(ctx context.Context, w int) (int, error) { return take(ctx, w, "baton") },
			enqueue: func(ctx context.Context, _ int) (int, error) {
				_, err := db.pool.Exec(ctx, plainEnqueue, payload)
				return 1, err
			},
			enqueueMany: func(ctx context.Context, _ int) (int, error) {
				_, err := db.pool.Exec(ctx, plainEnqueueMany, payload, many)
				return many, err
			},
			cycle:     claim(1),
			cycleMany: claim(many),
		},
		close: func() error { return nil },
	}, nil
}

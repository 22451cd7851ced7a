package postgres

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/leasehold/leasehold/engine/cluster"
)

// Look returns the servers and partitions of a cluster.
func (c *Cluster) Look(ctx context.Context) (look cluster.Look, err error) {
	err = within(ctx, c.patience, func(ctx context.Context) error {
		look, err = lookAt(ctx, c.pool)
		return err
	})
	return look, err
}

func lookAt(ctx context.Context, q querier) (look cluster.Look, err error) {
	if look.Servers, err = collect(ctx, q, serversSQL, scanServer); err != nil {
		return look, err
	}
	look.Partitions, err = collect(ctx, q, partitionsSQL, scanPartition)
	return look, err
}

// A Log says how much of a partition has been committed.
type Log struct {
	Partition int64
	Commits   int64 // ever
	Bytes     int64 // of those not yet folded
}

// Logs returns the logs of all partitions that have one.
func (c *Cluster) Logs(ctx context.Context) (logs []Log, err error) {
	err = within(ctx, c.patience, func(ctx context.Context) error {
		logs, err = collect(ctx, c.pool, `SELECT partition, max(sequence), coalesce(sum(length(batch)), 0)::bigint
FROM leasehold_log GROUP BY partition ORDER BY partition`, func(row pgx.CollectableRow) (l Log, err error) {
			return l, row.Scan(&l.Partition, &l.Commits, &l.Bytes)
		})
		return err
	})
	return logs, err
}

// A Report is information about a database for an operator.
type Report struct {
	Version   string // of the server, as it says it
	Number    int    // the same, as 150004
	Timeline  int64
	Schema    int           // 0: there is none yet
	Known     int           // the version that this program creates
	Settings  []Setting     // those that matter
	Standbys  []Standby     // empty for a user without pg_monitor
	RoundTrip time.Duration // the median of several
	Commit    time.Duration // the median of a commit that is written; 0: unknown
	Hangs     bool          // a commit did not end within [CommitLimit]
	Tables    []Table       // of the schema
	Look      cluster.Look  // empty without a schema
	Elsewhere error         // where the tables are, if there is no schema only because they are not on the search_path
	Durable   error         // why acknowledged commits can be lost; nil: they cannot
}

// A Setting is a setting of the database for sessions of this user.
type Setting struct{ Name, Value string }

// A Standby is a standby that streams from the database.
type Standby struct {
	Name, State, Sync string
	Lag               time.Duration // of what it has written to disk
}

// A Table is a table of the schema.
type Table struct {
	Name       string
	Bytes      int64 // with its indexes
	Live, Dead int64 // rows, according to the statistics
}

const (
	inspected = 11          // round trips at most
	enough    = time.Second // for them, if they are slow

	settingsToShow = `SELECT name, setting FROM pg_settings WHERE name IN
('fsync', 'full_page_writes', 'synchronous_commit', 'synchronous_standby_names', 'max_connections', 'autovacuum', 'wal_level', 'idle_in_transaction_session_timeout', 'idle_session_timeout', 'statement_timeout', 'transaction_timeout')
ORDER BY name`
	standbysToShow = `SELECT application_name, coalesce(state, ''), coalesce(sync_state, ''), coalesce(extract(epoch FROM flush_lag), 0)::float8
FROM pg_stat_replication ORDER BY application_name`
	tablesToShow = `SELECT relname, pg_total_relation_size(relid), n_live_tup, n_dead_tup
FROM pg_stat_user_tables WHERE relname LIKE 'leasehold\_%' AND pg_table_is_visible(relid) ORDER BY relname`
)

// CommitLimit is how long Inspect waits for its commits.
const CommitLimit = 5 * time.Second

// Inspect examines a database and changes nothing in it. Durable in the report
// is the error for which Open would refuse it.
func Inspect(ctx context.Context, o Options) (r Report, err error) {
	o = o.withDefaults()
	cfg, err := o.config()
	if err != nil {
		return r, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, o.Patience, errSilent)
	defer func() {
		if err != nil && context.Cause(ctx) == errSilent {
			err = silentFor(o.Patience, err)
		}
		cancel()
	}()
	cfg.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec // nothing is asked twice
	conn, err := dial(ctx, cfg)
	if err != nil {
		return r, err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	if err = conn.QueryRow(ctx, "SELECT version(), current_setting('server_version_num')::int").Scan(&r.Version, &r.Number); err != nil {
		return r, err
	}
	if r.Timeline, err = timelineOf(ctx, conn); err != nil {
		return r, err
	}
	r.Durable = checkDurable(ctx, conn, o.SingleNode)
	if r.Settings, err = collect(ctx, conn, settingsToShow, func(row pgx.CollectableRow) (s Setting, err error) {
		return s, row.Scan(&s.Name, &s.Value)
	}); err != nil {
		return r, err
	}
	if r.Standbys, err = collect(ctx, conn, standbysToShow, func(row pgx.CollectableRow) (s Standby, err error) {
		var lag float64
		err = row.Scan(&s.Name, &s.State, &s.Sync, &lag)
		s.Lag = time.Duration(lag * float64(time.Second))
		return s, err
	}); err != nil {
		return r, err
	}
	if r.Tables, err = collect(ctx, conn, tablesToShow, func(row pgx.CollectableRow) (t Table, err error) {
		return t, row.Scan(&t.Name, &t.Bytes, &t.Live, &t.Dead)
	}); err != nil {
		return r, err
	}
	if r.RoundTrip, err = median(ctx, conn, "SELECT 1"); err != nil {
		return r, err
	}
	if err := r.inspectSchema(ctx, conn); err != nil {
		return r, err
	}
	// The message is not read by anybody, but it is committed like any write. This
	// comes last: a commit that hangs costs the connection.
	limited, cancel := context.WithTimeout(ctx, CommitLimit)
	defer cancel()
	if r.Commit, err = median(limited, conn, "SELECT pg_logical_emit_message(true, 'leasehold', 'doctor')"); err != nil {
		r.Commit = 0 // not every database has the function, and not every user may call it
		r.Hangs = limited.Err() != nil && ctx.Err() == nil
	}
	return r, nil
}

func (r *Report) inspectSchema(ctx context.Context, conn *pgx.Conn) (err error) {
	if r.Known, err = lastMigration(); err != nil {
		return err
	}
	r.Schema, err = schemaVersion(ctx, conn)
	if undefinedTable(err) {
		if r.Elsewhere = elsewhere(ctx, conn); errors.Is(r.Elsewhere, ErrElsewhere) {
			return nil
		}
		return r.Elsewhere
	}
	if err != nil || r.Schema != r.Known {
		return err
	}
	r.Look, err = lookAt(ctx, conn)
	return err
}

func collect[T any](ctx context.Context, q querier, sql string, scan pgx.RowToFunc[T]) ([]T, error) {
	rows, _ := q.Query(ctx, sql) // CollectRows has its error
	return pgx.CollectRows(rows, scan)
}

// median returns the median time that a statement takes.
func median(ctx context.Context, conn *pgx.Conn, sql string) (time.Duration, error) {
	var took []time.Duration
	for begun := time.Now(); len(took) == 0 || len(took) < inspected && time.Since(begun) < enough; {
		began := time.Now()
		if _, err := conn.Exec(ctx, sql); err != nil {
			return 0, err
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	return took[len(took)/2], nil
}

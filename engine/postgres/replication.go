package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/leasehold/leasehold/engine/clock"
	"github.com/leasehold/leasehold/engine/memory"
)

var (
	// ErrNotReplicated says that the loss of one machine could lose
	// acknowledged commits.
	ErrNotReplicated = errors.New("the database does not replicate synchronously")

	// ErrNotDurable says that a crash of the database could lose acknowledged
	// commits.
	ErrNotDurable = errors.New("the database acknowledges commits that it can lose")

	// ErrLost says that the database has lost acknowledged commits, for example
	// because an asynchronous standby was promoted. The memory of this process
	// is ahead of the database.
	ErrLost = errors.New("the database has lost commits that it had acknowledged")
)

// lostCommits is the timeline of a partition from when a leader has found that commits are
// lost until one has noted that in the state (see [memory.NoteCopy]). timelineSQL sets it.
const (
	lostCommits = -1
	timelineSQL = "UPDATE leasehold_partition SET timeline = $3 WHERE partition = $1 AND epoch = $2"
)

const settingsSQL = `SELECT current_setting('synchronous_commit'),
coalesce(current_setting('synchronous_standby_names', true), ''), coalesce(current_setting('fsync', true), 'on')`

// checkDurable refuses a database, or settings of this user in it, that can
// lose acknowledged commits. It is called for each connection, because the
// settings may have changed.
func checkDurable(ctx context.Context, conn *pgx.Conn, singleNode bool) error {
	var commit, standbys, fsync string
	if err := conn.QueryRow(ctx, settingsSQL).Scan(&commit, &standbys, &fsync); err != nil {
		return err
	}
	switch {
	case fsync == "off":
		return fmt.Errorf("%w: fsync is off", ErrNotDurable)
	case commit == "off":
		return fmt.Errorf("%w: synchronous_commit is off", ErrNotDurable)
	case singleNode:
		return nil
	case standbys == "":
		return fmt.Errorf("%w: synchronous_standby_names is empty", ErrNotReplicated)
	case commit != "on" && commit != "remote_apply":
		return fmt.Errorf("%w: synchronous_commit is %s", ErrNotReplicated, commit)
	}
	return nil
}

// errUnwaited says that somebody has canceled a statement whose commit waited for
// a standby. PostgreSQL then acknowledges the commit, with a warning, although
// perhaps no other machine has it.
var errUnwaited = errors.New("its wait for a synchronous standby was canceled")

// unwaited is in the data of a connection after such a warning.
const unwaited = "unwaited"

// noticed notes such a warning. Its text depends on the language of the server.
func noticed(conn *pgconn.PgConn, n *pgconn.Notice) {
	if n.Routine == "SyncRepWaitForLSN" {
		conn.CustomData()[unwaited] = true
	}
}

// replicated returns errUnwaited if that happened to any commit of a connection.
func replicated(conn *pgx.Conn) error {
	if conn.PgConn().CustomData()[unwaited] != nil {
		return errUnwaited
	}
	return nil
}

// When a standby is promoted or a backup restored, the database may go back in
// time, and with it the epochs of its partitions and the marks of their tokens.
// A leader notices it by the timeline, or because it has seen a later epoch.
// The epoch then leaps above all that can have been used since: by leap at
// once, when the database has another timeline, and by one for each second since
// the last commit that it has. A partition is opened less often than that for any
// length of time, and issues less than 1<<counterBits tokens a second. What
// is older than longAge counts less, because there are no more than lastEpoch
// epochs.
const (
	leap     = 1024
	longAge  = 90 * 24 * time.Hour
	olderFor = 64 // how many seconds beyond longAge count as one
)

// leapOf returns by how many epochs to leap for a database whose last commit is
// that old.
func leapOf(age time.Duration) int64 {
	known := min(max(age, 0), longAge)
	return int64(known/time.Second) + int64(max(age-known, 0)/time.Second/olderFor) + 1
}

// leap makes the epoch greater than all that can have been used since the last
// commit, and than all until one that was seen.
func (s *store) leap(ctx context.Context, c clock.Clock, seen int64) error {
	last, err := memory.LastCommit(s)
	if err != nil {
		return err
	}
	jump := int64(leap)
	if !last.IsZero() {
		jump += leapOf(c.Wall().Sub(last))
	}
	return s.lift(ctx, max(s.epoch, seen)+jump-s.epoch, jump)
}

// lift raises the epoch by a number, and to so much more than the epoch of the
// greatest token that can have been issued. A state that was copied from a
// directory may have tokens of far later epochs than that of its partition. So may
// a partition that was led for very long: see [counterBits].
func (s *store) lift(ctx context.Context, by, above int64) error {
	issued, err := memory.Marked(s)
	if err != nil {
		return err
	}
	epoch := max(s.epoch+by, int64(issued>>counterBits)+above)
	if epoch == s.epoch {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.patience)
	defer cancel()
	tag, err := s.conn.Exec(ctx, "UPDATE leasehold_partition SET epoch = $3 WHERE partition = $1 AND epoch = $2", s.partition, s.epoch, epoch)
	if err == nil && tag.RowsAffected() == 0 {
		err = ErrSuperseded
	}
	if err == nil {
		s.epoch = epoch
	}
	return err
}

// leadSQL takes the lead. A leader in a cluster is registered for all of its
// lead. If the row has changed since the statement began, so has the epoch.
const leadSQL = `UPDATE leasehold_partition
SET epoch = epoch + CASE WHEN epoch >= $6 AND (epoch = 0 OR timeline = $2) THEN 1 ELSE $3::bigint END, timeline = $7, leader = $4
WHERE partition = $1 AND ($4::uuid IS NULL OR epoch = $5 AND NOT EXISTS (SELECT 1 FROM leasehold_server WHERE id = leader))
RETURNING epoch`

// timelineOf returns the timeline of a database, or 0 if it has none.
func timelineOf(ctx context.Context, conn *pgx.Conn) (timeline int64, err error) {
	var file string
	err = conn.QueryRow(ctx, "SELECT pg_walfile_name(pg_current_wal_lsn())").Scan(&file)
	if undefinedFunction(err) {
		return 0, nil
	}
	if err == nil {
		_, err = fmt.Sscanf(file, "%08x", &timeline)
	}
	return timeline, err
}

// A mark names the database, the table and the transaction that wrote it. So it is not true of a
// row that pg_restore, logical replication or the like has written, nor in a database that was
// made from another. It stays true when PostgreSQL copies its files: a standby, pg_upgrade.
// In two new servers, the first databases have the same number, and transactions soon do. But
// pg_restore makes the tables in another order than the migrations.
const (
	markOf   = "(SELECT oid::text FROM pg_database WHERE datname = current_database())||' '||'leasehold_mark'::regclass::oid::text||' '||"
	markedAs = "SELECT mark = " + markOf + "xmin::text FROM leasehold_mark WHERE partition = $1"
	markSQL  = "INSERT INTO leasehold_mark (partition, mark) VALUES ($1, " + markOf + "pg_current_xact_id()::xid::text) ON CONFLICT (partition) DO UPDATE SET mark = excluded.mark"
)

// marked reports whether a partition has a mark, and whether it is true. A database that does
// not know what a mark is made of needs none.
func (s *store) marked(ctx context.Context) (there, is bool, err error) {
	err = s.conn.QueryRow(ctx, markedAs, s.partition).Scan(&is)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return false, false, nil
	case undefinedFunction(err), hasCode(err, "42703"), hasCode(err, "0A000"): // an undefined column, or one that is not supported
		return true, true, nil
	}
	return true, is, err
}

// counterBits is the number of bits of a token below the epoch. An epoch that
// issues more tokens continues with those of the next epoch, which then begins
// after them.
const counterBits = 28

// lastEpoch keeps tokens below 2^53.
const lastEpoch = 1<<25 - 2

// Floor returns the number above which this opening issues tokens: (epoch, 0).
// All earlier tokens are below it, even if the database has lost them.
func (e *Engine) Floor() uint64 {
	return uint64(min(e.store.epoch, lastEpoch)) << counterBits
}

package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/memory"
	"github.com/leasehold/leasehold/engine/postgres"
	"github.com/leasehold/leasehold/engine/postgres/postgrestest"
)

func mustOpen(t *testing.T, o postgres.Options) *postgres.Engine {
	t.Helper()
	o.SingleNode = true
	if o.Logf == nil {
		o.Logf = t.Logf
	}
	if o.Partition == 0 {
		o.Partition = partitions.Add(1)
	}
	e, err := postgres.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	return e
}

func put(t *testing.T, e *postgres.Engine, keys ...string) {
	t.Helper()
	if err := tryPut(t.Context(), e, keys...); err != nil {
		t.Fatal(err)
	}
}

func tryPut(ctx context.Context, e *postgres.Engine, keys ...string) error {
	return e.Update(ctx, func(tx engine.Tx) error {
		for _, key := range keys {
			tx.Put(engine.Row{Key: key, Value: key})
		}
		return nil
	})
}

// keys gives those of the rows of both kinds.
func keys(t *testing.T, e *postgres.Engine) string {
	t.Helper()
	var all []string
	err := e.View(t.Context(), func(tx engine.Tx) error {
		for _, prefix := range []string{"", engine.Cold} {
			for row := range tx.Scan(prefix) {
				all = append(all, row.Key)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(all, " ")
}

func query[T any](t *testing.T, dsn, sql string, args ...any) (value T) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if err := conn.QueryRow(t.Context(), sql, args...).Scan(&value); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return value
}

// TestNothingIsAnsweredOnceTheLeadIsLost has another server take the lead, which an
// engine learns from Confirm only. It must answer nothing from memory then.
func TestNothingIsAnsweredOnceTheLeadIsLost(t *testing.T) {
	t.Parallel()
	dsn, over := postgrestest.Database(t), errors.New("the term is over")
	nothing := func(engine.Tx) error { return nil }
	for what, ask := range map[string]func(context.Context, *postgres.Engine) error{
		"update": func(ctx context.Context, e *postgres.Engine) error { return tryPut(ctx, e, "b") },
		"refusal": func(ctx context.Context, e *postgres.Engine) error {
			return e.Update(ctx, func(engine.Tx) error { return os.ErrExist })
		},
		"view":     func(ctx context.Context, e *postgres.Engine) error { return e.View(ctx, nothing) },
		"snapshot": func(ctx context.Context, e *postgres.Engine) error { return e.Snapshot(ctx, nothing) },
		"get":      func(ctx context.Context, e *postgres.Engine) error { _, _, err := e.Get(ctx, "a"); return err },
		"cold get": func(ctx context.Context, e *postgres.Engine) error { _, _, err := e.Get(ctx, "~a"); return err },
		"peek": func(ctx context.Context, e *postgres.Engine) error {
			_, _, err := e.Get(engine.Peek(ctx), "~a")
			return err
		},
	} {
		var lost error
		e := mustOpen(t, postgres.Options{DSN: dsn, Confirm: func() error { return lost }})
		put(t, e, "a", "~a")
		if err := ask(t.Context(), e); err != nil && !errors.Is(err, os.ErrExist) {
			t.Errorf("%s: %v", what, err)
		}
		lost = over
		if err := ask(t.Context(), e); !errors.Is(err, over) || !errors.Is(err, postgres.ErrSuperseded) || !errors.Is(err, engine.ErrFailed) {
			t.Errorf("%s, once the lead is lost: %v", what, err)
		}
	}
}

// TestWhoeverOpensAPartitionLeadsIt has a second process take over: the first can
// commit nothing more, and its engine says why.
func TestWhoeverOpensAPartitionLeadsIt(t *testing.T) {
	t.Parallel()
	dsn := postgrestest.Database(t)
	first := mustOpen(t, postgres.Options{DSN: dsn, Partition: 1})
	put(t, first, "a", "~a")
	second := mustOpen(t, postgres.Options{DSN: dsn, Partition: 1})
	if first.Epoch() != 1 || second.Epoch() != 2 {
		t.Errorf("epochs %d and %d", first.Epoch(), second.Epoch())
	}
	if err := tryPut(t.Context(), first, "b"); !errors.Is(err, postgres.ErrSuperseded) || !errors.Is(err, engine.ErrFailed) {
		t.Errorf("the first commits: %v", err)
	}
	put(t, second, "c")
	if err := tryPut(t.Context(), first, "d"); !errors.Is(err, engine.ErrFailed) {
		t.Errorf("the first commits again: %v", err)
	}
	if got := keys(t, second); got != "a c ~a" {
		t.Errorf("the second has %q", got)
	}
	other := mustOpen(t, postgres.Options{DSN: dsn, Partition: 2})
	if got := keys(t, other); got != "" {
		t.Errorf("another partition has %q", got)
	}
}

// TestADatabaseThatComesBackHasLostNothing kills the server again and again, and cuts
// its connections, while many commit. What was answered is there, and each commit had
// its effect once.
func TestADatabaseThatComesBackHasLostNothing(t *testing.T) {
	t.Parallel()
	server := postgrestest.Start(t)
	for name, harm := range map[string]func(){
		"killed": func() { server.Kill(); server.Restart(t) },
		"cut": func() {
			postgrestest.Exec(t, server.DSN(), "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'")
		},
	} {
		t.Run(name, func(t *testing.T) {
			partition := partitions.Add(1)
			// The patience is no part of the test: it is only to be long enough.
			e := mustOpen(t, postgres.Options{DSN: server.DSN(), Partition: partition, FoldSize: 10_000, Patience: 5 * time.Minute})
			var wg sync.WaitGroup
			ctx, stop := context.WithCancel(t.Context())
			counts := make([]int, 8)
			for n := range counts {
				wg.Go(func() {
					for ctx.Err() == nil {
						err := e.Update(t.Context(), func(tx engine.Tx) error {
							for _, key := range []string{fmt.Sprintf("count%d", n), fmt.Sprintf("~count%d", n)} {
								row, _ := tx.Get(key)
								was, _ := strconv.Atoi(row.Value)
								tx.Put(engine.Row{Key: key, Value: strconv.Itoa(was + 1)})
							}
							tx.Put(engine.Row{Key: fmt.Sprintf("~%d/%d", n, counts[n])})
							return nil
						})
						if err != nil {
							t.Error(err)
							return
						}
						counts[n]++
					}
				})
			}
			for range 4 {
				harm()
				put(t, e, "mark") // it goes on
			}
			stop()
			wg.Wait()
			check := func(e *postgres.Engine) {
				err := e.View(t.Context(), func(tx engine.Tx) error {
					for n, want := range counts {
						hot, _ := tx.Get(fmt.Sprintf("count%d", n))
						cold, _ := tx.Get(fmt.Sprintf("~count%d", n))
						rows := 0
						for range tx.Scan(fmt.Sprintf("~%d/", n)) {
							rows++
						}
						if w := strconv.Itoa(want); hot.Value != w || cold.Value != w || rows != want {
							t.Errorf("worker %d was answered %d times, and there are %s, %s and %d", n, want, hot.Value, cold.Value, rows)
						}
					}
					return nil
				})
				if err := errors.Join(err, e.Check()); err != nil {
					t.Error(err)
				}
			}
			check(e)
			check(mustOpen(t, postgres.Options{DSN: server.DSN(), Partition: partition}))
		})
	}
}

// TestADatabaseThatDoesNotComeBackEndsTheEngine waits no longer than it was told to.
func TestADatabaseThatDoesNotComeBackEndsTheEngine(t *testing.T) {
	t.Parallel()
	server := postgrestest.Start(t)
	e := mustOpen(t, postgres.Options{DSN: server.DSN()})
	put(t, e, "a")
	server.Kill()
	e.SetPatience(50 * time.Millisecond)
	var err error
	for err == nil { // a child of the server serves until it notices
		err = tryPut(t.Context(), e, "b")
	}
	if !errors.Is(err, engine.ErrFailed) || !strings.Contains(err.Error(), "did not come back within 50ms") {
		t.Errorf("commit: %v", err)
	}
	_, err = postgres.Open(t.Context(), postgres.Options{DSN: server.DSN(), SingleNode: true})
	if err == nil || errors.Is(err, engine.ErrCorrupt) {
		t.Errorf("open: %v", err)
	}
}

// TestFoldsHoldUpNoCommit keeps a fold waiting for a lock on the records.
func TestFoldsHoldUpNoCommit(t *testing.T) {
	t.Parallel()
	dsn := postgrestest.Database(t)
	e := mustOpen(t, postgres.Options{DSN: dsn, Partition: 1, FoldSize: 1})
	release := hold(t, dsn, "LOCK TABLE leasehold_record IN SHARE MODE")
	for i := range 20 {
		put(t, e, fmt.Sprintf("k%d", i%3), fmt.Sprintf("~k%d", i%3))
	}
	if got := keys(t, e); got != "k0 k1 k2 ~k0 ~k1 ~k2" {
		t.Errorf("meanwhile it has %q", got)
	}
	if n := query[int](t, dsn, "SELECT count(*) FROM leasehold_record"); n != 0 {
		t.Errorf("%d records, in spite of the lock", n)
	}
	release()
	for i := 0; query[int](t, dsn, "SELECT count(*) FROM leasehold_log") > 3; i++ {
		put(t, e, fmt.Sprintf("later%d", i%3)) // a fold comes with what is written after the one before
	}
	if err := e.Check(); err != nil {
		t.Error(err)
	}
}

// TestWhatComesAndGoesNeverReachesTheRecords lets rows live between two folds. One of
// them may be there at the instant at which a fold begins.
func TestWhatComesAndGoesNeverReachesTheRecords(t *testing.T) {
	t.Parallel()
	dsn := postgrestest.Database(t)
	e := mustOpen(t, postgres.Options{DSN: dsn, Partition: 1, FoldSize: 20_000})
	for i := 0; query[int](t, dsn, "SELECT count(*) FROM leasehold_record") == 0; i++ {
		key := fmt.Sprintf("lease%d", i)
		put(t, e, key)
		if err := e.Update(t.Context(), func(tx engine.Tx) error { tx.Delete(key); return nil }); err != nil {
			t.Fatal(err)
		}
		put(t, e, fmt.Sprintf("stays%d", i))
	}
	if n := query[int](t, dsn, "SELECT count(*) FROM leasehold_record WHERE position('lease' in encode(key, 'escape')) = 1"); n > 1 {
		t.Errorf("%d records of what had gone", n)
	}
}

// TestADamagedLogIsRefused and so is a schema that a newer program made.
func TestADamagedLogIsRefused(t *testing.T) {
	t.Parallel()
	dsn := postgrestest.Database(t)
	for name, c := range map[string]struct{ sql, says string }{
		"gap":     {"DELETE FROM leasehold_log WHERE partition = $1 AND sequence = 2", "goes from 1 to 3"},
		"garbage": {"UPDATE leasehold_log SET batch = '\\x02ff' WHERE partition = $1 AND sequence = 2", "entry 2"},
		"record":  {"INSERT INTO leasehold_record VALUES ($1, 1, 'k', 'nonsense')", `key "k"`},
	} {
		t.Run(name, func(t *testing.T) {
			o := postgres.Options{DSN: dsn, Partition: partitions.Add(1), SingleNode: true}
			e := mustOpen(t, o)
			for _, key := range []string{"a", "b", "c"} {
				put(t, e, key)
			}
			if err := e.Close(); err != nil {
				t.Fatal(err)
			}
			postgrestest.Exec(t, dsn, c.sql, o.Partition)
			if _, err := postgres.Open(t.Context(), o); !errors.Is(err, engine.ErrCorrupt) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("open: %v", err)
			}
		})
	}
	t.Run("newer schema", func(t *testing.T) {
		postgrestest.Exec(t, dsn, "UPDATE leasehold_schema SET version = 1000")
		_, err := postgres.Open(t.Context(), postgres.Options{DSN: dsn, SingleNode: true})
		if !errors.Is(err, engine.ErrNewer) {
			t.Errorf("open: %v", err)
		}
	})
}

// TestManyMigrateOnce opens partitions of a new database at once.
func TestManyMigrateOnce(t *testing.T) {
	t.Parallel()
	dsn := postgrestest.Database(t)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			e, err := postgres.Open(t.Context(), postgres.Options{DSN: dsn, Partition: int64(i), SingleNode: true, Logf: t.Logf})
			if err != nil {
				t.Error(err)
				return
			}
			if err := e.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

// TestADatabaseThatCanLoseCommitsIsRefused when it is opened, and after it was lost.
func TestADatabaseThatCanLoseCommitsIsRefused(t *testing.T) {
	t.Parallel()
	dsn := postgrestest.Database(t)
	name := query[string](t, dsn, "SELECT current_database()")
	_, err := postgres.Open(t.Context(), postgres.Options{DSN: dsn})
	if !errors.Is(err, postgres.ErrNotReplicated) {
		t.Errorf("open without a standby: %v", err)
	}
	e := mustOpen(t, postgres.Options{DSN: dsn})
	put(t, e, "before")
	postgrestest.Exec(t, dsn, "ALTER DATABASE "+name+" SET synchronous_commit = off")
	if _, err = postgres.Open(t.Context(), postgres.Options{DSN: dsn, SingleNode: true}); !errors.Is(err, postgres.ErrNotDurable) {
		t.Errorf("open where commits are not waited for: %v", err)
	}
	put(t, e, "a") // its connection has the setting from before
	cut(t, dsn)
	if err := tryPut(t.Context(), e, "b"); !errors.Is(err, postgres.ErrNotDurable) {
		t.Errorf("commit over a new connection: %v", err)
	}
}

func cut(t *testing.T, dsn string) {
	t.Helper()
	postgrestest.Exec(t, dsn, "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'")
}

// TestADatabaseThatWentBackIsNoticed by who led a partition in it, and by who opens
// it next.
func TestADatabaseThatWentBackIsNoticed(t *testing.T) {
	t.Parallel()
	dsn := postgrestest.Database(t)
	e := mustOpen(t, postgres.Options{DSN: dsn, Partition: 1})
	put(t, e, "a")
	put(t, e, "b")
	postgrestest.Exec(t, dsn, "DELETE FROM leasehold_log WHERE sequence = 2")
	cut(t, dsn)
	if err := tryPut(t.Context(), e, "c"); !errors.Is(err, postgres.ErrLost) {
		t.Errorf("commit: %v", err)
	}
	again := mustOpen(t, postgres.Options{DSN: dsn, Partition: 1})
	if got := keys(t, again); got != "a "+engine.CopyKey || // so that agents are told
		again.Epoch() < e.Epoch()+1000 || again.Floor() <= e.Floor() {
		t.Errorf("it has %q, epoch %d after %d", got, again.Epoch(), e.Epoch())
	}
}

// Whoever leads a partition may keep its connection while an earlier copy is restored, as
// pg_restore --single-transaction does. Its next commit would follow a gap in the log, which
// nobody could open then.
func TestACommitFollowsNoGapInTheLog(t *testing.T) {
	t.Parallel()
	dsn := postgrestest.Database(t)
	e := mustOpen(t, postgres.Options{DSN: dsn, Partition: 1})
	put(t, e, "a")
	put(t, e, "b")
	postgrestest.Exec(t, dsn, "DELETE FROM leasehold_log WHERE sequence = (SELECT max(sequence) FROM leasehold_log)")
	if err := tryPut(t.Context(), e, "c"); !errors.Is(err, postgres.ErrLost) {
		t.Errorf("commit: %v", err)
	}
	if got := keys(t, mustOpen(t, postgres.Options{DSN: dsn, Partition: 1})); got != "a "+engine.CopyKey {
		t.Errorf("it has %q", got)
	}
}

// A fold that could not be written is tried again, perhaps after an earlier copy was
// restored. The copy gets nothing of it: its log is older, and would be read on top.
func TestACopyGetsNothingOfALaterFold(t *testing.T) {
	t.Parallel()
	dsn := postgrestest.Database(t)
	e := mustOpen(t, postgres.Options{DSN: dsn, Partition: 1, FoldSize: 1})
	put(t, e, "a")
	for query[int](t, dsn, "SELECT count(*) FROM leasehold_record WHERE position('a' in encode(key, 'escape')) = 1") == 0 {
		time.Sleep(10 * time.Millisecond) // the fold of this one comes before the copy
	}
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if _, err := conn.Exec(t.Context(), `BEGIN ISOLATION LEVEL REPEATABLE READ;
CREATE TABLE log_copy AS TABLE leasehold_log; CREATE TABLE record_copy AS TABLE leasehold_record;
COMMIT;
CREATE SEQUENCE attempts;
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN
	PERFORM nextval('attempts');
	RAISE EXCEPTION 'no space left' USING ERRCODE = 'disk_full';
END$$;
CREATE TRIGGER refuse BEFORE INSERT ON leasehold_record FOR EACH STATEMENT EXECUTE FUNCTION refuse()`); err != nil {
		t.Fatal(err)
	}
	for !query[bool](t, dsn, "SELECT is_called FROM attempts") {
		put(t, e, "b")
	}
	if _, err := conn.Exec(t.Context(), `BEGIN; LOCK TABLE leasehold_partition; DROP TRIGGER refuse ON leasehold_record;
TRUNCATE leasehold_log, leasehold_record; INSERT INTO leasehold_log TABLE log_copy; INSERT INTO leasehold_record TABLE record_copy; COMMIT`); err != nil {
		t.Fatal(err)
	}
	for e.Err() == nil && query[int](t, dsn, "SELECT count(*) FROM leasehold_record WHERE position('b' in encode(key, 'escape')) = 1") == 0 {
		time.Sleep(10 * time.Millisecond)
	}
	if err := e.Err(); !errors.Is(err, postgres.ErrLost) {
		t.Errorf("the fold: %v", err)
	}
	if got := keys(t, mustOpen(t, postgres.Options{DSN: dsn, Partition: 1})); got != "a "+engine.CopyKey {
		t.Errorf("it has %q", got)
	}
}

// That commits are lost is known until a leader has noted it in the state, also if the first
// leader that knows of it ends before that.
func TestALeaderThatFailsForgetsNoLoss(t *testing.T) {
	t.Parallel()
	dsn := postgrestest.Database(t)
	e := mustOpen(t, postgres.Options{DSN: dsn, Partition: 1})
	put(t, e, "a")
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	postgrestest.Exec(t, dsn, `UPDATE leasehold_partition SET timeline = -1;
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RAISE EXCEPTION 'refused'; END$$;
CREATE TRIGGER refuse BEFORE INSERT ON leasehold_log FOR EACH ROW EXECUTE FUNCTION refuse()`)
	if _, err := postgres.Open(t.Context(), postgres.Options{DSN: dsn, Partition: 1}); err == nil {
		t.Fatal("it leads")
	}
	postgrestest.Exec(t, dsn, "DROP TRIGGER refuse ON leasehold_log")
	for _, want := range []bool{true, false} { // it is noted once
		e := mustOpen(t, postgres.Options{DSN: dsn, Partition: 1})
		err := e.Update(t.Context(), func(tx engine.Tx) error {
			if _, ok := tx.Get(engine.CopyKey); ok != want {
				t.Errorf("it is noted: %t", ok)
			}
			tx.Delete(engine.CopyKey)
			return nil
		})
		if err := errors.Join(err, e.Close()); err != nil {
			t.Fatal(err)
		}
	}
}

// Where somebody publishes all tables for logical replication, the database refuses to
// change rows of a table without a primary key.
func TestTablesCanBePublished(t *testing.T) {
	t.Parallel()
	dsn := postgrestest.Database(t)
	postgrestest.Exec(t, dsn, "CREATE PUBLICATION everything FOR ALL TABLES")
	c, err := postgres.OpenCluster(t.Context(), postgres.Options{DSN: dsn, SingleNode: true, Logf: t.Logf}, 0)
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	if got := query[string](t, dsn, `SELECT coalesce(string_agg(relname, ' '), '') FROM pg_class AS c
WHERE relname LIKE 'leasehold%' AND relkind = 'r' AND NOT EXISTS (SELECT 1 FROM pg_index WHERE indrelid = c.oid AND indisprimary)`); got != "" {
		t.Errorf("no primary key: %s", got)
	}
}

// A database allows few connections, and may have many partitions.
func TestAllPartitionsAreReadOverFewConnections(t *testing.T) {
	t.Parallel()
	const partitions = 64
	dsn := postgrestest.Database(t)
	o := postgres.Options{DSN: dsn, SingleNode: true, Logf: t.Logf}
	c, err := postgres.OpenCluster(t.Context(), o, partitions)
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	one, other := mustOpen(t, o), mustOpen(t, postgres.Options{DSN: dsn, SingleNode: true, Partition: partitions - 1, Logf: t.Logf})
	put(t, one, "a")
	put(t, other, "b")
	one.Close()
	other.Close()
	all, err := postgres.OpenAll(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	rows, err := all.Iterate(memory.Hot, "", "")
	if err != nil {
		t.Fatal(err)
	}
	var keys []string
	for rows.Next() {
		keys = append(keys, string(rows.Key()))
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil || !slices.Contains(keys, "a") || !slices.Contains(keys, "b") {
		t.Errorf("rows: %q %v", keys, err)
	}
	if n := query[int](t, dsn, "SELECT count(*)::int FROM pg_stat_activity WHERE datname = current_database()"); n > 20 {
		t.Errorf("%d partitions have %d connections", partitions, n)
	}
	if err := all.Close(); err != nil {
		t.Error(err)
	}
}

// A database that a later version has migrated, or one before the first release, is refused
// at once, and stays as it is.
func TestAnotherSchemaIsRefused(t *testing.T) {
	t.Parallel()
	dsn := postgrestest.Database(t)
	o := postgres.Options{DSN: dsn, SingleNode: true, Logf: t.Errorf}
	open := func() error {
		c, err := postgres.OpenCluster(t.Context(), o, 0)
		if err == nil {
			c.Close()
		}
		return err
	}
	if err := open(); err != nil {
		t.Fatal(err)
	}
	postgrestest.Exec(t, dsn, "UPDATE leasehold_schema SET version = version + 1")
	err := open()
	if !errors.Is(err, engine.ErrNewer) || strings.Contains(err.Error(), "come back") {
		t.Errorf("error: %v", err)
	}
	if got := postgres.Reason(err); got != engine.ErrNewer.Error() {
		t.Errorf("the reason is %q", got)
	}
	postgrestest.Exec(t, dsn, "UPDATE leasehold_schema SET version = 5")
	if err := open(); err == nil || !strings.Contains(err.Error(), "never released") {
		t.Errorf("error of an earlier schema: %v", err)
	}
	postgrestest.Exec(t, dsn, "DELETE FROM leasehold_schema")
	if err := open(); !errors.Is(err, engine.ErrCorrupt) {
		t.Errorf("error of a damaged schema: %v", err)
	}
}

// After an upgrade, a database is restored from a copy that the earlier version made. Its
// tokens leap before a server has migrated its schema.
func TestACopyWithAnEarlierSchemaLeaps(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("migrations/*.sql")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d migrations: %v", len(files), err)
	}
	if len(files) == 1 {
		t.Skip("no version has had an earlier schema")
	}
	dsn := postgrestest.Database(t)
	postgrestest.Exec(t, dsn, "CREATE TABLE leasehold_schema (version int NOT NULL)")
	postgrestest.Exec(t, dsn, "INSERT INTO leasehold_schema VALUES ($1)", 6+len(files)-2)
	for _, file := range files[:len(files)-1] {
		step, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		postgrestest.Exec(t, dsn, string(step))
	}
	postgrestest.Exec(t, dsn, "INSERT INTO leasehold_partition (partition, epoch) VALUES (0, 7)")
	postgrestest.Exec(t, dsn, "INSERT INTO leasehold_server (id, address, process, beats, draining) VALUES (gen_random_uuid(), 'gone', 'gone', 1, false)")
	o := postgres.Options{DSN: dsn, SingleNode: true, Logf: t.Logf}
	if c, err := postgres.FindCluster(t.Context(), o); err == nil {
		c.Close()
		t.Error("leasehold cluster shows a schema that it does not know")
	}
	if err := postgres.Unserved(t.Context(), o, time.Millisecond); err != nil {
		t.Errorf("is it served: %v", err)
	}
	if n, err := postgres.Restored(t.Context(), o); n != 1 || err != nil {
		t.Errorf("restored: %d %v", n, err)
	}
	c, err := postgres.FindCluster(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if look, err := c.Look(t.Context()); err != nil || len(look.Partitions) != 1 || look.Partitions[0].Epoch < 7+1024 {
		t.Errorf("it has %+v %v", look.Partitions, err)
	}
}

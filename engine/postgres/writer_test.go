package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/postgres"
	"github.com/leasehold/leasehold/engine/postgres/postgrestest"
)

// TestPartitionsOfAProcessShareCommits has four partitions commit at once. One was taken
// by another process, and the database refuses what another writes: the engines of both
// fail, and the other two commit. Then these two share a commit.
func TestPartitionsOfAProcessShareCommits(t *testing.T) {
	t.Parallel()
	dsn := postgrestest.Database(t)
	conns, led := lead(t, postgres.Options{DSN: dsn}, 5)
	// together has engines commit at once, and returns their errors: the writer takes
	// all of them when it has the answer to a commit that waits for a lock, and whose error is
	// the first.
	together := func(engines ...*postgres.Engine) (errs []error) {
		release := lockPartition(t, dsn, 5)
		held := make(chan error, 1)
		go func() { held <- tryPut(context.Background(), led[4], "held") }()
		for query[int](t, dsn, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'") == 0 {
			time.Sleep(time.Millisecond)
		}
		answers := make([]chan error, len(engines))
		for i, e := range engines {
			answers[i] = make(chan error, 1)
			go func() { answers[i] <- tryPut(context.Background(), e, "together") }()
			for conns.Ready() <= i { // they are sent in this order
				time.Sleep(time.Millisecond)
			}
		}
		release()
		for _, answer := range append([]chan error{held}, answers...) {
			errs = append(errs, <-answer)
		}
		return errs
	}
	mustOpen(t, postgres.Options{DSN: dsn, Partition: 1})
	postgrestest.Exec(t, dsn, "ALTER TABLE leasehold_log ADD CONSTRAINT fault CHECK (partition <> 2) NOT VALID")
	errs := together(led[:4]...)
	if !errors.Is(errs[1], postgres.ErrSuperseded) {
		t.Errorf("the partition that was taken: %v", errs[1])
	}
	if !errors.Is(errs[2], engine.ErrFailed) || !strings.Contains(errs[2].Error(), "fault") {
		t.Errorf("the partition whose batch is refused: %v", errs[2])
	}
	if errs[0] != nil || errs[3] != nil || errs[4] != nil {
		t.Errorf("the others: %v", errs)
	}
	postgrestest.Exec(t, dsn, "ALTER TABLE leasehold_log ADD CONSTRAINT another CHECK (partition <> 5) NOT VALID")
	if errs = together(led[2:4]...); errs[0] == nil || errs[1] != nil || errs[2] != nil {
		t.Errorf("together: %v", errs)
	}
	if n := query[int](t, dsn, `SELECT count(DISTINCT l.xmin::text) FROM leasehold_log l
WHERE partition IN (3, 4) AND sequence = (SELECT max(sequence) FROM leasehold_log m WHERE m.partition = l.partition)`); n != 1 {
		t.Errorf("two partitions made %d commits", n)
	}
}

// The context with which a state is opened limits only that. A server that stops ends it, and
// writes what its sessions leave.
func TestAnEngineOutlivesTheContextOfItsOpening(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	e, err := postgres.Open(ctx, postgres.Options{DSN: postgrestest.Database(t), SingleNode: true, FoldSize: 1, Logf: t.Logf})
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	for i := range 5 {
		put(t, e, fmt.Sprint("k", i), "~cold")
	}
	if got := keys(t, e); got != "k0 k1 k2 k3 k4 ~cold" {
		t.Errorf("it has %q", got)
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
}

// A commit asks the database once.
func TestACommitCostsOneRoundTrip(t *testing.T) {
	t.Parallel()
	n, through := between(t, postgrestest.Database(t))
	e := mustOpen(t, postgres.Options{DSN: through, Patience: time.Hour})
	put(t, e, "first") // it prepares the statement
	asked := func() int { n.mu.Lock(); defer n.mu.Unlock(); return n.asked }
	before := asked()
	for i := range 5 {
		put(t, e, fmt.Sprint("k", i))
	}
	if n := asked() - before; n != 5 {
		t.Errorf("five commits ask %d times", n)
	}
}

// The writer's connection may lead to a database that was the primary before and can still
// be written, while a lead is taken over a new connection, in the one that is the primary. A
// commit is refused once then, and the next lead commits.
func TestTheWriterLeavesADatabaseThatDoesNotKnowALead(t *testing.T) {
	t.Parallel()
	host := regexp.MustCompile(`host=(\S+)`)
	var dsn string
	primary := filepath.Join(t.TempDir(), "p")
	become := func() {
		t.Helper()
		dsn = postgrestest.Start(t).DSN()
		_ = os.Remove(primary) // the first time, there is none
		if err := os.Symlink(host.FindStringSubmatch(dsn)[1], primary); err != nil {
			t.Fatal(err)
		}
		dsn = host.ReplaceAllString(dsn, "host="+primary)
	}
	become()
	conns, err := postgres.Connect(t.Context(), postgres.Options{DSN: dsn, SingleNode: true, Logf: t.Logf})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conns.Close)
	for range 2 { // so that its epoch is later than the other's
		put(t, mustOpen(t, postgres.Options{DSN: dsn, Connections: conns, Partition: 1}), "before")
	}
	become()
	o := postgres.Options{DSN: dsn, Connections: conns, Partition: 1}
	if err := tryPut(t.Context(), mustOpen(t, o), "a"); !errors.Is(err, postgres.ErrSuperseded) {
		t.Errorf("the first commit: %v", err)
	}
	put(t, mustOpen(t, o), "b")
}

// TestPartitionsWaitTogetherForTheDatabase loses the database for longer than the
// patience. Commits that arrive while those of another partition are tried again fail
// with them, and none waits as long once more.
func TestPartitionsWaitTogetherForTheDatabase(t *testing.T) {
	t.Parallel()
	server := postgrestest.Start(t)
	var conns *postgres.Connections
	var led []*postgres.Engine
	trials, errs := 0, make(chan error)
	conns, err := postgres.Connect(t.Context(), postgres.Options{DSN: server.DSN(), SingleNode: true, Logf: func(format string, args ...any) {
		if !strings.Contains(format, "trying again") {
			return
		}
		if trials++; trials > 1 { // only the writer calls this
			return
		}
		for _, e := range led[1:] {
			go func() { errs <- tryPut(context.Background(), e, "meanwhile") }()
		}
		for conns.Ready() < len(led)-1 {
			time.Sleep(time.Millisecond)
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conns.Close)
	for partition := range int64(3) {
		led = append(led, mustOpen(t, postgres.Options{DSN: server.DSN(), Partition: partition + 1, Connections: conns}))
		put(t, led[partition], "first")
	}
	server.Kill()
	led[0].SetPatience(100 * time.Millisecond)
	for err == nil { // a child of the server serves until it notices
		err = tryPut(t.Context(), led[0], "lost")
	}
	for _, err := range []error{err, <-errs, <-errs} {
		if !errors.Is(err, engine.ErrFailed) || !strings.Contains(err.Error(), "did not come back within 100ms") {
			t.Errorf("commit: %v", err)
		}
	}
	if trials != 1 {
		t.Errorf("the database was waited for %d times", trials)
	}
}

// TestACommitIsWaitedForOnce lets a database answer no commit of one partition. That of
// another, which is sent with it, fails with it: to send each alone would take as long
// again for each of many.
func TestACommitIsWaitedForOnce(t *testing.T) {
	t.Parallel()
	dsn := postgrestest.Database(t)
	conns, led := lead(t, postgres.Options{DSN: dsn, Patience: 15 * time.Second}, 3)
	lockPartition(t, dsn, 2)
	release := lockPartition(t, dsn, 1)
	errs := make(chan error)
	commit := func(e *postgres.Engine) { errs <- tryPut(context.Background(), e, "late") }
	go commit(led[0])
	for others(t, dsn, "wait_event_type = 'Lock'") == 0 {
		time.Sleep(time.Millisecond)
	}
	go commit(led[1])
	go commit(led[2])
	for conns.Ready() < 2 {
		time.Sleep(time.Millisecond)
	}
	release()
	if err := <-errs; err != nil {
		t.Errorf("the commit before: %v", err)
	}
	for range 2 {
		if err := <-errs; !errors.Is(err, engine.ErrFailed) || !strings.Contains(err.Error(), "did not come back within 15s") {
			t.Errorf("commit: %v", err)
		}
	}
}

// lead opens the first partitions of a database over shared connections.
func lead(t *testing.T, o postgres.Options, partitions int64) (*postgres.Connections, []*postgres.Engine) {
	t.Helper()
	o.SingleNode, o.Logf = true, t.Logf
	conns, err := postgres.Connect(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conns.Close)
	var led []*postgres.Engine
	for partition := range partitions {
		led = append(led, mustOpen(t, postgres.Options{DSN: o.DSN, Partition: partition + 1, Connections: conns}))
		put(t, led[partition], "first")
	}
	return conns, led
}

// lockPartition makes commits of a partition wait until release is called.
func lockPartition(t *testing.T, dsn string, partition int64) (release func()) {
	t.Helper()
	return hold(t, dsn, fmt.Sprintf("SELECT 1 FROM leasehold_partition WHERE partition = %d FOR UPDATE", partition))
}

// hold keeps a transaction with a statement open until release is called or the test ends.
func hold(t *testing.T, dsn, statement string) (release func()) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	if err == nil {
		_, err = conn.Exec(t.Context(), "BEGIN; "+statement)
	}
	if err != nil {
		t.Fatal(err)
	}
	release = sync.OnceFunc(func() {
		_, err := conn.Exec(context.Background(), "ROLLBACK")
		if err := errors.Join(err, conn.Close(context.Background())); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(release)
	return release
}

package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/cluster"
	"github.com/leasehold/leasehold/engine/postgres"
	"github.com/leasehold/leasehold/engine/postgres/postgrestest"
)

// others counts the connections of a database that are in a state.
func others(t *testing.T, dsn, where string) int {
	t.Helper()
	return query[int](t, dsn, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() AND "+where)
}

const terminate = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"

// An operator may end connections that wait. The next commit and the next read make new
// ones. The operator is told of the trouble, and of its end.
func TestConnectionsThatTheDatabaseEndsAreMadeAgain(t *testing.T) {
	t.Parallel()
	dsn := postgrestest.Database(t)
	_, through := between(t, dsn) // else a write to the socket fails before what the database said is read
	var mu sync.Mutex
	var told []string
	e := mustOpen(t, postgres.Options{DSN: through, Patience: time.Hour, FoldSize: 1, Logf: func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		told = append(told, fmt.Sprintf(format, args...))
	}})
	put(t, e, "a", "~a")
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	put(t, e, "b", "~b")
	for i := range 3 {
		for n := 1; n > 0; time.Sleep(10 * time.Millisecond) {
			if _, err := conn.Exec(t.Context(), terminate); err != nil {
				t.Fatal(err)
			}
			if err := conn.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'").Scan(&n); err != nil {
				t.Fatal(err)
			}
		}
		put(t, e, fmt.Sprint("c", i))
	}
	if got := keys(t, e); got != "a b c0 c1 c2 ~a ~b" {
		t.Errorf("it has %q", got)
	}
	mu.Lock()
	defer mu.Unlock()
	if got := strings.Join(told, "\n"); !strings.Contains(got, "the database cannot be used, trying again for 1h") || !strings.Contains(got, "\nengine: the database can be used again, after ") {
		t.Errorf("the operator was told %q", got)
	}
}

// A database may end connections that wait. That of the leader may wait, because the
// operator would be told of a trouble whenever nothing was written for a while. The log
// notes how long each of its writers may wait.
func TestALeaderMayWaitWhereADatabaseEndsIdleConnections(t *testing.T) {
	t.Parallel()
	dsn := postgrestest.Database(t)
	postgrestest.Exec(t, dsn, "DO $$BEGIN EXECUTE format('ALTER DATABASE %I SET idle_session_timeout = 3600000', current_database()); END$$")
	e := mustOpen(t, postgres.Options{DSN: dsn})
	postgrestest.Exec(t, dsn, "ALTER TABLE leasehold_log ADD COLUMN may_wait text DEFAULT current_setting('idle_session_timeout')")
	postgrestest.Exec(t, dsn, "UPDATE leasehold_log SET may_wait = ''")
	put(t, e, "a")
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	var setting string
	if err := conn.QueryRow(t.Context(), "SELECT may_wait FROM leasehold_log ORDER BY sequence DESC LIMIT 1").Scan(&setting); err != nil {
		t.Fatal(err)
	}
	if setting != "0" {
		t.Errorf("the leader's connection is ended after %q, and not never", setting)
	}
}

// A database may make all transactions serializable that do not say what they are. Two
// servers may beat at the same time there, too.
func TestServersBeatWhereTransactionsAreSerializable(t *testing.T) {
	t.Parallel()
	dsn := postgrestest.Database(t)
	postgrestest.Exec(t, dsn, "DO $$BEGIN EXECUTE format('ALTER DATABASE %I SET default_transaction_isolation = serializable', current_database()); END$$")
	c, err := postgres.OpenCluster(t.Context(), postgres.Options{DSN: dsn, SingleNode: true}, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	servers := []uuid.UUID{uuid.New(), uuid.New()}
	for _, id := range servers {
		if err := c.Register(t.Context(), cluster.Server{ID: id}); err != nil {
			t.Fatal(err)
		}
	}
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	tx, err := conn.Begin(t.Context())
	if err == nil {
		_, err = tx.Exec(t.Context(), "SELECT 1 FROM leasehold_server FOR UPDATE")
	}
	if err != nil {
		t.Fatal(err)
	}
	var beats sync.WaitGroup
	for _, id := range servers {
		beats.Go(func() {
			if _, there, err := c.Beat(t.Context(), id, 0); err != nil || !there {
				t.Errorf("beat: %v %v", there, err)
			}
		})
	}
	for others(t, dsn, "wait_event_type = 'Lock'") < len(servers) { // they have begun
		time.Sleep(time.Millisecond)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	beats.Wait()
}

// A commit that an operator cancels is sent again.
func TestACommitThatIsCanceledIsSentAgain(t *testing.T) {
	t.Parallel()
	dsn := postgrestest.Database(t)
	e := mustOpen(t, postgres.Options{DSN: dsn, Partition: 1, Patience: time.Hour})
	put(t, e, "a")
	release := lockPartition(t, dsn, 1)
	done := make(chan error, 1)
	go func() { done <- tryPut(t.Context(), e, "b") }()
	const waits = "wait_event_type = 'Lock'"
	for range 2 {
		for others(t, dsn, waits) == 0 {
			select {
			case err := <-done:
				t.Fatalf("before the partition was free: %v", err)
			case <-time.After(time.Millisecond):
			}
		}
		postgrestest.Exec(t, dsn, "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND "+waits)
	}
	release()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if got := keys(t, e); got != "a b" {
		t.Errorf("it has %q", got)
	}
}

// If an operator cancels a commit that waits for a synchronous standby, PostgreSQL says that
// it is done. It is not acknowledged, but written again, until a standby has it. The same is
// true of the lead.
func TestACommitWhoseStandbyIsAwaitedInVainIsNotAcknowledged(t *testing.T) {
	t.Parallel()
	dsn := postgrestest.Start(t).DSN()
	o := postgres.Options{DSN: dsn, SingleNode: true, Partition: 1, Patience: time.Hour}
	e := mustOpen(t, o)
	put(t, e, "a")
	standby := func(set string) {
		t.Helper()
		postgrestest.Exec(t, dsn, "ALTER SYSTEM "+set)
		postgrestest.Exec(t, dsn, "SELECT pg_reload_conf()")
	}
	standby("SET synchronous_standby_names = 'nobody'")
	const waits = "wait_event = 'SyncRep'"
	waiter := func() int {
		return query[int](t, dsn, "SELECT coalesce(max(pid), 0) FROM pg_stat_activity WHERE datname = current_database() AND "+waits)
	}
	cancel := func() {
		postgrestest.Exec(t, dsn, "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND "+waits)
	}
	var acknowledged atomic.Int64
	ctx, over := context.WithCancel(t.Context())
	var writing sync.WaitGroup
	writing.Go(func() {
		for ctx.Err() == nil {
			if err := tryPut(context.WithoutCancel(ctx), e, "b"); err != nil {
				t.Error(err)
				return
			}
			acknowledged.Add(1)
		}
	})
	defer func() {
		over()
		standby("RESET synchronous_standby_names")
		writing.Wait()
	}()
	for waiter() == 0 { // the database reads its settings now and then
		time.Sleep(time.Millisecond)
	}
	before := acknowledged.Load()
	for range 3 {
		was := waiter()
		for cancel(); waiter() == was || waiter() == 0; time.Sleep(time.Millisecond) { // until it is sent again
			if acknowledged.Load() > before {
				t.Fatal("what no standby has is acknowledged")
			}
		}
	}

	// An operator who looks is told so.
	if r, err := postgres.Inspect(t.Context(), o); err != nil || !r.Hangs || r.Schema == 0 {
		t.Errorf("the report is %+v (%v)", r, err)
	}

	lead := make(chan error, 1)
	go func() {
		o := o
		o.Partition = 2
		e, err := postgres.Open(t.Context(), o)
		if err == nil {
			err = e.Close()
		}
		lead <- err
	}()
	for err := error(nil); err == nil; time.Sleep(time.Millisecond) {
		select {
		case err = <-lead:
			if err == nil || !strings.Contains(err.Error(), "its wait for a synchronous standby was canceled") {
				t.Fatalf("the lead: %v", err)
			}
		default:
			cancel()
		}
	}
}

// A network may forget connections without telling anybody, as a firewall does with
// those that were idle. A commit, a read and a fold go on over new ones.
func TestConnectionsThatLeadNowhereAreReplaced(t *testing.T) {
	t.Parallel()
	dsn := postgrestest.Database(t)
	n, through := between(t, dsn)
	e := mustOpen(t, postgres.Options{DSN: through, Patience: 15 * time.Second, FoldSize: 1})
	for i := 0; query[int](t, dsn, "SELECT count(*) FROM leasehold_record") < 4; i++ {
		put(t, e, fmt.Sprint("k", i), fmt.Sprint("~k", i))
	}
	if got := keys(t, e); !strings.Contains(got, "~k1") {
		t.Errorf("it has %q", got)
	}
	var readers, reading sync.WaitGroup
	reading.Add(3)
	for range 3 { // each has a connection
		readers.Go(func() {
			err := e.Snapshot(t.Context(), func(tx engine.Tx) error {
				for range tx.Scan(engine.Cold) {
				}
				reading.Done()
				reading.Wait()
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	readers.Wait()
	n.forget()
	put(t, e, "late", "~late")
	// Once it knows of one, it closes the others.
	for deadline := time.Now().Add(30 * time.Second); n.used() > 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d connections that lead nowhere are still open", n.used())
		}
	}
	if got := keys(t, e); !strings.HasSuffix(got, "~late") {
		t.Errorf("it has %q", got)
	}
	for i := 0; query[int](t, dsn, "SELECT count(*) FROM leasehold_record WHERE encode(key, 'escape') LIKE '%last%'") == 0; i++ {
		put(t, e, fmt.Sprint("last", i))
	}
}

// An append that had no answer is sent again. The network may deliver the first one
// later, when the log goes on far behind it. It has no effect then.
func TestAnAppendThatArrivesLateChangesNothing(t *testing.T) {
	t.Parallel()
	dsn := postgrestest.Database(t)
	n, through := between(t, dsn)
	const foldSize = 100 << 10
	e := mustOpen(t, postgres.Options{DSN: through, Partition: 1, Patience: 15 * time.Second, FoldSize: foldSize})
	put(t, e, "a")
	n.forget()
	put(t, e, "again")
	sent := query[int](t, dsn, "SELECT max(sequence) FROM leasehold_log")
	put(t, e, "b")
	if err := e.Update(t.Context(), func(tx engine.Tx) error {
		tx.Put(engine.Row{Key: "again", Value: "newer"})
		tx.Put(engine.Row{Key: "large", Value: strings.Repeat("x", 2*foldSize)})
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	put(t, e, "c")
	for query[int](t, dsn, "SELECT min(sequence) FROM leasehold_log") <= sent {
		time.Sleep(10 * time.Millisecond) // until the only fold: another would remove what arrives late
	}
	if n.deliver(t) == 0 {
		t.Error("nothing was sent before")
	}
	next, err := postgres.Open(t.Context(), postgres.Options{DSN: dsn, Partition: 1, SingleNode: true})
	if err != nil {
		t.Fatal(err)
	}
	defer next.Close()
	if row, _, err := next.Get(t.Context(), "again"); err != nil || row.Value != "newer" {
		t.Errorf("it has %q (%v)", row.Value, err)
	}
}

// A leader may be frozen, or its machine lost, while it writes the log to the records.
// The database ends that transaction, so that another can take the lead.
func TestALeaderThatIsLostInAFoldKeepsNoLead(t *testing.T) {
	t.Parallel()
	dsn := postgrestest.Database(t)
	n, through := between(t, dsn)
	o := postgres.Options{DSN: through, Partition: 1, Patience: 15 * time.Second, FoldSize: 1}
	first := mustOpen(t, o)
	put(t, first, "a")
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	for others(t, dsn, "backend_type = 'client backend'") > 0 { // its fold holds the partition, and would wait for the lock below
		time.Sleep(10 * time.Millisecond)
	}
	const folds = "pid IN (SELECT pid FROM pg_locks WHERE relation = 'leasehold_record'::regclass AND %s granted)"
	release := hold(t, dsn, "LOCK TABLE leasehold_record IN SHARE MODE") // reads go on
	lost := mustOpen(t, o)                                               // it has a log to write
	for i := 0; others(t, dsn, fmt.Sprintf(folds, "NOT")) == 0; i++ {
		put(t, lost, fmt.Sprint("b", i))
	}
	n.forget()
	release()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute) // else it waits for ever
	defer cancel()
	o.DSN, o.SingleNode = dsn, true
	next, err := postgres.Open(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	defer next.Close()
	if got := keys(t, next); !strings.HasPrefix(got, "a b0") {
		t.Errorf("it has %q", got)
	}
}

// The connection over which a server takes the lead may lead nowhere before it has its
// answer, when the database has made that server the leader. The server gives up then, so
// that it can let go and try again.
func TestALeadThatIsTakenOverALostConnectionIsGivenUp(t *testing.T) {
	t.Parallel()
	dsn := postgrestest.Database(t)
	n, through := between(t, dsn)
	o := postgres.Options{DSN: dsn, SingleNode: true, Partition: 1, Patience: 15 * time.Second}
	put(t, mustOpen(t, o), "a")
	release := lockPartition(t, dsn, 1)
	lost := make(chan error, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute) // else it waits for ever
	defer cancel()
	go func() {
		o := o
		o.DSN = through
		e, err := postgres.Open(ctx, o)
		if err == nil {
			err = errors.Join(errors.New("it leads"), e.Close())
		}
		lost <- err
	}()
	for others(t, dsn, "wait_event_type = 'Lock'") == 0 {
		select {
		case err := <-lost:
			t.Fatalf("before the partition was free: %v", err)
		case <-time.After(time.Millisecond):
		}
	}
	epoch := query[int](t, dsn, "SELECT epoch FROM leasehold_partition WHERE partition = 1")
	n.forget()
	release()
	if err := <-lost; err == nil || !strings.Contains(err.Error(), "the database has not answered for 15s") {
		t.Errorf("it ended with %v", err)
	}
	if now := query[int](t, dsn, "SELECT epoch FROM leasehold_partition WHERE partition = 1"); now != epoch+1 {
		t.Errorf("the epoch is %d, and was %d", now, epoch)
	}
	if got := keys(t, mustOpen(t, o)); got != "a" {
		t.Errorf("the next has %q", got)
	}
}

// A server that waits for a lock while it takes a lead gives up and says so, whichever
// table is locked. A connection that leads nowhere looks the same to it.
func TestALeadThatWaitsForALockedTableIsGivenUp(t *testing.T) {
	t.Parallel()
	for _, table := range []string{"schema", "partition", "log"} {
		t.Run(table, func(t *testing.T) {
			t.Parallel()
			dsn := postgrestest.Database(t)
			o := postgres.Options{DSN: dsn, SingleNode: true, Partition: 1, Patience: 15 * time.Second}
			if err := mustOpen(t, o).Close(); err != nil {
				t.Fatal(err)
			}
			hold(t, dsn, "LOCK leasehold_"+table)
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute) // else it waits for ever
			defer cancel()
			e, err := postgres.Open(ctx, o)
			if err == nil {
				_ = e.Close()
			}
			if err == nil || !strings.Contains(err.Error(), "the database has not answered for 15s") || postgres.Reason(err) != "its database does not answer" {
				t.Errorf("it ended with %v, for the reason %q", err, postgres.Reason(err))
			}
		})
	}
}

// So does a server that waits for a lock with a commit.
func TestACommitThatWaitsForALockSaysSo(t *testing.T) {
	t.Parallel()
	dsn := postgrestest.Database(t)
	e := mustOpen(t, postgres.Options{DSN: dsn, SingleNode: true})
	put(t, e, "before")
	hold(t, dsn, "LOCK leasehold_log")
	e.SetPatience(3 * time.Second)
	if err := tryPut(t.Context(), e, "after"); err == nil || !strings.Contains(err.Error(), "perhaps somebody has a lock there") || postgres.Reason(err) != "its database does not answer" {
		t.Errorf("it ended with %v, for the reason %q", err, postgres.Reason(err))
	}
}

// Nor does a command wait for a lock without a word.
func TestALookThatWaitsForALockIsGivenUp(t *testing.T) {
	t.Parallel()
	dsn := postgrestest.Database(t)
	o := postgres.Options{DSN: dsn, SingleNode: true, Partition: 1, Patience: time.Minute}
	if err := mustOpen(t, o).Close(); err != nil {
		t.Fatal(err)
	}
	o.Patience = 2 * time.Second
	c, err := postgres.FindCluster(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	release := hold(t, dsn, "LOCK leasehold_partition")
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute) // else they wait for ever
	defer cancel()
	_, found := postgres.FindCluster(ctx, o)
	_, inspected := postgres.Inspect(ctx, o)
	release()
	hold(t, dsn, "LOCK leasehold_server, leasehold_log")
	_, looked := c.Look(ctx)
	_, logs := c.Logs(ctx)
	drained := c.SetDraining(ctx, uuid.New(), true)
	for _, err := range []error{found, inspected, looked, logs, drained} {
		if err == nil || !strings.Contains(err.Error(), "the database has not answered for 2s; perhaps somebody has a lock there") {
			t.Errorf("it ended with %v", err)
		}
	}
}

// A DSN may be replaced by one that has another user and also another sslmode. With
// sslmode=prefer, each host is tried twice.
func TestAnotherSSLModeComesWithAnotherUser(t *testing.T) {
	t.Parallel()
	dsn := postgrestest.Database(t)
	postgrestest.Exec(t, dsn, "CREATE ROLE encrypts LOGIN SUPERUSER")
	socket := filepath.Join(regexp.MustCompile(`host=(\S+)`).FindStringSubmatch(dsn)[1], ".s.PGSQL.5432")
	ln, err := net.Listen("tcp", "127.0.0.1:0") // sslmode means nothing to a unix socket
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	go func() {
		for {
			a, err := ln.Accept()
			if err != nil {
				return // the test has ended
			}
			b, err := net.Dial("unix", socket)
			if err != nil {
				_ = a.Close()
				continue
			}
			go func() { _, _ = io.Copy(b, a); _ = b.Close() }()
			go func() { _, _ = io.Copy(a, b); _ = a.Close() }()
		}
	}()
	host, port, _ := net.SplitHostPort(ln.Addr().String())
	at := func(user, mode string) string {
		return fmt.Sprintf("host=%s port=%s user=%s sslmode=%s %s", host, port, user, mode, regexp.MustCompile(`dbname=\S+`).FindString(dsn))
	}
	var now atomic.Value
	now.Store(at("test", "prefer"))
	current := func() (string, error) { return now.Load().(string), nil }
	e := mustOpen(t, postgres.Options{DSN: at("test", "prefer"), Current: current})
	put(t, e, "a")
	now.Store(at("encrypts", "disable"))
	cut(t, dsn)
	put(t, e, "b")
	if n := query[int](t, dsn, "SELECT count(*)::int FROM pg_stat_activity WHERE usename = 'encrypts' AND datname = current_database()"); n == 0 {
		t.Error("it has no connection of the new user")
	}
}

// While the DSN cannot be read, connections are made as the last one was, and not as the
// first: its user may be gone.
func TestADSNThatCannotBeReadStaysAsItWas(t *testing.T) {
	t.Parallel()
	dsn := postgrestest.Database(t)
	name := query[string](t, dsn, "SELECT current_database()")
	postgrestest.Exec(t, dsn, "CREATE ROLE before_"+name+" LOGIN SUPERUSER")
	var unread atomic.Bool
	e := mustOpen(t, postgres.Options{DSN: strings.Replace(dsn, "user=test", "user=before_"+name, 1), Current: func() (string, error) {
		if unread.Load() {
			return "", errors.New("it is being written")
		}
		return dsn, nil
	}})
	put(t, e, "a")
	postgrestest.Exec(t, dsn, "ALTER ROLE before_"+name+" NOLOGIN")
	unread.Store(true)
	cut(t, dsn)
	put(t, e, "b")
}

// A server gives up a partition again if it had no answer. The network may deliver the
// first request when the server leads the partition again.
func TestARequestToGiveUpThatArrivesLateChangesNothing(t *testing.T) {
	t.Parallel()
	dsn := postgrestest.Database(t)
	n, through := between(t, dsn)
	o := postgres.Options{DSN: through, SingleNode: true, Patience: 15 * time.Second, Leader: uuid.New()}
	c, err := postgres.OpenCluster(t.Context(), o, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.Register(t.Context(), cluster.Server{ID: o.Leader}); err != nil {
		t.Fatal(err)
	}
	take := func() {
		t.Helper()
		look, err := c.Look(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		o := o
		o.DSN, o.Epoch = dsn, look.Partitions[0].Epoch
		e, err := postgres.Open(t.Context(), o)
		if err == nil {
			err = e.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	giveUp := func(patience time.Duration) error {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		return c.Release(ctx, 0, o.Leader)
	}
	for range 2 { // the first prepares its statements
		take()
		if err := giveUp(time.Minute); err != nil {
			t.Fatal(err)
		}
	}
	take()
	n.forget()
	for giveUp(time.Second) != nil {
		continue
	}
	take()
	if n.deliver(t) == 0 {
		t.Error("nothing was sent before")
	}
	if leader := query[uuid.UUID](t, dsn, "SELECT leader FROM leasehold_partition"); leader != o.Leader {
		t.Errorf("the leader is %v", leader)
	}
}

// While others have all connections of the database, a leader goes on with those it has:
// it closes none of those that it needs, however old they are or how seldom they are used.
func TestALeaderNeedsNoNewConnections(t *testing.T) {
	t.Parallel()
	s := postgrestest.Start(t)
	postgrestest.Exec(t, s.DSN(), "CREATE ROLE leasehold LOGIN")
	postgrestest.Exec(t, s.DSN(), "CREATE DATABASE state OWNER leasehold")
	dsn := strings.Replace(s.DSN(), "user=test dbname=postgres", "user=leasehold dbname=state", 1) +
		" pool_max_conn_lifetime=1ms pool_health_check_period=1ms" // so an hour passes at once
	o := postgres.Options{DSN: dsn, SingleNode: true, FoldSize: 1, Patience: 15 * time.Second}
	beats, err := postgres.OpenCluster(t.Context(), o, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer beats.Close()
	beat := func() error { _, _, err := beats.Beat(t.Context(), uuid.Nil, 0); return err }
	if err := beat(); err != nil {
		t.Fatal(err)
	}
	o.DSN += " pool_max_conn_idle_time=1ms" // reads may be seldom
	e := mustOpen(t, o)
	read := func() error {
		return e.View(t.Context(), func(tx engine.Tx) error { tx.Get("~none"); return nil })
	}
	put(t, e, "a")
	if err := read(); err != nil {
		t.Fatal(err)
	}
	postgrestest.Exec(t, s.DSN(), "ALTER ROLE leasehold CONNECTION LIMIT 0")
	for i := range 10 {
		time.Sleep(10 * time.Millisecond) // for whatever closes connections
		put(t, e, fmt.Sprint("b", i))
		if err := errors.Join(beat(), read()); err != nil {
			t.Fatal(err)
		}
	}
	postgrestest.Exec(t, s.DSN(), "ALTER ROLE leasehold CONNECTION LIMIT -1")
}

// A database that was restarted may be full of the connections of others before a leader has
// one for reads again. All wait for a transaction that reads, so it gives up the lead.
func TestALeaderThatCannotReadGivesUp(t *testing.T) {
	t.Parallel()
	s := postgrestest.Start(t)
	postgrestest.Exec(t, s.DSN(), "CREATE ROLE leasehold LOGIN")
	postgrestest.Exec(t, s.DSN(), "CREATE DATABASE state OWNER leasehold")
	dsn := strings.Replace(s.DSN(), "user=test dbname=postgres", "user=leasehold dbname=state", 1)
	e := mustOpen(t, postgres.Options{DSN: dsn, Patience: 5 * time.Second})
	put(t, e, "a")
	postgrestest.Exec(t, s.DSN(), "ALTER ROLE leasehold CONNECTION LIMIT 0")
	postgrestest.Exec(t, s.DSN(), "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE usename = 'leasehold' AND query NOT LIKE 'INSERT INTO leasehold_log%'")
	put(t, e, "b")
	err := e.View(t.Context(), func(tx engine.Tx) error { tx.Get("~none"); return nil })
	if got, want := postgres.Reason(err), "its database accepts no more connections"; got != want {
		t.Errorf("the reason of %v is %q", err, got)
	}
	if err := tryPut(t.Context(), e, "c"); !errors.Is(err, engine.ErrFailed) {
		t.Errorf("it goes on: %v", err)
	}
}

// All connections for reads, or for beats, may be lost at once, and those after them. New
// ones do not wait until these are buried.
func TestNewConnectionsDoNotWaitForLostOnes(t *testing.T) {
	t.Parallel()
	const buried = 15 * time.Second // pgx closes a lost connection after this
	t.Run("reads", func(t *testing.T) {
		t.Parallel()
		dsn := postgrestest.Database(t)
		n, through := between(t, dsn)
		e := mustOpen(t, postgres.Options{DSN: through, Patience: buried - time.Second, FoldSize: 1})
		for _, key := range []string{"~a", "~b"} { // when the second is in the records, only these have the first
			put(t, e, key)
			for i := 0; query[int](t, dsn, "SELECT count(*) FROM leasehold_record WHERE encode(key, 'escape') LIKE '%'||$1||'%'", key) == 0; i++ {
				put(t, e, fmt.Sprint("k", i))
			}
		}
		release := hold(t, dsn, "LOCK TABLE leasehold_record")
		var reads sync.WaitGroup
		defer reads.Wait()
		for range 8 { // more than there are connections
			reads.Go(func() {
				if row, found, err := e.Get(t.Context(), "~a"); err != nil || !found {
					t.Errorf("read: %v %v %v", row, found, err)
				}
			})
		}
		for deadline := time.Now().Add(time.Minute); others(t, dsn, "wait_event_type = 'Lock' AND query LIKE 'SELECT value%'") < 4; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal("there are no four reads")
			}
		}
		n.forget()
		release()
	})
	t.Run("beats", func(t *testing.T) {
		t.Parallel()
		dsn := postgrestest.Database(t)
		n, through := between(t, dsn)
		c, err := postgres.OpenCluster(t.Context(), postgres.Options{DSN: through, SingleNode: true, Patience: 15 * time.Second}, 1)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		id := uuid.New()
		if err := c.Register(t.Context(), cluster.Server{ID: id}); err != nil {
			t.Fatal(err)
		}
		beat := func(limit time.Duration) error {
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			_, _, err := c.Beat(ctx, id, 0)
			return err
		}
		for range 4 {
			n.forget()
			if beat(time.Second) == nil {
				t.Fatal("the network forgot no connection")
			}
			if err := beat(buried - 2*time.Second); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// A network passes connections on, until it forgets them.
type network struct {
	mu    sync.Mutex
	conns []net.Conn // pairs: from the client, and to the database
	lost  map[net.Conn]bool
	kept  map[net.Conn][]byte        // what was sent to it since it was forgotten
	over  map[net.Conn]chan struct{} // closed when the database has ended it
	ended int                        // connections that the client has closed
	old   int                        // connections that were forgotten, or ended before
	asked int                        // how often clients sent something
}

// between makes a network, and gives the DSN of the database behind it.
func between(t *testing.T, dsn string) (n *network, through string) {
	t.Helper()
	const name = ".s.PGSQL.5432"
	host := regexp.MustCompile(`host=(\S+)`)
	to := filepath.Join(host.FindStringSubmatch(dsn)[1], name)
	dir, err := os.MkdirTemp("", "network-") // short: it is in the socket's path
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	ln, err := net.Listen("unix", filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	n = &network{lost: make(map[net.Conn]bool), kept: make(map[net.Conn][]byte), over: make(map[net.Conn]chan struct{})}
	t.Cleanup(func() {
		_ = ln.Close()
		n.mu.Lock()
		defer n.mu.Unlock()
		for _, nc := range n.conns {
			_ = nc.Close()
		}
	})
	go func() {
		for {
			a, err := ln.Accept()
			if err != nil {
				return // the test has ended
			}
			b, err := net.Dial("unix", to)
			if err != nil {
				t.Error(err)
				_ = a.Close()
				continue
			}
			n.mu.Lock()
			n.conns = append(n.conns, a, b)
			over := make(chan struct{})
			n.over[b] = over
			n.mu.Unlock()
			go func() {
				n.pass(a, b)
				n.mu.Lock()
				n.ended++
				n.mu.Unlock()
				if !n.forgot(b) {
					_ = b.Close()
				}
			}()
			go func() {
				n.pass(b, a)
				if !n.forgot(a) {
					_ = a.(*net.UnixConn).CloseWrite() // what the database said last can be read; the client may have closed it
				}
				close(over)
			}()
		}
	}()
	return n, host.ReplaceAllString(dsn, "host="+dir)
}

func (n *network) pass(from, to net.Conn) { _, _ = io.Copy(through{n, to}, from) }

// forget makes all present connections lead nowhere.
func (n *network) forget() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, nc := range n.conns {
		n.lost[nc] = true
	}
	n.old = len(n.conns) / 2
}

// deliver sends the database what it kept, waits until the database has acted on it
// and ended these connections, and returns how many bytes these were.
func (n *network) deliver(t *testing.T) (bytes int) {
	t.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, nc := range n.conns {
		over := n.over[nc]
		if over == nil || len(n.kept[nc]) == 0 {
			continue
		}
		bytes += len(n.kept[nc])
		_, err := nc.Write(n.kept[nc])
		if err = errors.Join(err, nc.(*net.UnixConn).CloseWrite()); err != nil {
			t.Error(err)
			continue
		}
		n.mu.Unlock()
		<-over
		n.mu.Lock()
	}
	return bytes
}

// used returns at least how many connections that were forgotten the client has not
// closed, if it has closed no other since.
func (n *network) used() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.old - n.ended
}

func (n *network) forgot(nc net.Conn) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.lost[nc]
}

type through struct {
	n  *network
	to net.Conn
}

func (w through) Write(p []byte) (int, error) {
	w.n.mu.Lock()
	lost := w.n.lost[w.to]
	if w.n.over[w.to] != nil {
		w.n.asked++
	}
	if lost {
		w.n.kept[w.to] = append(w.n.kept[w.to], p...)
	}
	w.n.mu.Unlock()
	if lost {
		return len(p), nil
	}
	return w.to.Write(p)
}

// While the records have no space, commits go on and only what grows is refused. That
// ends when there is space again, however long it took.
func TestRecordsWithoutSpaceCostNoLead(t *testing.T) {
	t.Parallel()
	dsn := postgrestest.Database(t)
	e := mustOpen(t, postgres.Options{DSN: dsn, FoldSize: 1, Patience: 3 * time.Second})
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if _, err := conn.Exec(t.Context(), `CREATE SEQUENCE attempts;
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN
	PERFORM nextval('attempts');
	RAISE EXCEPTION 'no space left' USING ERRCODE = 'disk_full';
END$$;
CREATE TRIGGER refuse BEFORE INSERT ON leasehold_record FOR EACH STATEMENT EXECUTE FUNCTION refuse()`); err != nil {
		t.Fatal(err)
	}
	large := func() error {
		return e.Update(t.Context(), func(tx engine.Tx) error {
			tx.Put(engine.Row{Key: "large", Value: strings.Repeat("x", 64<<10)})
			return nil
		})
	}
	// More attempts than three seconds allow.
	for attempts := 0; attempts < 10; time.Sleep(10 * time.Millisecond) {
		put(t, e, "small")
		if err := conn.QueryRow(t.Context(), "SELECT last_value FROM attempts").Scan(&attempts); err != nil {
			t.Fatal(err)
		}
	}
	if err := large(); !errors.Is(err, engine.ErrFull) {
		t.Errorf("what grows, without space: %v", err)
	}
	put(t, e, "small")
	if _, err := conn.Exec(t.Context(), "DROP TRIGGER refuse ON leasehold_record"); err != nil {
		t.Fatal(err)
	}
	for {
		err := large()
		if err == nil {
			break
		}
		if !errors.Is(err, engine.ErrFull) {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Millisecond)
	}
	if err := e.Check(); err != nil {
		t.Error(err)
	}
}

// A pooler must keep the sessions of its clients apart. One that does not is refused.
func TestAPoolerThatSharesSessionsIsRefused(t *testing.T) {
	t.Parallel()
	s := postgrestest.Start(t)
	for mode, refused := range map[string]bool{"session": false, "transaction": true, "statement": true} {
		c, err := postgres.OpenCluster(t.Context(), postgres.Options{DSN: s.Pooler(t, mode), SingleNode: true}, 0)
		if got := postgres.Reason(err); refused && got != postgres.ErrPooled.Error() || !refused && err != nil {
			t.Errorf("in mode %s the reason of %v is %q", mode, err, got)
		}
		if err == nil {
			c.Close()
		}
	}
}

// A pooler may be told to share sessions while servers use it. The reason says so, and
// not that a prepared statement is there already. So it does for a pooler that has not
// got the database.
func TestReasonsBehindAPooler(t *testing.T) {
	t.Parallel()
	s := postgrestest.Start(t)
	dsn := s.Pooler(t, "transaction")
	var err error
	for err == nil { // each prepares statements of the same names, and soon two do in one session
		_, err = postgres.Open(t.Context(), postgres.Options{DSN: dsn, Partition: 1, SingleNode: true})
	}
	if got, want := postgres.Reason(err), postgres.ErrPooled.Error(); got != want {
		t.Errorf("the reason of %v is %q", err, got)
	}
	_, err = postgres.Open(t.Context(), postgres.Options{DSN: strings.Replace(dsn, "dbname=postgres", "dbname=nowhere", 1), SingleNode: true, Patience: time.Second})
	if got, want := postgres.Reason(err), "its database, or the pooler before it, refuses connections"; got != want {
		t.Errorf("the reason of %v is %q", err, got)
	}
}

// A database may have been made with any encoding, or have settings for old programs: it has keys and values as bytes.
func TestEncodings(t *testing.T) {
	t.Parallel()
	s := postgrestest.Start(t)
	for _, encoding := range []string{"SQL_ASCII", "LATIN1", "UTF8"} {
		postgrestest.Exec(t, s.DSN(), "CREATE DATABASE encoded ENCODING "+encoding+" TEMPLATE template0")
		postgrestest.Exec(t, s.DSN(), "ALTER DATABASE encoded SET standard_conforming_strings = off")
		o := postgres.Options{DSN: strings.Replace(s.DSN(), "dbname=postgres", "dbname=encoded", 1), Partition: 1, SingleNode: true, FoldSize: 1, Patience: 15 * time.Second}
		c, err := postgres.OpenCluster(t.Context(), o, 0)
		if err != nil {
			t.Fatalf("%s: %v", encoding, err)
		}
		c.Close()
		e := mustOpen(t, o)
		put(t, e, "z", "é", "日本")
		if got := keys(t, e); got != "z é 日本" {
			t.Errorf("%s: it has %q", encoding, got)
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
		postgrestest.Exec(t, s.DSN(), "DROP DATABASE encoded WITH (FORCE)")
	}
}

// A DSN that cannot be parsed is not shown, since it may have a password.
func TestADSNThatCannotBeParsedIsNotShown(t *testing.T) {
	for _, dsn := range []string{"host=h password = hidden dbname", "host=h password='a' hidden", "host=h passwordhidden", "postgres://u:hid%zzen@h/db", "postgres://u:hid den/x?y@h/db", "postgres://u:x/y?hid@h/db", "postgres://u:x/y?\"hid\"@h/db"} {
		_, err := postgres.Open(t.Context(), postgres.Options{DSN: dsn})
		if err == nil || strings.Contains(err.Error(), "hid") || !strings.Contains(err.Error(), "the DSN cannot be parsed: failed to parse as ") {
			t.Errorf("%s: %v", dsn, err)
		}
	}
}

// While the DSN, or a file that it names, cannot be used, connections are made as before.
// The operator is told why, once, and no password.
func TestADSNThatCannotBeUsedAgainIsReported(t *testing.T) {
	t.Parallel()
	dsn := postgrestest.Database(t)
	var mu sync.Mutex
	var told []string
	now, unread := dsn, error(nil)
	set := func(d string, err error) {
		mu.Lock()
		defer mu.Unlock()
		now, unread, told = d, err, nil
	}
	e := mustOpen(t, postgres.Options{DSN: dsn, Patience: time.Hour, Logf: func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		told = append(told, fmt.Sprintf(format, args...))
	}, Current: func() (string, error) {
		mu.Lock()
		defer mu.Unlock()
		return now, unread
	}})
	put(t, e, "first")
	for _, c := range []struct {
		dsn    string
		unread error
		want   string
	}{
		{dsn + " password=geheim port=none", nil, "invalid port"},
		{"postgres://user:geh@eim/@host/name", nil, "it has an @ where none can be"},
		{"", errors.New("no such file"), "no such file"},
	} {
		set(c.dsn, c.unread)
		for i := range 3 {
			cut(t, dsn)
			put(t, e, fmt.Sprint(c.want, i))
		}
		mu.Lock()
		all := strings.Join(told, "\n")
		mu.Unlock()
		if strings.Count(all, "cannot be used as it is now") != 1 || !strings.Contains(all, c.want) || strings.Contains(all, "geh") {
			t.Errorf("with %q the operator was told %q", c.dsn, all)
		}
	}
}

// A password that was not encoded is in no error: a part of it would be taken for a host or
// for a database.
func TestAPasswordThatIsNotEncodedIsNotShown(t *testing.T) {
	for _, dsn := range []string{"postgres://u:a@hidden@127.0.0.1/db", "postgres://u:1/hidden@127.0.0.1/db", "postgresql://u:hid/den@127.0.0.1:1/db"} {
		_, err := postgres.Open(t.Context(), postgres.Options{DSN: dsn, Patience: time.Millisecond})
		if err == nil || strings.Contains(err.Error(), "hid") || !strings.Contains(err.Error(), "write %40 for @") {
			t.Errorf("%s: %v", dsn, err)
		}
	}
	for _, dsn := range []string{"postgres://u:a?b#c%40%2F@127.0.0.1:1/db?application_name=a@b", "postgres://127.0.0.1:1/db?application_name=a@b"} {
		_, err := postgres.Open(t.Context(), postgres.Options{DSN: dsn, Patience: time.Millisecond})
		if err == nil || !strings.Contains(err.Error(), "database=db`") { // nothing listens there
			t.Errorf("%s: %v", dsn, err)
		}
	}
}

// A timeout that suffices for a commit does not end the long statements, by which the log
// is read and written to the records, nor a reader that thinks between two of them. A commit that a statement_timeout does end says so.
func TestATimeoutSparesLongStatements(t *testing.T) {
	t.Parallel()
	for _, setting := range []string{"statement_timeout", "transaction_timeout", "idle_in_transaction_session_timeout"} {
		t.Run(setting, func(t *testing.T) {
			t.Parallel()
			sparesLongStatements(t, setting)
		})
	}
}

func sparesLongStatements(t *testing.T, setting string) {
	dsn := postgrestest.Database(t)
	if query[int](t, dsn, "SELECT count(*) FROM pg_settings WHERE name = $1", setting) == 0 {
		t.Skip("this version of PostgreSQL has no " + setting)
	}
	put(t, mustOpen(t, postgres.Options{DSN: dsn, Partition: 1}), "a")
	// waited waits until a statement has waited for longer than it may otherwise.
	waited := func() {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); others(t, dsn, "wait_event_type = 'Lock' AND query_start < clock_timestamp() - interval '2 s'") == 0; time.Sleep(10 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal("no statement waits for so long")
			}
		}
	}
	postgrestest.Exec(t, dsn, "DO $$BEGIN EXECUTE format('ALTER DATABASE %I SET "+setting+" = 1000', current_database()); END$$")
	unlimited := "SET LOCAL " + setting + " = 0; "
	release := hold(t, dsn, unlimited+"LOCK TABLE leasehold_log IN ACCESS EXCLUSIVE MODE")
	opened := make(chan *postgres.Engine, 1)
	go func() { // mustOpen only in the test's goroutine
		e, err := postgres.Open(t.Context(), postgres.Options{DSN: dsn, Partition: 1, SingleNode: true, FoldSize: 1, Patience: 15 * time.Second})
		if err != nil {
			t.Error(err)
		}
		opened <- e
	}()
	waited()
	release()
	e := <-opened
	if e == nil {
		return
	}
	defer e.Close()
	release = hold(t, dsn, unlimited+"LOCK TABLE leasehold_record IN SHARE MODE")
	put(t, e, "b", "~b")
	waited()
	release()
	for i := 0; query[int](t, dsn, "SELECT count(*) FROM leasehold_record WHERE encode(key, 'escape') LIKE '%~b'") == 0; i++ {
		put(t, e, fmt.Sprint("c", i))
	}
	if err := e.Snapshot(t.Context(), func(tx engine.Tx) error {
		tx.Get("~none")
		const reads = "state = 'idle in transaction' AND query NOT LIKE 'INSERT%' AND xact_start"
		for others(t, dsn, reads+" < clock_timestamp()") > 0 && others(t, dsn, reads+" < clock_timestamp() - interval '2 s'") == 0 {
			time.Sleep(10 * time.Millisecond)
		}
		tx.Get("~b")
		return nil
	}); err != nil {
		t.Errorf("a reader that takes long: %v", err)
	}
	if setting != "statement_timeout" {
		return
	}
	release = lockPartition(t, dsn, 1)
	err := tryPut(t.Context(), e, "c")
	release()
	if got, want := postgres.Reason(err), "its database cancels its statements: see statement_timeout"; got != want {
		t.Errorf("the reason of %v is %q", err, got)
	}
}

// Whoever asks a server that cannot lead is told why.
func TestReasons(t *testing.T) {
	t.Parallel()
	dsn := postgrestest.Database(t)
	for options, want := range map[string]string{
		" options=-cdefault_transaction_read_only=on": "its database is read-only",
		" dbname=nowhere":                     "there is no database of that name",
		" port=1":                             "its database does not answer",
		" options='-csearch_path=pg_catalog'": "its user has too few rights in its database",
	} {
		for patience := time.Second; ; patience *= 2 { // on a machine that is busy, a connection may take longer than the patience
			_, err := postgres.Open(t.Context(), postgres.Options{DSN: dsn + options, SingleNode: true, Patience: patience})
			got := postgres.Reason(err)
			if got == want {
				break
			}
			if patience > 2*time.Minute {
				t.Fatalf("with%s the reason of %v is %q", options, err, got)
			}
		}
	}
}

// Whether a database has no TLS matters only where the DSN requires TLS. Otherwise it is
// tried without, and that attempt says what is the matter.
func TestADatabaseWithoutTLSIsOnlyBlamedForItIfItMustHaveIt(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	go func() { // it refuses TLS, as PostgreSQL does, and ends all else
		for {
			nc, err := ln.Accept()
			if err != nil {
				return // the test has ended
			}
			asked := make([]byte, 8)
			if _, err := io.ReadFull(nc, asked); err == nil && asked[3] == 8 { // the length of a request for TLS
				_, _ = nc.Write([]byte("N")) // the other side may have gone
			}
			_ = nc.Close()
		}
	}()
	host, port, _ := net.SplitHostPort(ln.Addr().String())
	for mode, want := range map[string]string{"prefer": "its database does not answer", "require": "its database does not use TLS"} {
		_, err := postgres.Open(t.Context(), postgres.Options{DSN: fmt.Sprintf("host=%s port=%s user=test sslmode=%s", host, port, mode), SingleNode: true, Patience: time.Second})
		if got := postgres.Reason(err); got != want || postgres.Unencrypted(err) != (mode == "require") {
			t.Errorf("with sslmode=%s the reason of %v is %q", mode, err, got)
		}
	}
}

// The last attempt may have had no time. It may also have reached a database that came back,
// and have waited there in vain: then that is why.
func TestPatienceEndsWithTheReasonThatLasted(t *testing.T) {
	refused := errors.New("refused")
	for free, want := range map[time.Duration]error{9 * time.Second: refused, time.Second: context.DeadlineExceeded} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			err := postgres.Patiently(10*time.Second, func(ctx context.Context) error {
				if time.Since(began) < free {
					return refused
				}
				<-ctx.Done()
				return ctx.Err()
			})
			if !errors.Is(err, want) {
				t.Errorf("refused for %v, then unanswered: %v", free, err)
			}
		})
	}
}

// TestOnlyTheLastHostAnswers: patience is not over before that one is asked.
func TestOnlyTheLastHostAnswers(t *testing.T) {
	for _, hosts := range []string{"a", "a,b", "a,b,c", "a,b,c,d", "a,b,c,d,e,f,g,h,i"} {
		for _, mode := range []string{"disable", "prefer", "require"} {
			asked, each, err := postgres.Options{DSN: "host=" + hosts + " user=test sslmode=" + mode}.Connecting()
			if lost := time.Duration(asked-1) * each; err != nil || lost+each > postgres.DefaultPatience {
				t.Errorf("of the hosts %s, with sslmode=%s, the others take %v, and %v is left: %v", hosts, mode, lost, postgres.DefaultPatience-lost, err)
			}
		}
	}
}

// TestAServerStartsWhileTheFirstHostIsLost: the connections that it needs for that are made
// at the same time, so that patience lasts. All later ones ask the host that has answered.
func TestAServerStartsWhileTheFirstHostIsLost(t *testing.T) {
	t.Parallel()
	lost, err := net.Listen("tcp", "127.0.0.1:0") // it answers nothing
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lost.Close() }()
	var asked atomic.Int64
	go func() {
		for {
			nc, err := lost.Accept()
			if err != nil {
				return // the test has ended
			}
			defer func() { _ = nc.Close() }()
			asked.Add(1)
		}
	}()
	dsn := postgrestest.Database(t)
	_, port, _ := net.SplitHostPort(lost.Addr().String()) // it has one
	o := postgres.Options{DSN: strings.Replace(dsn, "host=", "sslmode=disable port="+port+",5432 host=127.0.0.1,", 1), SingleNode: true, Patience: 12 * time.Second}
	c, err := postgres.OpenCluster(t.Context(), o, 0)
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	began := asked.Load()
	if began == 0 {
		t.Error("the first host was not asked")
	}
	e := mustOpen(t, o)
	put(t, e, "a")
	cut(t, dsn)
	put(t, e, "b")
	if err := e.View(t.Context(), func(tx engine.Tx) error { tx.Get("~none"); return nil }); err != nil {
		t.Error(err)
	}
	if n := asked.Load() - began; n > 0 {
		t.Errorf("the lost host was asked %d more times", n)
	}
}

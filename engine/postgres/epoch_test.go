package postgres_test

import (
	"bytes"
	"encoding/binary"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/clock"
	"github.com/leasehold/leasehold/engine/postgres"
	"github.com/leasehold/leasehold/engine/postgres/postgrestest"
)

// A tokenWorld is a database with one partition, and a wall clock.
type tokenWorld struct {
	*testing.T
	postgres.Options
	wall time.Time
	last uint64 // the greatest token
	led  int64  // the last epoch
	copy bool   // the state was one when it was opened last
}

const markKey = engine.Mark + "token"

func newTokenWorld(t *testing.T) *tokenWorld { return newTokenWorldIn(t, postgrestest.Database(t)) }

func newTokenWorldIn(t *testing.T, dsn string) *tokenWorld {
	w := &tokenWorld{T: t, wall: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	c := clock.Machine()
	c.Wall = func() time.Time { return w.wall }
	w.Options = postgres.Options{DSN: dsn, SingleNode: true, Clock: c, Logf: t.Logf}
	all, err := postgres.OpenCluster(t.Context(), w.Options, 1)
	if err != nil {
		t.Fatal(err)
	}
	all.Close()
	return w
}

// serve opens the partition, as a server does, and issues some tokens, each so
// much greater than the last.
func (w *tokenWorld) serve(step uint64) {
	w.Helper()
	e, err := postgres.Open(w.Context(), w.Options)
	if err != nil {
		w.Fatal(err)
	}
	defer e.Close()
	w.led = e.Epoch()
	err = e.Update(w.Context(), func(tx engine.Tx) error {
		_, w.copy = tx.Get(engine.CopyKey)
		tx.Delete(engine.CopyKey)
		return nil
	})
	if err != nil {
		w.Fatal(err)
	}
	for range 3 {
		err := e.Update(w.Context(), func(tx engine.Tx) error {
			token := e.Floor()
			if mark, ok := tx.Get(markKey); ok {
				token = max(token, binary.BigEndian.Uint64([]byte(mark.Value)))
			}
			token += step
			if token <= w.last {
				w.Errorf("token %d comes after %d (epoch %d)", token, w.last, e.Epoch())
			}
			w.last = token
			tx.Put(engine.Row{Key: markKey, Value: string(binary.BigEndian.AppendUint64(nil, token))})
			return nil
		})
		if err != nil {
			w.Fatal(err)
		}
	}
}

var tokenTables = []string{"leasehold_partition", "leasehold_log", "leasehold_record"}

func (w *tokenWorld) dump() {
	for _, table := range tokenTables {
		postgrestest.Exec(w.T, w.DSN, "DROP TABLE IF EXISTS dump_of_"+table)
		postgrestest.Exec(w.T, w.DSN, "CREATE TABLE dump_of_"+table+" AS TABLE "+table)
	}
}

// goBack gives the database what it had when it was dumped.
func (w *tokenWorld) goBack() {
	for _, table := range tokenTables {
		postgrestest.Exec(w.T, w.DSN, "TRUNCATE "+table)
		postgrestest.Exec(w.T, w.DSN, "INSERT INTO "+table+" SELECT * FROM dump_of_"+table)
	}
}

// serveCopy is serve for a state that must be known to be a copy, or must not.
func (w *tokenWorld) serveCopy(want bool) {
	w.Helper()
	if w.serve(1); w.copy != want {
		w.Errorf("epoch %d: the state is a copy: %v", w.led, w.copy)
	}
}

func (w *tokenWorld) restore() {
	w.goBack()
	if n, err := postgres.Restored(w.Context(), w.Options); n != 1 || err != nil {
		w.Fatal(n, err)
	}
}

// A copy is restored, used, and restored again, late or soon after. It knows
// nothing of the tokens of the first time.
func TestTokensRiseThoughOneCopyIsRestoredTwice(t *testing.T) {
	t.Parallel()
	w := newTokenWorld(t)
	w.serve(1)
	w.dump()
	for range 5 { // servers come and go
		w.serve(1)
	}
	for _, pause := range []time.Duration{time.Hour, time.Minute, 5 * time.Second, 200 * 24 * time.Hour} {
		w.wall = w.wall.Add(pause)
		w.restore()
		w.serveCopy(true)
		w.serveCopy(false)
	}
}

// A server that runs while its database is restored knows which epochs it has seen. Later
// servers, which do not, go on from there.
func TestTokensRiseThoughADatabaseGoesBackUnderItsServers(t *testing.T) {
	t.Parallel()
	w := newTokenWorld(t)
	w.serve(1)
	w.dump()
	for range 5 {
		w.serve(1)
	}
	for range 2 { // the second time it goes back by more than a leap
		w.Seen = w.led
		w.goBack()
		w.serveCopy(true)
		w.Seen = 0
		w.serveCopy(false)
	}
}

// A state of a directory may have issued far more tokens than its partition has
// epochs for. If the database then goes back in time, its tokens do not.
func TestTokensThatAreAheadOfTheEpochsRise(t *testing.T) {
	t.Parallel()
	w := newTokenWorld(t)
	w.serve(1 << 45) // as it was copied
	w.dump()
	for range 3 {
		w.serve(1 << 30)
	}
	w.wall = w.wall.Add(time.Minute)
	w.restore()
	w.serve(1)
	w.dump()
	w.serve(1 << 20)
	w.promote()
	w.serveCopy(true) // perhaps it lacks commits: this standby is asynchronous
}

// promote makes the database that of an asynchronous standby, which has what was
// dumped.
func (w *tokenWorld) promote() {
	w.goBack()
	postgrestest.Exec(w.T, w.DSN, "UPDATE leasehold_partition SET timeline = timeline + 1")
}

// A dump that is restored beside the state, in its place or into its tables, or a database that is
// made from another one: the next leader finds out, once. Tokens leap.
func TestACopyIsNoticed(t *testing.T) {
	t.Parallel()
	server := postgrestest.Start(t)
	w := newTokenWorldIn(t, server.Database(t))
	dump := func(options ...string) (sql []byte) {
		t.Helper()
		sql, err := postgrestest.Program("pg_dump", append(options, w.DSN)...).Output()
		if err != nil {
			t.Fatal(err)
		}
		return sql
	}
	restore := func(sql []byte) {
		t.Helper()
		w.wall = w.wall.Add(time.Minute)
		psql := postgrestest.Program("psql", "-q", "-v", "ON_ERROR_STOP=1", w.DSN)
		psql.Stdin = bytes.NewReader(sql)
		if out, err := psql.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	w.serveCopy(false)
	whole, content := dump("--clean"), dump("--data-only")
	for range 5 {
		w.serveCopy(false)
	}
	restore(whole)
	w.serveCopy(true)
	w.serveCopy(false)
	postgrestest.Exec(t, w.DSN, "TRUNCATE leasehold_partition, leasehold_mark, leasehold_log, leasehold_record, leasehold_schema, leasehold_cluster, leasehold_settled, leasehold_server")
	restore(content)
	w.serveCopy(true)
	w.serveCopy(false)
	postgrestest.Exec(t, w.DSN, "VACUUM FULL FREEZE")
	w.serveCopy(false)

	whole = dump()
	from := w.DSN
	for range 5 {
		w.serveCopy(false)
	}
	w.DSN = server.Database(t)
	restore(whole)
	w.serveCopy(true)
	w.serveCopy(false)

	name := regexp.MustCompile(`dbname=(\S+)`).FindStringSubmatch(from)[1]
	postgrestest.Exec(t, server.DSN(), "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE datname = $1", name)
	w.wall = w.wall.Add(time.Minute)
	postgrestest.Exec(t, server.DSN(), "CREATE DATABASE made TEMPLATE "+name)
	w.DSN = strings.Replace(from, name, "made", 1)
	w.serveCopy(true)
	w.serveCopy(false)
}

// A dump that is restored into the first database of a new server, whose numbers are those of
// the server before: its transaction can have the number of the one that wrote the mark.
func TestACopyInANewServerIsNoticed(t *testing.T) {
	t.Parallel()
	before, after := postgrestest.Start(t), postgrestest.Start(t)
	w := newTokenWorldIn(t, before.Database(t))
	query := func(dsn, sql string, args ...string) string {
		t.Helper()
		psql := postgrestest.Program("psql", append([]string{"-qAt", "-v", "ON_ERROR_STOP=1", dsn}, args...)...)
		psql.Stdin = strings.NewReader(sql)
		out, err := psql.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return strings.TrimSpace(string(out))
	}
	dump := func(part string) string {
		t.Helper()
		sql, err := postgrestest.Program("pg_dump", part, w.DSN).Output()
		if err != nil {
			t.Fatal(err)
		}
		return string(sql)
	}
	query(w.DSN, strings.Repeat("SELECT pg_current_xact_id();", 100))
	w.serveCopy(false)
	schema, content := dump("--schema-only"), dump("--data-only")
	at := query(w.DSN, "SELECT xmin FROM leasehold_mark")
	w.DSN = after.Database(t)
	query(w.DSN, schema)
	query(w.DSN, "DO $$ BEGIN WHILE pg_current_xact_id()::text::int < "+at+" - 1 LOOP COMMIT; END LOOP; END $$")
	query(w.DSN, content, "--single-transaction")
	w.wall = w.wall.Add(time.Minute)
	w.serveCopy(true)
	w.serveCopy(false)
}

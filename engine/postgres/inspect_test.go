package postgres_test

import (
	"strings"
	"testing"
	"time"

	"github.com/leasehold/leasehold/engine/postgres"
	"github.com/leasehold/leasehold/engine/postgres/postgrestest"
)

// A database may have several states, each in a schema of its own. They do not mix.
func TestStatesInSchemasOfOneDatabase(t *testing.T) {
	t.Parallel()
	dsn := postgrestest.Database(t)
	var led []*postgres.Engine
	in := func(schema string) postgres.Options {
		return postgres.Options{DSN: dsn + " search_path=" + schema, Partition: 1, SingleNode: true}
	}
	for _, schema := range []string{"one", "two"} {
		postgrestest.Exec(t, dsn, "CREATE SCHEMA "+schema)
		e := mustOpen(t, in(schema))
		put(t, e, schema)
		led = append(led, e)
	}
	if got := keys(t, led[0]) + " " + keys(t, led[1]); got != "one two" {
		t.Errorf("they have %s", got)
	}
	r, err := postgres.Inspect(t.Context(), in("two"))
	if err != nil {
		t.Fatal(err)
	}
	seen := make(map[string]bool)
	for _, table := range r.Tables {
		if seen[table.Name] {
			t.Errorf("%s is there twice", table.Name)
		}
		seen[table.Name] = strings.HasPrefix(table.Name, "leasehold_")
	}
	if !seen["leasehold_log"] {
		t.Errorf("the report has %v", r.Tables)
	}
}

// A command, or a server that starts, asks a database that may be far away, where each round
// trip is slow.
func TestCommandsMakeFewRoundTrips(t *testing.T) {
	t.Parallel()
	dsn := postgrestest.Database(t)
	put(t, mustOpen(t, postgres.Options{DSN: dsn, SingleNode: true}), "key")
	for name, c := range map[string]struct {
		most int // with those that begin and end a connection
		ask  func(postgres.Options) error
	}{
		"Look": {8, func(o postgres.Options) error {
			c, err := postgres.FindCluster(t.Context(), o)
			if err != nil {
				return err
			}
			defer c.Close()
			_, err = c.Look(t.Context())
			return err
		}},
		"Inspect": {2*11 + 14, func(o postgres.Options) error { // it takes the median of 11
			_, err := postgres.Inspect(t.Context(), o)
			return err
		}},
		"OpenCluster, which makes the schema": {28, func(o postgres.Options) error {
			postgrestest.Exec(t, dsn, "CREATE SCHEMA fresh")
			o.DSN += " search_path=fresh"
			c, err := postgres.OpenCluster(t.Context(), o, 0)
			if err == nil {
				c.Close()
			}
			return err
		}},
		"Open": {42, func(o postgres.Options) error {
			e, err := postgres.Open(t.Context(), o)
			if err != nil {
				return err
			}
			return e.Close()
		}},
	} {
		n, through := between(t, dsn)
		if err := c.ask(postgres.Options{DSN: through, SingleNode: true, Patience: time.Minute}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		n.mu.Lock()
		t.Logf("%s asks %d times", name, n.asked)
		if n.asked > c.most {
			t.Errorf("%s asks %d times, and %d would do", name, n.asked, c.most)
		}
		n.mu.Unlock()
	}
}

// An old version of PostgreSQL is known by what it says at the start of a connection.
func TestOldVersionsAreKnown(t *testing.T) {
	for version, old := range map[string]bool{
		"9.6.24": true, "12.22": true, "14.23 (Debian 14.23-1.pgdg12+1)": true,
		"15.0": false, "15.14 (Debian 15.14-0+deb12u1)": false, "18beta1": false, "19devel": false, "": false,
	} {
		if got := postgres.TooOld(version); got != old {
			t.Errorf("%q: %v", version, got)
		}
	}
}

package postgres_test

import (
	"strings"
	"testing"

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

package postgres_test

import (
	"strings"
	"testing"
	"time"

	"github.com/leasehold/leasehold/engine/postgres"
	"github.com/leasehold/leasehold/engine/postgres/postgrestest"
)

// Row security, which somebody turned on for a table, does not make the records look
// as if they were not there. It is told, and the state is there once it is off.
func TestRowSecurityHidesNoRecords(t *testing.T) {
	t.Parallel()
	s := postgrestest.Start(t)
	postgrestest.Exec(t, s.DSN(), "CREATE ROLE owner LOGIN")
	postgrestest.Exec(t, s.DSN(), "GRANT CREATE ON SCHEMA public TO owner")
	o := postgres.Options{DSN: strings.Replace(s.DSN(), "user=test", "user=owner", 1), Partition: 1, SingleNode: true, FoldSize: 1}
	e := mustOpen(t, o)
	const records = "SELECT count(*) FROM leasehold_record WHERE encode(key, 'escape') LIKE '%early'"
	put(t, e, "early", "~early")
	put(t, e, "late")
	for query[int](t, s.DSN(), records) < 2 {
		time.Sleep(10 * time.Millisecond) // until a fold has written them
		put(t, e, "late")
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	postgrestest.Exec(t, s.DSN(), "ALTER TABLE leasehold_record ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY")
	hidden, err := postgres.Open(t.Context(), o)
	if err == nil {
		t.Errorf("it has %q", keys(t, hidden))
		_ = hidden.Close()
	} else if got, want := postgres.Reason(err), "its user has too few rights in its database"; got != want {
		t.Errorf("the reason of %v is %q", err, got)
	}
	postgrestest.Exec(t, s.DSN(), "ALTER TABLE leasehold_record DISABLE ROW LEVEL SECURITY")
	if got := keys(t, mustOpen(t, o)); got != "early late ~early" {
		t.Errorf("it has %q", got)
	}
}

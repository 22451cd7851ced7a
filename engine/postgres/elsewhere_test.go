package postgres_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/leasehold/leasehold/engine/postgres"
	"github.com/leasehold/leasehold/engine/postgres/postgrestest"
)

// A search_path that no longer finds the tables makes no second, empty state, whose
// tokens would begin again. The state is there when the search_path finds it again.
func TestAnotherSearchPathMakesNoEmptyState(t *testing.T) {
	t.Parallel()
	dsn := postgrestest.Database(t)
	o := postgres.Options{DSN: dsn, Partition: 1, SingleNode: true}
	e := mustOpen(t, o)
	put(t, e, "a")
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	alter := func(what string) {
		t.Helper()
		postgrestest.Exec(t, dsn, "DO $$BEGIN EXECUTE format('ALTER DATABASE %I "+what+"', current_database()); END$$")
	}
	postgrestest.Exec(t, dsn, "CREATE SCHEMA other")
	alter("SET search_path = other")
	for what, do := range map[string]func() error{
		"open":    func() error { _, err := postgres.Open(t.Context(), o); return err },
		"cluster": func() error { _, err := postgres.OpenCluster(t.Context(), o, 0); return err },
		"find":    func() error { _, err := postgres.FindCluster(t.Context(), o); return err },
		"inspect": func() error { r, err := postgres.Inspect(t.Context(), o); return errors.Join(r.Elsewhere, err) },
	} {
		err := do()
		if !errors.Is(err, postgres.ErrElsewhere) || !strings.Contains(err.Error(), `of user "test": they are in schema "public"`) {
			t.Errorf("%s: %v", what, err)
		}
		if got := postgres.Reason(err); got != postgres.ErrElsewhere.Error() {
			t.Errorf("%s: the reason is %q", what, got)
		}
	}
	if n := query[int](t, dsn, "SELECT count(*) FROM pg_tables WHERE schemaname = 'other'"); n != 0 {
		t.Errorf("it made %d tables", n)
	}
	alter("RESET search_path")
	if got := keys(t, mustOpen(t, o)); got != "a" {
		t.Errorf("it has %q", got)
	}
}

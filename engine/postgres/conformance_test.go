package postgres_test

import (
	"flag"
	"sync/atomic"
	"testing"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/enginetest"
	"github.com/leasehold/leasehold/engine/postgres"
	"github.com/leasehold/leasehold/engine/postgres/postgrestest"
)

func TestMain(m *testing.M) {
	flag.Parse()
	// A history opens the state many times, and each opening makes connections.
	if f := flag.Lookup("rapid.checks"); f.Value.String() == f.DefValue {
		_ = f.Value.Set("10")
	}
	postgrestest.Main(m)
}

// partitions are given to tests one by one, so that one database is enough.
var partitions atomic.Int64

// TestOnPostgreSQL runs the suite, once with what was written in the log and once
// with every round of it folded into the records at once.
func TestOnPostgreSQL(t *testing.T) {
	t.Parallel()
	for name, size := range map[string]int{"in the log": 0, "in the records": 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn := postgrestest.Database(t)
			enginetest.Run(t, enginetest.Harness{
				New: func(t *testing.T) enginetest.State {
					partition := partitions.Add(1)
					crash := func() {
						next := partitions.Add(1)
						postgrestest.Exec(t, dsn, copySQL, partition, next)
						partition = next
					}
					return enginetest.State{
						Open: func() (engine.Engine, error) {
							return open(t, postgres.Options{DSN: dsn, Partition: partition, FoldSize: size, SingleNode: true, Logf: t.Logf})
						},
						Crash: crash,
						Kill:  crash,
					}
				},
			})
		})
	}
}

// copySQL makes another partition of what one has at this instant, as the process
// that leads it would leave it.
const copySQL = `WITH was AS (SELECT $1::bigint AS old, $2::bigint AS new),
records AS (INSERT INTO leasehold_record SELECT new, space, key, value FROM was JOIN leasehold_record ON partition = old),
epoch AS (INSERT INTO leasehold_partition SELECT new, epoch, timeline FROM was JOIN leasehold_partition ON partition = old)
INSERT INTO leasehold_log SELECT new, sequence, epoch, batch FROM was JOIN leasehold_log ON partition = old`

// open keeps a nil *Engine from becoming an Engine that is not nil.
func open(t *testing.T, o postgres.Options) (engine.Engine, error) {
	e, err := postgres.Open(t.Context(), o)
	if err != nil {
		return nil, err
	}
	return e, nil
}

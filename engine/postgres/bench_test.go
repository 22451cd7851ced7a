package postgres_test

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/postgres"
	"github.com/leasehold/leasehold/engine/postgres/postgrestest"
)

// BenchmarkUpdate compares an Update of one row with a statement that writes a row of
// that size, from as many goroutines on as many connections.
func BenchmarkUpdate(b *testing.B) {
	dsn := postgrestest.Database(b)
	e, err := postgres.Open(b.Context(), postgres.Options{DSN: dsn, SingleNode: true})
	if err != nil {
		b.Fatal(err)
	}
	defer e.Close()
	cfg, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		b.Fatal(err)
	}
	cfg.MaxConns = 64
	pool, err := pgxpool.NewWithConfig(b.Context(), cfg)
	if err != nil {
		b.Fatal(err)
	}
	defer pool.Close()
	postgrestest.Exec(b, dsn, "CREATE TABLE plain (key bytea PRIMARY KEY, value bytea)")
	value := make([]byte, 150)
	var n atomic.Int64
	key := func() string { return fmt.Sprintf("key%012d", n.Add(1)) }
	for _, callers := range []int{1, 8, 64} {
		for name, put := range map[string]func() error{
			"engine": func() error {
				return e.Update(b.Context(), func(tx engine.Tx) error {
					tx.Put(engine.Row{Key: key(), Value: string(value)})
					return nil
				})
			},
			"statement": func() error {
				_, err := pool.Exec(b.Context(), "INSERT INTO plain VALUES ($1, $2)", []byte(key()), value)
				return err
			},
		} {
			b.Run(fmt.Sprintf("%s/%d", name, callers), func(b *testing.B) {
				b.SetParallelism(callers / 2) // of two processors
				if callers == 1 {
					for b.Loop() {
						if err := put(); err != nil {
							b.Fatal(err)
						}
					}
					return
				}
				b.RunParallel(func(pb *testing.PB) {
					for pb.Next() {
						if err := put(); err != nil {
							b.Error(err)
							return
						}
					}
				})
			})
		}
	}
}

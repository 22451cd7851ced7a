package postgres

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Connections are what the partitions that a process leads share of a database: all
// but one connection of each, by which it writes.
type Connections struct {
	short, long, fold *pgxpool.Pool // for reads, for snapshots, and for folds
	folds             chan struct{} // has one in it for each fold under way
}

const (
	readers   = 4 // connections for reads, which are short
	snapshots = 8 // and for snapshots, each of which keeps one
	folders   = 2 // folds at a time
)

// Connect readies connections, of which none is made yet. Of o it takes where the
// database is.
func Connect(ctx context.Context, o Options) (_ *Connections, err error) {
	cfg, err := o.withDefaults().config()
	if err != nil {
		return nil, err
	}
	c := &Connections{folds: make(chan struct{}, folders)}
	for pool, size := range map[**pgxpool.Pool]int32{&c.short: readers, &c.long: snapshots, &c.fold: folders} {
		cfg := cfg.Copy()
		cfg.MaxConns = size
		if *pool, err = pgxpool.NewWithConfig(ctx, cfg); err != nil {
			c.Close()
			return nil, err
		}
	}
	return c, nil
}

// Close closes them. Nobody uses them any more.
func (c *Connections) Close() {
	for _, pool := range []*pgxpool.Pool{c.short, c.long, c.fold} {
		if pool != nil {
			pool.Close()
		}
	}
}

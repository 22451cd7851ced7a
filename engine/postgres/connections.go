package postgres

import (
	"context"
	"net"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Connections are the connections to a database that the partitions led by a
// process share.
type Connections struct {
	writer            *writer
	short, long, fold *pgxpool.Pool // for reads, for snapshots, and for folds
	folds             chan struct{} // contains an element for each running fold
	timeline          atomic.Int64  // of the database where a lead was last taken
}

const (
	readers   = 4 // connections for reads, which are short
	snapshots = 8 // connections for snapshots, each of which keeps one
	folders   = 2 // how many folds run at a time
)

// Connect returns connections that are made when they are needed. Of o it uses
// where the database is.
func Connect(ctx context.Context, o Options) (_ *Connections, err error) {
	o = o.withDefaults()
	cfg, err := o.config()
	if err != nil {
		return nil, err
	}
	c := &Connections{folds: make(chan struct{}, folders)}
	keep := cfg.ConnConfig.OnPgError
	cfg.ConnConfig.OnPgError = func(conn *pgconn.PgConn, e *pgconn.PgError) bool {
		if e.Code == readOnly {
			c.renew() // those that only read would go on with it
		}
		return keep(conn, e)
	}
	for pool, size := range map[**pgxpool.Pool]int32{&c.short: readers, &c.long: snapshots, &c.fold: folders} {
		cfg := cfg.Copy()
		cfg.MaxConns, cfg.AfterConnect = size, seeAll
		if pool == &c.short {
			cfg.MinConns = 1 // transactions read, and all wait for one that cannot
		}
		if *pool, err = pgxpool.NewWithConfig(ctx, cfg); err != nil {
			c.Close()
			return nil, err
		}
	}
	c.writer = startWriter(ctx, o, cfg, c.renew)
	return c, nil
}

// renew closes all that are not in use, and the others after their use: one of
// them leads nowhere, and so they all may.
func (c *Connections) renew() {
	for _, pool := range []*pgxpool.Pool{c.short, c.long, c.fold} {
		pool.Reset()
	}
}

// lastWords is how long a connection that did not answer is listened to before it
// is closed.
const lastWords = time.Second

// A lostConn is closed soon after it was found to lead nowhere. Otherwise pgx waits
// 15 s for what the database may say last, and until then a pool makes no other
// connection in its place.
type lostConn struct{ net.Conn }

func (c lostConn) SetDeadline(t time.Time) error {
	if latest := time.Now().Add(lastWords); t.After(latest) {
		t = latest
	}
	return c.Conn.SetDeadline(t)
}

// Close closes them. They must not be used any more.
func (c *Connections) Close() {
	if c.writer != nil {
		c.writer.close()
	}
	for _, pool := range []*pgxpool.Pool{c.short, c.long, c.fold} {
		if pool != nil {
			pool.Close()
		}
	}
}

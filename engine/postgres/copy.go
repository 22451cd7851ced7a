package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/leasehold/leasehold/engine/cluster"
	"github.com/leasehold/leasehold/engine/memory"
)

// ErrServed says that servers use a database that should be copied, or copied
// to.
var ErrServed = errors.New("servers use this database")

// OpenStore opens the records of a partition without an engine, to copy them;
// see [memory.Copy]. No server may lead the partition meanwhile: see [Reserve].
func OpenStore(ctx context.Context, o Options) (memory.Store, error) {
	s, err := openAlone(ctx, o)
	if err != nil {
		return nil, err
	}
	return s, nil
}

// openAlone opens a store without an engine.
func openAlone(ctx context.Context, o Options) (*store, error) {
	o = o.withDefaults()
	s, err := openStore(ctx, o, func(err error) { o.Logf("engine: %v", err) })
	if err != nil {
		return nil, fmt.Errorf("engine: open partition %d: %w", o.Partition, err)
	}
	return s, nil
}

// OpenAll opens the records of all partitions of a database, to read them. It
// migrates an earlier schema. All of them together use no more connections than a
// server.
func OpenAll(ctx context.Context, o Options) (all memory.Union, err error) {
	c, _, err := findCluster(ctx, o)
	if err != nil {
		return nil, err
	}
	c.Close()
	for partition := range c.Partitions() {
		o.Partition = int64(partition)
		s, err := openAlone(ctx, o)
		if err != nil {
			return nil, errors.Join(err, all.Close())
		}
		s.disconnect() // it appends nothing
		o.Connections = s.conns
		all = slices.Insert(all, 0, memory.Store(s)) // what the first has connected is closed last
	}
	return all, nil
}

// Settle gives a database, into whose first partition a state was copied, its
// number of partitions. Later runs are spread over all of them; those of the
// state stay.
func Settle(ctx context.Context, o Options, partitions int, runs []string) error {
	c, err := openCluster(ctx, o, 0, true) // it counts the partitions there are
	if err != nil {
		return err
	}
	defer c.Close()
	return pgx.BeginFunc(ctx, c.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "UPDATE leasehold_cluster SET partitions = $1", partitions); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, "INSERT INTO leasehold_settled (run) SELECT unnest($1::text[]) ON CONFLICT (run) DO NOTHING", runs); err != nil {
			return err
		}
		_, err := partition(ctx, tx, partitions)
		return err
	})
}

// Unserved returns [ErrServed] if a server of the database beats within
// silence, which must be the longest time between two beats. The database may
// have an earlier schema, and keeps it.
func Unserved(ctx context.Context, o Options, silence time.Duration) error {
	c, _, err := findCluster(ctx, o)
	if errors.Is(err, ErrNoSchema) {
		return nil
	}
	if err != nil {
		return err
	}
	defer c.Close()
	before, err := c.beats(ctx)
	if err != nil || len(before) == 0 {
		return err
	}
	select {
	case <-time.After(silence):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	after, err := c.beats(ctx)
	if err != nil {
		return err
	}
	beats := make(map[uuid.UUID]int64)
	for _, s := range before {
		beats[s.ID] = s.Beats
	}
	var serving []string
	for _, s := range after {
		if n, known := beats[s.ID]; !known || n != s.Beats {
			where := s.Name
			if s.Address != "" {
				where += " at " + s.Address
			}
			serving = append(serving, where)
		}
	}
	if len(serving) > 0 {
		return fmt.Errorf("%w: %s", ErrServed, strings.Join(serving, ", "))
	}
	return nil
}

// ErrCopying says that another process copies a state into or out of a database.
var ErrCopying = errors.New("another process copies a state into this database, or out of it")

// copyLock is an advisory lock on a state in a database. The number is "leas".
const copyLock = "(1818583411, hashtext(coalesce(current_schema(), '')))"

// unreservedSQL is true unless a copy has the database.
const unreservedSQL = "pg_try_advisory_xact_lock_shared" + copyLock

// unreserved returns [ErrCopying] while a copy has the database.
func unreserved(ctx context.Context, conn *pgx.Conn) error {
	var free bool
	err := conn.QueryRow(ctx, "SELECT "+unreservedSQL).Scan(&free)
	if err == nil && !free {
		err = ErrCopying
	}
	return err
}

// Reserve reserves a database for a copy, and returns [ErrCopying] while another
// has it. Without this, another copy, or a server that starts, would take the lead from
// the copy in the middle of its work. The end of the connection ends the reservation.
func Reserve(ctx context.Context, o Options) (release func(), err error) {
	o = o.withDefaults()
	cfg, err := o.config()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, o.Patience)
	defer cancel()
	conn, err := dial(ctx, cfg)
	if err != nil {
		return nil, err
	}
	var got bool
	// A copy may take longer than a connection may be idle.
	if err = stayIdle(ctx, conn); err == nil {
		err = conn.QueryRow(ctx, "SELECT pg_try_advisory_lock"+copyLock).Scan(&got)
	}
	if err == nil && !got {
		err = ErrCopying
	}
	if err != nil {
		disconnect(conn)
		return nil, err
	}
	return func() {
		// The database may read later that the connection has ended, when another copy
		// has already begun.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), o.Patience)
		defer cancel()
		_, _ = conn.Exec(ctx, "SELECT pg_advisory_unlock_all()") // else the end of the connection does it
		disconnect(conn)
	}, nil
}

// beats returns what every schema has of the servers.
func (c *Cluster) beats(ctx context.Context) ([]cluster.Server, error) {
	rows, err := c.pool.Query(ctx, "SELECT id, address, name, beats FROM leasehold_server ORDER BY id")
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (s cluster.Server, err error) {
		return s, row.Scan(&s.ID, &s.Address, &s.Name, &s.Beats)
	})
}

// Restored records that a database was restored from a copy, which the database
// itself may not know: see [engine.CopyRow]. Later tokens are then greater than all that
// were issued after the copy was made, and if the same copy is restored again, greater
// than those that were issued in between. No server may use the database. Restored
// migrates the schema of a copy that was made by an earlier version: if a server
// had to do that first, it would issue those tokens again.
func Restored(ctx context.Context, o Options) (partitions int, err error) {
	c, _, err := findCluster(ctx, o)
	if err != nil {
		return 0, err
	}
	c.Close()
	o = o.withDefaults()
	o.SingleNode = true // the servers check it
	for partition := range c.Partitions() {
		o.Partition = int64(partition)
		s, err := openAlone(ctx, o)
		if err != nil {
			return partition, err
		}
		if !s.leapt { // it did not find out by itself
			err = s.leap(ctx, o.Clock, 0) // nothing is appended, so nobody else uses the connection
		}
		if err == nil {
			err = memory.NoteCopy(s)
		}
		if err = errors.Join(err, s.Close()); err != nil {
			return partition, err
		}
	}
	return c.Partitions(), nil
}

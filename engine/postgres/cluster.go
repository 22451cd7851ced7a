package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/leasehold/leasehold/engine/cluster"
)

// A Cluster is the database as the servers that share it see it.
type Cluster struct {
	pool       *pgxpool.Pool
	partitions int
	settled    []string
	patience   time.Duration
}

var _ cluster.Database = (*Cluster)(nil)

// DefaultPartitions is the number of partitions over which a new database
// spreads its runs.
const DefaultPartitions = 1

// MaxPartitions is the largest number of partitions. Each costs its leader some
// memory and goroutines.
const MaxPartitions = 64

// OpenCluster creates or migrates the schema of a database and creates its
// partitions, if it has none. If it has partitions, their number stays, and a
// different one is refused unless it is 0. Of o it uses where the database is
// and what is required of it. While a copy has the database, it returns
// [ErrCopying].
func OpenCluster(ctx context.Context, o Options, partitions int) (*Cluster, error) {
	return openCluster(ctx, o, partitions, false)
}

// openCluster is OpenCluster, and copying is set if the copy itself calls it.
func openCluster(ctx context.Context, o Options, partitions int, copying bool) (*Cluster, error) {
	o = o.withDefaults()
	cfg, err := o.config()
	if err != nil {
		return nil, err
	}
	cfg.MaxConns = 2
	// The database may be far away, and each statement should cost one round trip.
	cfg.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
	cfg.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error { return prepare(ctx, conn, o.SingleNode) }
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, err
	}
	var there int
	var settled []string
	var version string
	err = patiently(ctx, o.Patience, o.Logf, func(ctx context.Context) error {
		// Both at a time, because each may first ask hosts that do not answer.
		var other *pgx.Conn
		var failed error
		var dialing sync.WaitGroup
		dialing.Go(func() { other, failed = dial(ctx, cfg) })
		conn, err := pool.Acquire(ctx)
		dialing.Wait()
		defer disconnect(other)
		if err == nil {
			defer conn.Release()
		}
		if err := cmp.Or(failed, err); err != nil {
			return err
		}
		if err := checkSessions(ctx, conn.Conn(), other); err != nil {
			return err
		}
		version = conn.Conn().PgConn().ParameterStatus("server_version")
		if !copying {
			if err := unreserved(ctx, conn.Conn()); err != nil {
				return err
			}
		}
		if err := migrate(ctx, conn.Conn()); err != nil {
			return err
		}
		return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) (err error) {
			if there, err = partition(ctx, tx, cmp.Or(partitions, DefaultPartitions)); err != nil {
				return err
			}
			settled, err = collect(ctx, tx, "SELECT run FROM leasehold_settled ORDER BY run", pgx.RowTo[string])
			return err
		})
	})
	if tooOld(version) {
		o.Logf("engine: the database says that it is PostgreSQL %s, with which nothing is tested; use %d or later", version, Oldest)
	}
	if err == nil && partitions != 0 && partitions != there {
		err = fmt.Errorf("%w: it has %d, and not %d", ErrPartitions, there, partitions)
	}
	if err != nil {
		pool.Close()
		return nil, fmt.Errorf("open the database: %w", err)
	}
	return &Cluster{pool, there, settled, o.Patience}, nil
}

// Oldest is the first version of PostgreSQL with which everything is tested.
const Oldest = 15

// tooOld reports whether a version, as a server says it, is before Oldest.
func tooOld(version string) bool {
	var major int
	_, err := fmt.Sscanf(version, "%d", &major)
	return err == nil && major < Oldest
}

// ErrPooled says that connections have no session of their own in the database,
// so that prepared statements and locks would be those of others.
var ErrPooled = errors.New("a pooler lets several connections share a session of the database")

// checkSessions returns [ErrPooled] if two connections are the same for the database, or
// one of them is not the same as before. A pooler that shares sessions takes the one that
// was used last, or each in turn, and may have a new one between two of the questions.
func checkSessions(ctx context.Context, one, two *pgx.Conn) error {
	at := make(map[*pgx.Conn]string)
	for _, conn := range []*pgx.Conn{one, two, two, one} {
		var pid string
		if err := conn.QueryRow(ctx, "SELECT pg_backend_pid()::text", pgx.QueryExecModeSimpleProtocol).Scan(&pid); err != nil {
			return err
		}
		if was, asked := at[conn]; asked && was != pid {
			return ErrPooled
		}
		at[conn] = pid
	}
	if at[one] == at[two] {
		return ErrPooled
	}
	return nil
}

// ErrPartitions says that a database cannot have the requested number of
// partitions.
var ErrPartitions = errors.New("the number of partitions is fixed when a database is first used")

// partition creates the partitions of a database that has none, and returns
// their number.
func partition(ctx context.Context, tx pgx.Tx, asked int) (there int, err error) {
	// A concurrent caller waits for the row. If there are partitions but no
	// row, the partitions were created by a copy into the database.
	if _, err := tx.Exec(ctx, `INSERT INTO leasehold_cluster (partitions)
SELECT CASE WHEN EXISTS (SELECT 1 FROM leasehold_partition) THEN (SELECT count(*) FROM leasehold_partition) ELSE $1::bigint END
ON CONFLICT (whole) DO NOTHING`, asked); err != nil {
		return 0, err
	}
	if err := tx.QueryRow(ctx, "SELECT partitions FROM leasehold_cluster").Scan(&there); err != nil {
		return 0, err
	}
	_, err = tx.Exec(ctx, `INSERT INTO leasehold_partition (partition, epoch)
SELECT n, 0 FROM generate_series(0, $1::bigint - 1) AS n ON CONFLICT (partition) DO NOTHING`, there)
	return there, err
}

// Partitions returns the number of partitions.
func (c *Cluster) Partitions() int { return c.partitions }

// Settled returns the runs that are in the first partition, whatever their names.
// Only a Cluster from [OpenCluster] knows them.
func (c *Cluster) Settled() []string { return c.settled }

// ErrNoSchema says that no server has used the database yet.
var ErrNoSchema = errors.New("no server has used this database yet")

// FindCluster connects to an existing cluster and changes nothing. Of o it uses
// where the database is. The database must have the schema of this program.
func FindCluster(ctx context.Context, o Options) (*Cluster, error) {
	c, version, err := findCluster(ctx, o)
	if err != nil {
		return nil, err
	}
	if known, err := lastMigration(); err != nil || version != known {
		c.Close()
		return nil, cmp.Or(err, otherSchema(version, known))
	}
	return c, nil
}

// findCluster is FindCluster of a database whose schema may be an earlier one,
// and returns its version. What asks such a database must use only what that
// schema has, too. It waits for the database for as long as o.Patience.
func findCluster(ctx context.Context, o Options) (c *Cluster, version int, err error) {
	o = o.withDefaults()
	cfg, err := o.config()
	if err != nil {
		return nil, 0, err
	}
	cfg.MaxConns = 2
	// A command asks little: the database may be far away.
	cfg.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
	cfg.ShouldPing = func(context.Context, pgxpool.ShouldPingParams) bool { return false }
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, 0, err
	}
	var partitions int
	err = within(ctx, o.Patience, func(ctx context.Context) error {
		return pool.AcquireFunc(ctx, func(conn *pgxpool.Conn) error {
			known, err := lastMigration()
			if err != nil {
				return err
			}
			version, err = schemaVersion(ctx, conn.Conn())
			switch {
			case undefinedTable(err):
				return cmp.Or(elsewhere(ctx, conn.Conn()), ErrNoSchema)
			case err == nil && version > known:
				return otherSchema(version, known)
			case err != nil:
				return err
			}
			return conn.QueryRow(ctx, "SELECT count(*) FROM leasehold_partition").Scan(&partitions)
		})
	})
	if err != nil {
		pool.Close()
		return nil, 0, err
	}
	return &Cluster{pool: pool, partitions: partitions, patience: o.Patience}, version, nil
}

func otherSchema(version, known int) error {
	return fmt.Errorf("the schema of the database is version %d, and this program knows %d: use the version that its servers have", version, known)
}

// Close closes the connections.
func (c *Cluster) Close() { c.pool.Close() }

// Register implements [cluster.Database].
func (c *Cluster) Register(ctx context.Context, s cluster.Server) error {
	tag, err := c.pool.Exec(ctx, "INSERT INTO leasehold_server (id, address, process, beats, draining, name, version) SELECT $1, $2, $3, 0, $4, $5, $6 WHERE "+unreservedSQL,
		s.ID, s.Address, s.Process, s.Draining, s.Name, s.Version)
	if err == nil && tag.RowsAffected() == 0 {
		err = ErrCopying
	}
	return err
}

// Beat implements [cluster.Database] in one round trip. It may read rows of
// different instants, so a statement that acts on them must check what it
// relies on.
func (c *Cluster) Beat(ctx context.Context, id uuid.UUID, connections int64) (look cluster.Look, there bool, err error) {
	var b pgx.Batch
	b.Queue("UPDATE leasehold_server SET beats = beats + 1, connections = $2 WHERE id = $1", id, connections).Exec(func(tag pgconn.CommandTag) error {
		there = tag.RowsAffected() == 1
		return nil
	})
	b.Queue(serversSQL).Query(func(rows pgx.Rows) (err error) {
		look.Servers, err = pgx.CollectRows(rows, scanServer)
		return err
	})
	b.Queue(partitionsSQL).Query(func(rows pgx.Rows) (err error) {
		look.Partitions, err = pgx.CollectRows(rows, scanPartition)
		return err
	})
	err = c.pool.SendBatch(ctx, &b).Close() // the beat has failed if this has
	return look, there && err == nil, err
}

const (
	serversSQL    = "SELECT id, address, process, beats, draining, name, version, connections FROM leasehold_server ORDER BY id"
	partitionsSQL = "SELECT partition, epoch, coalesce(leader, '00000000-0000-0000-0000-000000000000') FROM leasehold_partition ORDER BY partition"
)

func scanServer(row pgx.CollectableRow) (s cluster.Server, err error) {
	return s, row.Scan(&s.ID, &s.Address, &s.Process, &s.Beats, &s.Draining, &s.Name, &s.Version, &s.Connections)
}

func scanPartition(row pgx.CollectableRow) (p cluster.Partition, err error) {
	return p, row.Scan(&p.Number, &p.Epoch, &p.Leader)
}

// Remove implements [cluster.Database].
func (c *Cluster) Remove(ctx context.Context, id uuid.UUID, beats int64) error {
	_, err := c.pool.Exec(ctx, "DELETE FROM leasehold_server WHERE id = $1 AND beats = $2", id, beats)
	return err
}

// Drain implements [cluster.Database].
func (c *Cluster) Drain(ctx context.Context, id uuid.UUID) error { return c.SetDraining(ctx, id, true) }

// SetDraining sets whether a server should lead nothing.
func (c *Cluster) SetDraining(ctx context.Context, id uuid.UUID, draining bool) error {
	return within(ctx, c.patience, func(ctx context.Context) error {
		_, err := c.pool.Exec(ctx, "UPDATE leasehold_server SET draining = $2 WHERE id = $1", id, draining)
		return err
	})
}

// Leave implements [cluster.Database].
func (c *Cluster) Leave(ctx context.Context, id uuid.UUID) error {
	_, err := c.pool.Exec(ctx, "DELETE FROM leasehold_server WHERE id = $1", id)
	return err
}

// Release implements [cluster.Database]. A statement whose answer is lost may
// reach the database later, when the server leads again. It names the epoch, and
// then does nothing.
func (c *Cluster) Release(ctx context.Context, partition int64, leader uuid.UUID) error {
	var epoch int64
	err := c.pool.QueryRow(ctx, "SELECT epoch FROM leasehold_partition WHERE partition = $1 AND leader = $2", partition, leader).Scan(&epoch)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil // another leads, or nobody
	}
	if err == nil {
		_, err = c.pool.Exec(ctx, "UPDATE leasehold_partition SET leader = NULL WHERE partition = $1 AND leader = $2 AND epoch = $3", partition, leader, epoch)
	}
	return err
}

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/leasehold/leasehold/engine/postgres"
	"github.com/leasehold/leasehold/registry"
)

// The setup for many machines is measured on one database. Leasehold, plain SQL and River
// use it, and etcd uses the same disk. All of them sync every commit.

const (
	takeOwn   operation = "acquire+release" // each worker a key of its own
	takeTurns operation = "hand-over"       // all workers one key
)

var databaseOperations = []operation{takeOwn, takeTurns, enqueue, cycle, enqueueMany, cycleMany}

// databaseEnv names the database for a daemon that bench starts.
const databaseEnv = "LEASEHOLD_BENCH_POSTGRES"

// Partitions of the database, one for each of Leasehold's contenders.
const (
	libraryPartition = 0
	daemonPartition  = 1
)

const (
	library = "leasehold"
	doorway = "leasehold, socket"
)

// compareDatabases measures all contenders and reports.
func compareDatabases(ctx context.Context, cfg config, stdout, stderr io.Writer) (err error) {
	dir, err := os.MkdirTemp(cfg.Dir, "leasehold-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o711); err != nil {
		return err
	}
	db, err := startPostgres(ctx, place{dir, "postgres"})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.close()) }()
	var contenders []*contender
	defer func() {
		for _, c := range slices.Backward(contenders) {
			err = errors.Join(err, c.close())
		}
	}()
	for _, e := range []struct {
		name  string
		start func() (*contender, error)
	}{
		{library, func() (*contender, error) { return libraryOn(ctx, db) }},
		{doorway, func() (*contender, error) { return doorwayOn(ctx, db, place{dir, doorway}) }},
		{"plain sql", func() (*contender, error) {
			c, err := plainOn(ctx, db)
			if err == nil { // of the server, and so of all
				c.cpu = func() time.Duration { return cpuTimeBelow(db.cmd.Process.Pid) }
			}
			return c, err
		}},
		{"river", func() (*contender, error) {
			c, err := riverOn(ctx, db)
			if err == nil {
				c.close = func() error { return nil }
			}
			return c, err
		}},
		{"etcd", func() (*contender, error) { return startEtcd(ctx, place{dir, "etcd"}) }},
	} {
		c, err := e.start()
		if err != nil {
			return fmt.Errorf("%s: %w", e.name, err)
		}
		c.entrant = &entrant{name: e.name}
		contenders = append(contenders, c)
		fmt.Fprintf(stderr, "%s: %s\n", e.name, c.version)
	}
	fmt.Fprintln(stdout, machine())
	for _, workers := range cfg.Workers {
		t := newTrial(workers, contenders)
		for round := range cfg.Rounds {
			fmt.Fprintf(stderr, "%d clients, round %d of %d\n", workers, round+1, cfg.Rounds)
			for i := range contenders {
				if err := t.databaseRound(ctx, contenders[(i+round)%len(contenders)], contenders, cfg.Window); err != nil {
					return err
				}
			}
		}
		t.printDatabases(stdout, contenders)
	}
	return nil
}

// databaseRound measures one contender, each time when all are idle: a log that is folded,
// or a table that is vacuumed, would slow down the next.
func (r trial) databaseRound(ctx context.Context, c *contender, contenders []*contender, window time.Duration) error {
	for _, op := range databaseOperations {
		if !c.can(op) {
			continue
		}
		if op == cycle || op == cycleMany {
			if err := c.stock(ctx, r.expect(c, op, window)); err != nil {
				return err
			}
		}
		settle(contenders)
		before, err := c.committed(ctx)
		if err != nil {
			return err
		}
		s, err := c.measure(ctx, op, r.Workers, window)
		if err != nil {
			return err
		}
		after, err := c.committed(ctx)
		if err != nil {
			return err
		}
		r.Rates[c.name][op] = append(r.Rates[c.name][op], s.rate())
		r.commits[c.name][op] = append(r.commits[c.name][op], float64(after-before)/float64(s.tasks))
	}
	return nil
}

func (c *contender) committed(ctx context.Context) (int64, error) {
	if c.commits == nil {
		return 0, nil
	}
	return c.commits(ctx)
}

// commitsOf counts the commits of a partition.
func commitsOf(db *sqlServer, partition int) func(context.Context) (int64, error) {
	return func(ctx context.Context) (n int64, err error) {
		err = db.pool.QueryRow(ctx, "SELECT coalesce(max(sequence), 0) FROM leasehold_log WHERE partition = $1", partition).Scan(&n)
		return n, err
	}
}

func (r trial) printDatabases(out io.Writer, contenders []*contender) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "\n%d clients, a second\t", r.Workers)
	for _, op := range databaseOperations {
		fmt.Fprintf(w, "%s\t", op)
	}
	fmt.Fprintln(w)
	row := func(name string, cell func(op operation) float64, format string) {
		fmt.Fprintf(w, "%s\t", name)
		for _, op := range databaseOperations {
			if v := cell(op); v > 0 {
				fmt.Fprintf(w, format+"\t", v)
			} else {
				fmt.Fprint(w, "-\t")
			}
		}
		fmt.Fprintln(w)
	}
	for _, c := range contenders {
		row(c.name, func(op operation) float64 { return r.rate(c.name, op) }, "%.0f")
	}
	for _, ours := range []string{library, doorway} {
		row(ours+" to the best of the others", func(op operation) float64 {
			best := 0.0
			for _, c := range contenders {
				if c.name != library && c.name != doorway {
					best = max(best, r.rate(c.name, op))
				}
			}
			if best == 0 {
				return 0
			}
			return r.rate(ours, op) / best
		}, "%.2f")
	}
	for _, ours := range []string{library, doorway} {
		row(ours+", commits for one", func(op operation) float64 {
			if n := r.commits[ours][op]; len(n) > 0 {
				return median(n)
			}
			return 0
		}, "%.2f")
	}
	_ = w.Flush() // to a writer whose errors nobody waits for
}

// libraryOn starts Leasehold as a library over the database.
func libraryOn(ctx context.Context, db *sqlServer) (*contender, error) {
	eng, err := postgres.Open(ctx, postgres.Options{DSN: db.dsn(), SingleNode: true, Partition: libraryPartition})
	if err != nil {
		return nil, err
	}
	h, err := newHouse(eng)
	if err != nil {
		return nil, err
	}
	reg := h.core.Registry("run")
	take := func(ctx context.Context, worker int, key string) (int, error) {
		g, err := reg.Acquire(ctx, registry.Request{Key: key, Holder: h.holders[worker], TTL: claimTTL, Wait: 50 * time.Second})
		if err != nil {
			return 0, err
		}
		_, _, err = h.core.Release(ctx, h.holders[worker], g.ID)
		return 1, err
	}
	return &contender{
		version: "the working tree, in this process",
		steps: map[operation]step{
			takeOwn:     func(ctx context.Context, w int) (int, error) { return take(ctx, w, fmt.Sprint("own", w)) },
			takeTurns:   func(ctx context.Context, w int) (int, error) { return take(ctx, w, "baton") },
			enqueue:     h.enqueue,
			cycle:       h.cycle,
			enqueueMany: h.enqueueMany,
			cycleMany:   h.cycleMany,
		},
		commits: commitsOf(db, libraryPartition),
		close:   h.close,
	}, nil
}

// doorwayOn starts a daemon over the database.
func doorwayOn(ctx context.Context, db *sqlServer, p place) (*contender, error) {
	if err := os.Setenv(databaseEnv, db.dsn()); err != nil {
		return nil, err
	}
	defer os.Unsetenv(databaseEnv)
	c, err := startSocket(ctx, p)
	if err == nil {
		c.commits = commitsOf(db, daemonPartition)
	}
	return c, err
}

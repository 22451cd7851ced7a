package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// A writer appends the rounds of all partitions that a process leads. The rounds
// of several partitions share a round trip and a commit, because each commit
// costs the database about as much as appending ten more rounds.
type writer struct {
	cfg        *pgxpool.Config
	singleNode bool
	patience   time.Duration
	logf       func(format string, args ...any)
	lost       func() // called when the others may lead nowhere, or to another primary
	stop       context.CancelFunc
	running    sync.WaitGroup

	// Used only by run.
	conn *pgx.Conn // or nil

	mu    sync.Mutex
	ready []*store      // whose open round has something to write
	wake  chan struct{} // contains an element if some are ready
}

func startWriter(ctx context.Context, o Options, cfg *pgxpool.Config, lost func()) *writer {
	w := &writer{cfg: cfg, singleNode: o.SingleNode, patience: o.Patience, logf: o.Logf, lost: lost, wake: make(chan struct{}, 1)}
	ctx, w.stop = context.WithCancel(context.WithoutCancel(ctx))
	w.running.Go(func() { w.run(ctx) })
	return w
}

// close ends the writer. All its stores are closed.
func (w *writer) close() {
	w.stop()
	w.running.Wait()
	disconnect(w.conn)
}

// add notes that a store has something to write. It is called once for each
// round.
func (w *writer) add(s *store) {
	w.mu.Lock()
	w.ready = append(w.ready, s)
	w.mu.Unlock()
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// take closes the rounds of all stores that are ready.
func (w *writer) take() (rounds []*round) {
	w.mu.Lock()
	ready := w.ready
	w.ready = nil
	w.mu.Unlock()
	for _, s := range ready {
		rounds = append(rounds, s.take())
	}
	return rounds
}

func (w *writer) run(ctx context.Context) {
	for {
		select {
		case <-w.wake:
		case <-ctx.Done():
			return
		}
		rounds := w.take()
		if len(rounds) == 0 {
			continue
		}
		err := w.write(ctx, rounds)
		if err != nil && passes(err) {
			// Those that came meanwhile need not wait as long again.
			for _, r := range w.take() {
				r.end(err)
			}
		}
	}
}

// write appends rounds, and ends them. An error that patience may not cure can be
// the fault of one round, so each gets its own error then.
func (w *writer) write(ctx context.Context, rounds []*round) error {
	err := w.append(ctx, rounds)
	if err != nil && !passes(err) && len(rounds) > 1 {
		for _, r := range rounds {
			_ = w.write(ctx, []*round{r})
		}
		return nil
	}
	for _, r := range rounds {
		r.end(errors.Join(r.err, err))
	}
	return err
}

// If the answer to an append was lost, it is sent again and writes the row
// again; see the package's documentation. A network may then deliver the first
// one late, when a fold has already removed its row: it must leave no row below
// the others. Nor may a row follow one that is missing, as where a copy was restored
// under this process: nobody could open the log then.
const appendSQL = `INSERT INTO leasehold_log AS l (partition, sequence, epoch, batch)
SELECT partition, $2, epoch, $4 FROM leasehold_partition WHERE partition = $1 AND epoch = $3
AND $2 - coalesce((SELECT max(sequence) FROM leasehold_log WHERE partition = $1), 0) IN (0, 1) FOR SHARE
ON CONFLICT (partition, sequence) DO UPDATE SET batch = excluded.batch WHERE l.epoch = excluded.epoch`

// append writes rounds to the log. What is the matter with one of them alone is
// left in its err.
func (w *writer) append(ctx context.Context, rounds []*round) error {
	return patiently(ctx, w.patience, w.logf, func(ctx context.Context) (err error) {
		if w.conn == nil || w.conn.IsClosed() {
			if w.conn, err = connect(ctx, w.cfg, w.singleNode); err != nil {
				return err
			}
			w.lost() // the others may lead to the primary before, which can still be read
		} else {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, w.patience/3)
			defer cancel() // the connection may lead nowhere, as where a firewall has forgotten it
		}
		var b pgx.Batch
		for _, r := range rounds {
			if r.err == nil && r.store.checked != w.conn {
				if err := w.check(ctx, r); err != nil {
					return err
				}
			}
			if r.err != nil {
				continue
			}
			b.Queue(appendSQL, r.store.partition, r.sequence, r.store.epoch, r.batches).Exec(func(tag pgconn.CommandTag) error {
				if tag.RowsAffected() == 0 {
					r.err = ErrSuperseded
				}
				return nil
			})
		}
		// Without a transaction of its own, a batch is one.
		err = w.conn.SendBatch(ctx, &b).Close()
		for _, r := range rounds {
			if err == nil && r.err == ErrSuperseded {
				err = w.check(ctx, r) // perhaps it was not superseded, and the log is shorter
			}
		}
		if err == nil {
			err = replicated(w.conn)
		}
		if err == errUnwaited || slices.ContainsFunc(rounds, func(r *round) bool { return r.err != nil }) {
			w.disconnect() // perhaps it leads to a database that is primary no more
		}
		return err
	})
}

// check checks that the database to which there is a new connection still has
// what was logged. If it does not, check notes that for the next leader.
func (w *writer) check(ctx context.Context, r *round) error {
	s := r.store
	var last int64
	if err := w.conn.QueryRow(ctx, "SELECT coalesce(max(sequence), 0) FROM leasehold_log WHERE partition = $1", s.partition).Scan(&last); err != nil {
		return err
	}
	if last < s.logged {
		if _, err := w.conn.Exec(ctx, timelineSQL, s.partition, s.epoch, lostCommits); err != nil {
			return err
		}
		r.err = fmt.Errorf("%w: the log ends at %d, and %d was in it", ErrLost, last, s.logged)
	}
	s.checked = w.conn
	return nil
}

func (w *writer) disconnect() {
	disconnect(w.conn)
	w.conn = nil
}

// connect makes a connection to a database that is as durable as is required.
func connect(ctx context.Context, cfg *pgxpool.Config, singleNode bool) (*pgx.Conn, error) {
	conn, err := dial(ctx, cfg)
	if err != nil {
		return nil, err
	}
	if err := prepare(ctx, conn, singleNode); err != nil {
		disconnect(conn)
		return nil, err
	}
	return conn, nil
}

// prepare prepares a new connection, and refuses a database that is less durable
// than is required.
func prepare(ctx context.Context, conn *pgx.Conn, singleNode bool) error {
	if err := seeAll(ctx, conn); err != nil {
		return err
	}
	if err := stayIdle(ctx, conn); err != nil {
		return err
	}
	return checkDurable(ctx, conn, singleNode)
}

// seeAll makes statements fail if row security would hide rows from them, which
// would look like a state that has lost them. Statements see what was committed before
// them: in serializable transactions, beats of two servers at a time would fail.
func seeAll(ctx context.Context, conn *pgx.Conn) error {
	_, err := conn.Exec(ctx, "SELECT set_config('default_transaction_isolation', 'read committed', false), set_config('row_security', 'off', false)")
	if hasCode(err, "42704") {
		return nil // a database that has no row security
	}
	return err
}

// stayIdle lets a connection wait for longer than the database lets others. Otherwise the
// log would say after each quiet time that the database cannot be used.
func stayIdle(ctx context.Context, conn *pgx.Conn) error {
	_, err := conn.Exec(ctx, "SELECT set_config(name, '0', false) FROM pg_settings WHERE name = 'idle_session_timeout'")
	return err
}

func disconnect(conn *pgx.Conn) {
	if conn != nil {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = conn.Close(ctx) // nothing is in progress
	}
}

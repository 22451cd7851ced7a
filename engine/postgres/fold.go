package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// A fold is an overlay to be written to the records.
type fold struct {
	frozen  *overlay
	through int64       // the sequence of the last round in it
	older   []*snapshot // snapshots that must not see it in the records
}

// foldAll writes frozen overlays to the records, one after the other, until the
// store closes.
func (s *store) foldAll() {
	for {
		select {
		case <-s.ctx.Done():
			return
		case f := <-s.toFold:
			err := s.foldAtLast(f)
			switch {
			case s.ctx.Err() != nil:
				return // the next Open reads the log instead
			case err != nil:
				s.Fail(fmt.Errorf("write the log to the records: %w", err))
				return
			}
			s.mu.Lock()
			s.frozen = nil
			s.mu.Unlock()
		}
	}
}

const (
	longestFold = time.Hour
	foldPause   = 5 * time.Second // at most, between two attempts
)

// foldAtLast writes an overlay to the records, however long they are locked, or
// have no space: commits need only the log, and notice by themselves if the
// database is lost. Each attempt may take twice as long as the one before,
// because the overlay may be large, and the database slow.
func (s *store) foldAtLast(f fold) error {
	defer s.full.Store(false)
	for pause, limit := firstPause, s.patience; ; pause, limit = min(2*pause, foldPause), min(2*limit, longestFold) {
		err := s.foldWithin(limit, f)
		s.full.Store(hasCode(err, "53100"))
		if err == nil || !passes(err) || s.ctx.Err() != nil {
			return err
		}
		if pause == firstPause {
			s.logf("engine: the records of partition %d cannot be written; commits go on, and it is tried again: %v", s.partition, err)
		}
		select {
		case <-time.After(pause):
		case <-s.ctx.Done():
			return err
		}
	}
}

func (s *store) foldWithin(limit time.Duration, f fold) error {
	select { // before the time begins that the fold may take
	case s.conns.folds <- struct{}{}:
	case <-s.ctx.Done():
		return s.ctx.Err()
	}
	defer func() { <-s.conns.folds }()
	ctx, cancel := context.WithTimeout(s.ctx, limit)
	defer cancel()
	err := s.fold(ctx, f)
	if errors.Is(err, ErrLost) {
		_, unnoted := s.conns.fold.Exec(ctx, timelineSQL, s.partition, s.epoch, lostCommits)
		err = cmp.Or(unnoted, err)
	}
	return err
}

// foldChunk is about how many bytes one statement sends to the database.
const foldChunk = 1 << 20

// beginFold lets the database end the transaction of a fold whose process no
// longer sends statements, because it is frozen or its machine is lost. Such a
// transaction holds the partition's row, which the next leader waits for, and the
// database may learn of a lost machine only after hours. A fold that is ended
// although its process is only slow is tried again. Its statements are long, and
// the fold has a limit of its own.
const beginFold = "BEGIN; SELECT set_config(name, '0', true) " + longLimits + "; SET LOCAL idle_in_transaction_session_timeout = '5s'"

// fold writes an overlay to the records and removes it from the log, except the
// last row.
func (s *store) fold(ctx context.Context, f fold) error {
	for _, sn := range f.older {
		sn.mu.Lock()
		_ = sn.beginLocked() // its reader gets the error
		sn.mu.Unlock()
	}
	return pgx.BeginTxFunc(ctx, s.conns.fold, pgx.TxOptions{BeginQuery: beginFold}, func(tx pgx.Tx) error {
		// An earlier copy may have been restored while the fold waited. What the fold has
		// must not get into its records: the copy's log is older.
		var logged bool
		err := tx.QueryRow(ctx, `SELECT EXISTS (SELECT 1 FROM leasehold_log WHERE partition = $1 AND sequence = $3)
FROM leasehold_partition WHERE partition = $1 AND epoch = $2 FOR SHARE OF leasehold_partition`, s.partition, s.epoch, f.through).Scan(&logged)
		switch {
		case err == pgx.ErrNoRows:
			return ErrSuperseded
		case err != nil:
			return err
		case !logged:
			return fmt.Errorf("%w: the log has no %d, which was in it", ErrLost, f.through)
		}
		c := chunk{s: s, ctx: ctx, tx: tx}
		f.frozen.writes.Scan(func(at string, w write) bool { return c.add(at, w) })
		if c.err == nil {
			c.flush()
		}
		if c.err != nil {
			return c.err
		}
		_, err = tx.Exec(ctx, "DELETE FROM leasehold_log WHERE partition = $1 AND sequence < $2", s.partition, f.through)
		return err
	})
}

// A chunk is a set of writes of one space to be sent to the records.
type chunk struct {
	s     *store
	ctx   context.Context
	tx    pgx.Tx
	space byte
	keys  [][]byte
	text  [][]byte // their values
	gone  [][]byte
	size  int
	err   error
}

func (c *chunk) add(at string, w write) bool {
	if c.size > 0 && (at[0] != c.space || c.size > foldChunk) {
		c.flush()
	}
	c.space = at[0]
	c.size += writeSize + len(at) + len(w.value)
	if w.gone {
		c.gone = append(c.gone, []byte(at[1:]))
	} else {
		c.keys = append(c.keys, []byte(at[1:]))
		c.text = append(c.text, []byte(w.value))
	}
	return c.err == nil
}

// flush has each statement planned when it runs, because a plan made on an
// empty table is very slow on a large one. The statement is described before, so
// that pgx sends bytes as they are, and not as text in hexadecimal, which took a
// quarter of this process's time at 30 000 enqueues a second.
func (c *chunk) flush() {
	if len(c.gone) > 0 {
		_, c.err = c.tx.Exec(c.ctx, `DELETE FROM leasehold_record WHERE partition = $1 AND space = $2 AND key = ANY($3::bytea[])`,
			pgx.QueryExecModeDescribeExec, c.s.partition, int16(c.space), c.gone)
	}
	if len(c.keys) > 0 && c.err == nil {
		_, c.err = c.tx.Exec(c.ctx, `INSERT INTO leasehold_record (partition, space, key, value)
SELECT $1, $2, key, value FROM unnest($3::bytea[], $4::bytea[]) AS new (key, value)
ON CONFLICT (partition, space, key) DO UPDATE SET value = excluded.value`,
			pgx.QueryExecModeDescribeExec, c.s.partition, int16(c.space), c.keys, c.text)
	}
	c.keys, c.text, c.gone, c.size = nil, nil, nil, 0
}

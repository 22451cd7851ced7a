package postgres

import (
	"context"
	"errors"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/leasehold/leasehold/engine/memory"
)

// layers are the overlays in which a read looks before the records, the
// uppermost first. None is nil.
type layers []*overlay

func (l layers) get(at string) (w write, found bool) {
	for _, o := range l {
		if w, found = o.writes.Get(at); found {
			return w, true
		}
	}
	return w, false
}

func (s *store) overlaysLocked() layers {
	if s.frozen == nil {
		return layers{s.active}
	}
	return layers{s.active, s.frozen}
}

// layersLocked returns copies of the layers.
func (s *store) layersLocked() layers {
	l := s.overlaysLocked()
	for i := range l {
		l[i] = l[i].copy()
	}
	return l
}

// A querier is a pool or a transaction.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

const getSQL = "SELECT value FROM leasehold_record WHERE partition = $1 AND space = $2 AND key = $3"

// get reads a value from the records.
func (s *store) get(ctx context.Context, q querier, space memory.Space, key string) (value []byte, found bool, err error) {
	err = q.QueryRow(ctx, getSQL, s.partition, int16(space), []byte(key)).Scan(&value)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, false, nil
	}
	return value, err == nil, err
}

// Get implements [memory.Reader].
func (s *store) Get(space memory.Space, key string, read func(value []byte) error) (found bool, err error) {
	at := place(space, key)
	s.mu.Lock()
	w, found := s.overlaysLocked().get(at)
	s.mu.Unlock()
	switch {
	case found && w.gone:
		return false, nil
	case found:
		return true, read([]byte(w.value))
	}
	var value []byte
	err = s.mustRead(func(ctx context.Context) (err error) {
		value, found, err = s.get(ctx, s.conns.short, space, key)
		return err
	})
	if err != nil || !found {
		return false, err
	}
	return true, read(value)
}

// reading reads, and tries again if the connection was lost. The first attempt
// leaves time for another, because its connection may lead nowhere.
func (s *store) reading(read func(context.Context) error) error {
	limit := s.patience / 3
	return s.patiently(s.ctx, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		limit = s.patience
		err := read(ctx)
		if errors.Is(err, context.DeadlineExceeded) {
			s.conns.renew()
		}
		return err
	})
}

// mustRead is reading for transactions, for which others wait. If none can read, because
// the database accepts no connection for that, the lead is given up, as if a commit failed.
func (s *store) mustRead(read func(context.Context) error) error {
	err := s.reading(read)
	_, unreached := errors.AsType[*pgconn.ConnectError](err)
	if unreached && passes(err) && s.conns.short.Stat().TotalConns() == 0 {
		s.Fail(err)
	}
	return err
}

// Iterate implements [memory.Reader].
func (s *store) Iterate(space memory.Space, from, end string) (memory.Iterator, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &iterator{s: s, q: s.conns.short, space: space, from: from, bound: end, layers: s.layersLocked(), again: true}, nil
}

// Snapshot implements [memory.Store]. The snapshot gets its own transaction
// when it first reads the records, or when they are about to change.
func (s *store) Snapshot() memory.Snapshot {
	sn := &snapshot{s: s}
	s.mu.Lock()
	defer s.mu.Unlock()
	sn.layers = s.layersLocked()
	if s.waiting == nil {
		s.waiting = make(map[*snapshot]struct{})
	}
	s.waiting[sn] = struct{}{}
	return sn
}

type snapshot struct {
	s      *store
	layers layers

	mu     sync.Mutex // one goroutine at a time uses the connection
	begun  bool
	closed bool
	conn   *pgxpool.Conn
	tx     pgx.Tx
	err    error
}

// beginLocked starts the transaction, and so fixes its view of the records.
func (sn *snapshot) beginLocked() error {
	if sn.begun || sn.closed {
		return sn.err
	}
	sn.begun = true
	s := sn.s
	sn.err = s.reading(func(ctx context.Context) (err error) {
		if sn.conn, err = s.conns.long.Acquire(ctx); err != nil {
			return err
		}
		sn.tx, err = sn.conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
		if err == nil {
			_, err = sn.tx.Exec(ctx, "SELECT set_config(name, '0', true) "+longLimits) // the first statement fixes the view
		}
		if err != nil {
			sn.conn.Release()
			sn.conn = nil
		}
		return err
	})
	// This comes last, because a fold must wait for the snapshot until now.
	s.mu.Lock()
	delete(s.waiting, sn)
	s.mu.Unlock()
	return sn.err
}

// Get implements [memory.Reader].
func (sn *snapshot) Get(space memory.Space, key string, read func(value []byte) error) (found bool, err error) {
	w, found := sn.layers.get(place(space, key))
	switch {
	case found && w.gone:
		return false, nil
	case found:
		return true, read([]byte(w.value))
	}
	value, found, err := sn.fetch(space, key)
	if err != nil || !found {
		return false, err
	}
	return true, read(value)
}

func (sn *snapshot) fetch(space memory.Space, key string) (value []byte, found bool, err error) {
	sn.mu.Lock()
	defer sn.mu.Unlock()
	if err := sn.beginLocked(); err != nil {
		return nil, false, err
	}
	return sn.s.get(sn.s.ctx, sn.tx, space, key)
}

// Iterate implements [memory.Reader].
func (sn *snapshot) Iterate(space memory.Space, from, end string) (memory.Iterator, error) {
	sn.mu.Lock()
	defer sn.mu.Unlock()
	if err := sn.beginLocked(); err != nil {
		return nil, err
	}
	return &iterator{s: sn.s, q: sn.tx, lock: &sn.mu, space: space, from: from, bound: end, layers: sn.layers}, nil
}

// Close implements [memory.Snapshot].
func (sn *snapshot) Close() error {
	sn.mu.Lock()
	defer sn.mu.Unlock()
	sn.closed = true
	sn.s.mu.Lock()
	delete(sn.s.waiting, sn)
	sn.s.mu.Unlock()
	if sn.conn != nil {
		_ = sn.tx.Rollback(sn.s.ctx) // it has written nothing
		sn.conn.Release()
		sn.conn = nil
	}
	return nil
}

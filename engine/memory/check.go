package memory

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
)

// readRow decodes the row at an iterator over the hot space.
func readRow(it Iterator) (*row, error) {
	key := it.Key()
	record, err := it.Value()
	if err != nil {
		return nil, readError(string(key), err)
	}
	value, owner, due, err := decode(record)
	switch {
	case err != nil:
	case len(key) == 0 || len(key) > engine.MaxKey:
		err = errors.New("key is too short or too long")
	case bytes.HasPrefix(key, []byte(engine.Cold)):
		err = errors.New("a cold row among the others")
	default:
		k, v := together(key, value)
		return &row{key: k, value: v, owner: owner, due: due, stored: true}, nil
	}
	return nil, corrupt(key, err)
}

// Check verifies that the rows, the indexes and the store agree.
func (e *Engine) Check() error { return e.Prove(context.Background(), func(int) {}) }

// Prove is Check for large states. It calls progress from time to time with the
// number of records read so far, and keeps no record in memory. The engine is
// locked meanwhile. It reports the first hundred faults.
func (e *Engine) Prove(ctx context.Context, progress func(records int)) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.refusalLocked(); err != nil {
		return err
	}
	if e.open != nil {
		e.appendLocked(e.open.kept.Load())
	}
	p := &proof{ctx: ctx, progress: progress}
	p.indexes(e.set)
	p.hot(e.set, e.store)
	p.cold(e.store)
	return errors.Join(append(p.faults, ctx.Err())...)
}

// A proof is a running check.
type proof struct {
	ctx      context.Context
	progress func(records int)
	records  int
	faults   []error
}

const (
	mostFaults    = 100
	progressEvery = 1 << 14
)

func (p *proof) fault(err error) { p.faults = append(p.faults, err) }

// goesOn counts a record, and reports whether to continue.
func (p *proof) goesOn() bool {
	if p.records++; p.records%progressEvery == 0 {
		p.progress(p.records)
	}
	return p.ctx.Err() == nil && len(p.faults) < mostFaults
}

func (p *proof) indexes(s *set) {
	owned, due := 0, 0
	s.rows.Scan(func(key string, r *row) bool {
		if r.key != key {
			p.fault(fmt.Errorf("row %q is under %q", r.key, key))
		}
		if r.owner != uuid.Nil {
			owned++
			if found, _ := s.owned.Get(r); found == nil || found.owner != r.owner {
				p.fault(fmt.Errorf("row %q is not with its owner %v", key, r.owner))
			}
		}
		if r.due != never {
			due++
			if found, _ := s.due.Get(r); found == nil || found.due != r.due {
				p.fault(fmt.Errorf("row %q is not where it is due", key))
			}
		}
		return p.goesOn()
	})
	if len(p.faults) == 0 && p.ctx.Err() == nil && (owned != s.owned.Len() || due != s.due.Len()) {
		p.fault(fmt.Errorf("%d rows have an owner and %d are indexed; %d have a due time and %d are indexed", owned, s.owned.Len(), due, s.due.Len()))
	}
}

// hot compares the records of the store with the rows in memory. The value of a
// record may be older than the row's, because the engine does not keep track of
// touched rows.
func (p *proof) hot(s *set, store Reader) {
	missing := 0
	s.rows.Scan(func(_ string, r *row) bool {
		if r.stored {
			missing++
		}
		return true
	})
	p.each(store, Hot, func(it Iterator) error {
		missing--
		if r := s.get(string(it.Key())); r == nil || !r.stored {
			p.fault(fmt.Errorf("row %q is stored and memory does not know", it.Key()))
		}
		_, err := readRow(it)
		return err
	})
	if missing > 0 && len(p.faults) == 0 && p.ctx.Err() == nil {
		p.fault(fmt.Errorf("%d rows are not stored", missing))
	}
}

func (p *proof) cold(store Reader) {
	p.each(store, Cold, func(it Iterator) error {
		if key := string(it.Key()); !isCold(key) || len(key) > engine.MaxKey {
			p.fault(fmt.Errorf("%w: key %q of a cold row", engine.ErrCorrupt, key))
		}
		_, err := storedCold(it)
		return err
	})
}

// each calls look for each record of a space, for as long as the check goes on.
func (p *proof) each(store Reader, space Space, look func(Iterator) error) {
	err := Each(store, space, "", "", func(it Iterator) error {
		if !p.goesOn() {
			return errStop
		}
		if err := look(it); err != nil {
			p.fault(err)
		}
		return nil
	})
	if err != nil && !errors.Is(err, errStop) {
		p.fault(err)
	}
}

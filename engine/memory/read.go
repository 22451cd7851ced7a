package memory

import (
	"context"
	"errors"

	"github.com/leasehold/leasehold/engine"
)

// Get implements [engine.Engine].
func (e *Engine) Get(ctx context.Context, key string) (engine.Row, bool, error) {
	if ctx.Err() != nil {
		return engine.Row{}, false, context.Cause(ctx)
	}
	r, ok, seen, err := e.get(key)
	// What was read may not be on disk yet. The same is true of the deletion of
	// a row that was not found, and of what an error reports.
	if failure := e.confirm(seen, !engine.IsLocal(ctx)); failure != nil {
		err = failure
	}
	if err != nil {
		return engine.Row{}, false, err
	}
	return r, ok, nil
}

// get returns a row, and the last group that must be durable before it may be
// reported.
func (e *Engine) get(key string) (r engine.Row, ok bool, seen *group, err error) {
	e.mu.Lock()
	if err := e.refusalLocked(); err != nil {
		e.mu.Unlock()
		return r, false, nil, err
	}
	if !isCold(key) {
		defer e.mu.Unlock()
		if live := e.set.get(key); live != nil {
			return live.public(), true, e.last, nil
		}
		return r, false, e.last, nil
	}
	if w, found := e.fresh.Get(key); found {
		defer e.mu.Unlock()
		r, ok = w.public(key)
		return r, ok, e.last, nil
	}
	e.reading.RLock() // taken before the unlock: Close waits for it
	e.mu.Unlock()
	defer e.reading.RUnlock()
	r, ok, err = readCold(e.store, key)
	e.mu.Lock() // what was read belongs to the last group or to earlier ones
	defer e.mu.Unlock()
	return r, ok, e.last, err
}

// Read implements [engine.Engine]. The caller knows of the rows from a durable
// transaction, so they are in the store already.
func (e *Engine) Read(ctx context.Context, keys ...string) ([]engine.Row, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	rows := make([]engine.Row, len(keys))
	missing, err := e.readAll(keys, rows)
	// A missing row may have been deleted by a commit that is not on disk yet;
	// Get waits for it.
	for _, i := range missing {
		if err == nil {
			rows[i], _, err = e.Get(ctx, keys[i])
		}
	}
	if err != nil {
		return nil, err
	}
	return rows, nil
}

// readAll reads the records of keys from the store, and returns the indexes of
// those that it does not have.
func (e *Engine) readAll(keys []string, rows []engine.Row) (missing []int, err error) {
	e.reading.RLock()
	defer e.reading.RUnlock()
	switch err := e.failure.Failed(); {
	case e.stopped:
		return nil, engine.ErrClosed
	case err != nil:
		return nil, err
	}
	if len(keys) == 1 {
		row, ok, err := readCold(e.store, keys[0])
		if rows[0] = row; !ok {
			missing = append(missing, 0)
		}
		return missing, err
	}
	it, err := e.store.Iterate(Cold)
	if err != nil {
		return nil, readError("", err)
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	for i, key := range keys {
		switch {
		case it.Seek(key, "") && string(it.Key()) == key:
			if rows[i], err = storedCold(it); err != nil {
				return nil, err
			}
		case it.Err() != nil:
			return nil, readError(key, it.Err())
		default:
			missing = append(missing, i)
		}
	}
	return missing, nil
}

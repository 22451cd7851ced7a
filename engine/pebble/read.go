package pebble

import (
	"context"
	"errors"

	"github.com/cockroachdb/pebble/v2"

	"github.com/leasehold/leasehold/engine"
)

// Get implements [engine.Engine].
func (e *Engine) Get(ctx context.Context, key string) (engine.Row, bool, error) {
	if ctx.Err() != nil {
		return engine.Row{}, false, context.Cause(ctx)
	}
	r, ok, seen, err := e.get(key)
	// What was seen may still be on its way to the disk. So is what was not,
	// where a row has gone, and what an error tells of.
	if failure := seen.wait(); failure != nil {
		err = failure
	}
	if err != nil {
		return engine.Row{}, false, err
	}
	return r, ok, nil
}

// get gives a row, and the commit that must be durable before it is told.
func (e *Engine) get(key string) (r engine.Row, ok bool, seen *commit, err error) {
	e.mu.Lock()
	if err := e.refusalLocked(); err != nil {
		e.mu.Unlock()
		return r, false, nil, err
	}
	if !isCold(key) {
		defer e.mu.Unlock()
		if live := e.mem.get(key); live != nil {
			return live.public(), true, e.last, nil
		}
		return r, false, e.last, nil
	}
	if w, c := e.overlay.get(key); w != nil {
		defer e.mu.Unlock()
		r, ok = w.public()
		return r, ok, c, nil
	}
	e.reading.RLock() // before Close can be told of, which waits for it
	e.mu.Unlock()
	defer e.reading.RUnlock()
	// Without the lock, a commit may be applied meanwhile and be read, or
	// not. All that can be read is carried by then.
	r, ok, err = e.readCold(key)
	return r, ok, e.carried.Load(), err
}

// Read implements [engine.Engine]. What the caller knows of is durable, so it is
// applied and not in the overlay alone.
func (e *Engine) Read(ctx context.Context, keys ...string) ([]engine.Row, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	rows := make([]engine.Row, len(keys))
	missing, err := e.readAll(keys, rows)
	// That a row has gone is news, and may be on its way to the disk.
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

// readAll reads what the store has under keys, and tells what it has not.
func (e *Engine) readAll(keys []string, rows []engine.Row) (missing []int, err error) {
	e.reading.RLock()
	defer e.reading.RUnlock()
	switch err := e.failed(); {
	case e.stopped:
		return nil, engine.ErrClosed
	case err != nil:
		return nil, err
	}
	if len(keys) == 1 {
		row, ok, err := e.readCold(keys[0])
		if rows[0] = row; !ok {
			missing = append(missing, 0)
		}
		return missing, err
	}
	it, err := e.stored(coldSpace)
	if err != nil {
		return nil, readError("", err)
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	return seekAll(it, keys, rows)
}

// seekAll is readAll by an iterator: it costs little to go on to a row nearby,
// as those are that came together.
func seekAll(it *pebble.Iterator, keys []string, rows []engine.Row) (missing []int, err error) {
	var at []byte
	for i, key := range keys {
		at = append(append(at[:0], coldSpace), key...)
		if !it.SeekGE(at) || string(it.Key()) != string(at) {
			if err := it.Error(); err != nil {
				return nil, readError(key, err)
			}
			missing = append(missing, i)
			continue
		}
		if rows[i], err = storedCold(it); err != nil {
			return nil, err
		}
	}
	return missing, nil
}

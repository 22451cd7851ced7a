package memory

import (
	"context"

	"github.com/leasehold/leasehold/engine"
)

func (e *Engine) Get(ctx context.Context, key string) (engine.Row, bool, error) {
	if ctx.Err() != nil {
		return engine.Row{}, false, context.Cause(ctx)
	}
	r, ok, seen, err := e.get(key)
	if ok && engine.IsPeek(ctx) {
		seen = nil
	}
	// What was read may not be on disk yet. The same is true of the deletion of
	// a row that was not found, and of what an error reports.
	if failure := e.answer(seen, !engine.IsLocal(ctx)); failure != nil {
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
		live := e.set.get(key)
		return live.public(), live != nil, e.last, nil
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

package pebble

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
)

// Check proves that the rows, the indexes and the store agree. It is for
// tests: it reads everything, with the lock held.
func (e *Engine) Check() error {
	if err := e.View(context.Background(), func(engine.Tx) error { return nil }); err != nil {
		return err // and all that is to be compared with is durable
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.refusalLocked(); err != nil {
		return err
	}
	return errors.Join(e.checkRowsLocked(), e.checkOwnersLocked(), e.mem.checkDue(e.clock.now().UnixNano()), e.checkStoreLocked(), e.checkColdLocked())
}

func (e *Engine) checkRowsLocked() error {
	var errs []error
	last := ""
	for r := range e.mem.rows.all {
		if r.key() <= last {
			errs = append(errs, fmt.Errorf("row %q follows row %q", r.key(), last))
		}
		if e.mem.get(r.key()) != r {
			errs = append(errs, fmt.Errorf("row %q is not found by its key", r.key()))
		}
		if l, i := e.mem.rows.seek(r.key()); i == l.n || l.items[i] != r {
			errs = append(errs, fmt.Errorf("row %q is not found in order", r.key()))
		}
		if r.dirty() != 0 {
			errs = append(errs, fmt.Errorf("row %q is still dirty", r.key()))
		}
		last = r.key()
	}
	if n, m := e.mem.rows.n, e.mem.table.n; n != m {
		errs = append(errs, fmt.Errorf("%d rows in order, and %d by key", n, m))
	}
	if n := len(e.mem.cursors); n != 0 {
		errs = append(errs, fmt.Errorf("%d cursors are left", n))
	}
	return errors.Join(errs...)
}

func (e *Engine) checkOwnersLocked() error {
	var errs []error
	listed := make(map[*row]bool)
	for id, o := range e.mem.owners {
		if o.id != id || id == uuid.Nil || o.head == nil {
			errs = append(errs, fmt.Errorf("owner %v: listed as %v, empty %t", o.id, id, o.head == nil))
		}
		var prev *row
		for r := o.head; r != nil; prev, r = r, r.next {
			if r.owner != o || r.prev != prev || e.mem.get(r.key()) != r {
				errs = append(errs, fmt.Errorf("owner %v: row %q is not his, or badly linked", id, r.key()))
			}
			listed[r] = true
		}
	}
	for r := range e.mem.rows.all {
		if (r.owner != nil) != listed[r] {
			errs = append(errs, fmt.Errorf("row %q: owned %t, listed %t", r.key(), r.owner != nil, listed[r]))
		}
	}
	return errors.Join(errs...)
}

// checkStoreLocked compares keys only where a row was touched since it was
// put: which those are is not kept.
func (e *Engine) checkStoreLocked() error {
	it, err := e.rowsStored()
	if err != nil {
		return err
	}
	var errs []error
	n := 0
	for ok := it.First(); ok; ok = it.Next() {
		n++
		key := it.Key()[1:]
		if _, _, _, err := decodeRow(key, it.Value()); err != nil {
			errs = append(errs, err)
		} else if live := e.mem.get(string(key)); live == nil || !live.stored() {
			errs = append(errs, fmt.Errorf("row %q is stored and memory does not know", key))
		}
	}
	for r := range e.mem.rows.all {
		if r.stored() {
			n--
		}
	}
	if n != 0 {
		errs = append(errs, fmt.Errorf("%d more rows are stored than memory knows", n))
	}
	return errors.Join(append(errs, it.Close())...)
}

// checkColdLocked reads every cold row. All writes of them are applied, so the
// overlay keeps nothing and nobody refers to it.
func (e *Engine) checkColdLocked() error {
	e.overlay.drop()
	var errs []error
	if n := len(e.overlay.commits); n != 0 {
		errs = append(errs, fmt.Errorf("%d commits are still in the overlay", n))
	}
	it, err := e.stored(coldSpace)
	if err != nil {
		return errors.Join(append(errs, err)...)
	}
	for ok := it.First(); ok; ok = it.Next() {
		key := string(it.Key()[1:])
		if !isCold(key) || len(key) > engine.MaxKey {
			errs = append(errs, fmt.Errorf("%w: key %q of a cold row", engine.ErrCorrupt, key))
		}
		if _, err := storedCold(it); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(append(errs, it.Close())...)
}

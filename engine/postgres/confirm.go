package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/leasehold/leasehold/engine"
)

// If others may take the lead of an engine's partition, the engine confirms
// that it still leads, between the work of a transaction and its answer, even a
// refusal. Commits are fenced in the database; this protects everything else in
// an answer.

// confirmed returns the error for the answer to a transaction that ended with
// err.
func (e *Engine) confirmed(err error) error {
	if e.store.confirm == nil {
		return err
	}
	if over := e.store.confirm(); over != nil {
		over = fmt.Errorf("%w: %w", ErrSuperseded, over)
		e.store.Fail(over)
		return errors.Join(fmt.Errorf("%w: %w", engine.ErrFailed, over), err)
	}
	return err
}

// Update implements [engine.Engine].
func (e *Engine) Update(ctx context.Context, fn func(engine.Tx) error) error {
	return e.confirmed(e.Engine.Update(ctx, fn))
}

// View implements [engine.Engine].
func (e *Engine) View(ctx context.Context, fn func(engine.Tx) error) error {
	return e.confirmed(e.Engine.View(ctx, fn))
}

// Snapshot implements [engine.Engine].
func (e *Engine) Snapshot(ctx context.Context, fn func(engine.Tx) error) error {
	return e.confirmed(e.Engine.Snapshot(ctx, fn))
}

// Get implements [engine.Engine].
func (e *Engine) Get(ctx context.Context, key string) (row engine.Row, found bool, err error) {
	row, found, err = e.Engine.Get(ctx, key)
	return row, found, e.confirmed(err)
}

// Read implements [engine.Engine].
func (e *Engine) Read(ctx context.Context, key string) (engine.Row, error) {
	row, err := e.Engine.Read(ctx, key)
	return row, e.confirmed(err)
}

// Package rows reads and writes the records of a run, which are JSON, one per
// row.
//
// A record that cannot be read is handled like a row that the engine cannot
// read: the read returns nothing, and the transaction fails with an
// [engine.ErrCorrupt] that names the key, whatever its function returns. So
// nothing is based on a damaged record, and rules need no error for each read.
// Open reads every record that is kept in memory, and so fails first.
package rows

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
)

// A guarded transaction remembers the first record that could not be read.
type guarded struct {
	engine.Tx
	fault error
}

// Update is [engine.Engine.Update] for a function that reads records.
func Update(ctx context.Context, eng engine.Engine, fn func(engine.Tx) error) error {
	return eng.Update(ctx, guard(fn))
}

// View is [engine.Engine.View] for a function that reads records.
func View(ctx context.Context, eng engine.Engine, fn func(engine.Tx) error) error {
	return eng.View(ctx, guard(fn))
}

// Snapshot is [engine.Engine.Snapshot] for a function that reads records.
func Snapshot(ctx context.Context, eng engine.Engine, fn func(engine.Tx) error) error {
	return eng.Snapshot(ctx, guard(fn))
}

func guard(fn func(engine.Tx) error) func(engine.Tx) error {
	return func(tx engine.Tx) error {
		g := &guarded{Tx: tx}
		err := fn(g)
		if g.fault != nil {
			return g.fault
		}
		return err
	}
}

// Get reads the record under key. ok is false if there is none.
func Get[T any](tx engine.Tx, key string) (v T, ok bool) {
	row, ok := tx.Get(key)
	if !ok {
		return v, false
	}
	return Decode[T](tx, row)
}

// Decode reads the record of a row. ok is false if it cannot be read.
func Decode[T any](tx engine.Tx, row engine.Row) (v T, ok bool) {
	if err := json.Unmarshal([]byte(row.Value), &v); err != nil {
		Corrupt(tx, row.Key, err)
		var none T
		return none, false
	}
	return v, true
}

// Readable yields the records below prefix, with their rows, and skips those that cannot
// be read: each of them affects only what it belongs to.
func Readable[T any](tx engine.Tx, prefix string) iter.Seq2[engine.Row, T] {
	return func(yield func(engine.Row, T) bool) {
		for row := range tx.Scan(prefix) {
			var v T
			if json.Unmarshal([]byte(row.Value), &v) == nil && !yield(row, v) {
				return
			}
		}
	}
}

// Corrupt records that the record under key cannot be read.
func Corrupt(tx engine.Tx, key string, err error) {
	if g, ok := tx.(*guarded); ok && g.fault == nil {
		g.fault = corrupt(key, err)
	}
}

// Put writes v under key. If owner is not zero, the row is owned by it.
func Put(tx engine.Tx, key string, v any, owner uuid.UUID) {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("rows: %q: %v", key, err)) // plain data: only a programming error can cause this
	}
	tx.Put(engine.Row{Key: key, Value: string(b), Owner: owner})
}

// Check returns an error if a record below prefix cannot be read.
func Check[T any](tx engine.Tx, prefix string) error {
	for row := range tx.Scan(prefix) {
		var v T
		if err := json.Unmarshal([]byte(row.Value), &v); err != nil {
			return corrupt(row.Key, err)
		}
	}
	return nil
}

func corrupt(key string, err error) error {
	return fmt.Errorf("%w: %q: %v", engine.ErrCorrupt, key, err)
}

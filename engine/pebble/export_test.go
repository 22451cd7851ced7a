package pebble

import (
	"context"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/leasehold/leasehold/engine/memory"
)

// OpenBare opens a Pebble of its own with the store's options, to measure the
// engine against.
func OpenBare(dir string) (*pebble.DB, error) {
	s := &store{logf: func(string, ...any) {}, Failure: memory.Failure{Tell: func(error) {}}}
	s.fs = &stateFS{FS: vfs.Default, Failure: &s.Failure, dir: dir}
	o := s.options()
	o.CacheSize = cacheSize
	return pebble.Open(dir, o)
}

// Metrics gives Pebble's own counts.
func (e *Engine) Metrics() *pebble.Metrics { return e.store.db.Metrics() }

// Flush writes what is in memory to tables, and Compact all tables into one.
func (e *Engine) Flush() error { return e.store.db.Flush() }

// AsyncFlush is Flush without a wait for it.
func (e *Engine) AsyncFlush() error {
	_, err := e.store.db.AsyncFlush()
	return err
}

func (e *Engine) Compact() error {
	return e.store.db.Compact(context.Background(), []byte{0}, []byte{0xff}, false)
}

// SetFormat notes that the files have a format.
func (e *Engine) SetFormat(format byte) error {
	return e.store.db.Set(formatKey, []byte{format}, pebble.Sync)
}

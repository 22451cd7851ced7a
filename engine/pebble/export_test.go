package pebble

import (
	"context"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// OpenBare opens a Pebble of its own with the engine's options, to measure
// the engine against.
func OpenBare(dir string) (*pebble.DB, error) {
	e := &Engine{logf: func(string, ...any) {}}
	e.fs = &stateFS{FS: vfs.Default, dir: dir, fail: e.fail, failed: e.failed}
	o := e.options()
	o.CacheSize = cacheSize
	return pebble.Open(dir, o)
}

// Kept gives how many rows, and writes of rows, are in memory.
func (e *Engine) Kept() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	n := e.mem.rows.n
	for _, c := range e.overlay.commits {
		n += c.cold.n
	}
	return n
}

// Metrics gives Pebble's own counts.
func (e *Engine) Metrics() *pebble.Metrics { return e.db.Metrics() }

// Flush writes what is in memory to tables, and Compact all tables into one.
func (e *Engine) Flush() error { return e.db.Flush() }

func (e *Engine) Compact() error {
	return e.db.Compact(context.Background(), []byte{0}, []byte{0xff}, false)
}

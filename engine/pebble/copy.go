package pebble

import (
	"fmt"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/leasehold/leasehold/engine/memory"
)

// OpenStore opens the store of a state without an engine, to copy it; see
// [memory.Copy].
func OpenStore(o Options) (memory.Store, error) {
	o = o.withDefaults()
	s, err := openStore(o, func(err error) { o.Logf("engine: %v", err) })
	if err != nil {
		return nil, fmt.Errorf("engine: open %s: %w", o.Dir, err)
	}
	return s, nil
}

// Exists reports whether a directory contains a state.
func Exists(dir string) bool {
	desc, err := pebble.Peek(dir, vfs.Default)
	return err == nil && desc.Exists
}

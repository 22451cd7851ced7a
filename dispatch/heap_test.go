//go:build race || !cgo

package dispatch_test

// Pebble takes the memory of its memtables, which have any size up to their largest, from
// Go's heap here.
func init() { heapTells = false }

//go:build race

package queue_test

// Each access to memory is ten times as slow. And Pebble takes the memory of its
// memtables, which have any size up to their largest, from Go's heap at times.
func init() { backlog, rounds, heapTells = backlog/10, "8", false }

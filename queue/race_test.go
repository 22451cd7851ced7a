//go:build race

package queue_test

// Each access to memory is ten times as slow.
func init() { backlog, rounds = backlog/10, "8" }

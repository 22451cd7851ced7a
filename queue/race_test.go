//go:build race

package queue_test

func init() { backlog /= 10 } // each access is ten times as slow

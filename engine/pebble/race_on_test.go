//go:build race

package pebble_test

import "flag"

const raceEnabled = true

// The histories of the model run on one goroutine, so that the race detector
// has little to find there, and takes them ten times as long.
func init() { _ = flag.Set("rapid.checks", "10") }

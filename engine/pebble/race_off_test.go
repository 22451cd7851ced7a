//go:build !race

package pebble_test

import "flag"

const raceEnabled = false

// Three suites try histories. Each trial is a new one, and `just soak` tries many.
func init() { _ = flag.Set("rapid.checks", "30") }

//go:build !linux

package shim

import (
	"context"
	"os"
)

// awaitDesertion returns an error when the process that started this one has
// ended, and nil if ctx ends first. A missing reader of stdout is noticed at
// the next write.
func awaitDesertion(ctx context.Context, _ *os.File) error { return awaitParent(ctx) }

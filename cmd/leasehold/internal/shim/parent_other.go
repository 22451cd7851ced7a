//go:build !linux

package shim

import (
	"context"
	"os"
)

// awaitDesertion returns when the process that started this one has ended, or
// nil when ctx ends first. That nobody reads stdout any more shows at the next
// write.
func awaitDesertion(ctx context.Context, _ *os.File) error { return awaitParent(ctx) }

//go:build !linux

package terminal

import "io"

// EndUnread does nothing here: the next write ends this process.
func EndUnread(io.Writer) {}

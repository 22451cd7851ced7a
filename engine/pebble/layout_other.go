//go:build !linux

package pebble

import "syscall"

// layOut sets the size of a new file.
func layOut(fd uintptr, size int64) { _ = syscall.Ftruncate(int(fd), size) }

//go:build !linux

package pebble

import "syscall"

// layOut gives a new file its size.
func layOut(fd uintptr, size int64) { _ = syscall.Ftruncate(int(fd), size) }

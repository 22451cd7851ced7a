//go:build !linux

package pebble

import "syscall"

// layOut sets the size of a new file.
func layOut(fd uintptr, size int64) { _ = syscall.Ftruncate(int(fd), size) }

// mapFile returns nil: files are mapped on Linux only, where this is tested.
func mapFile(uintptr, int) []byte { return nil }

func unmap([]byte) error { return nil }

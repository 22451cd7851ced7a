//go:build !linux

package pebble

import "syscall"

// layOut sets the size of a new file.
func layOut(fd uintptr, size int64) { _ = syscall.Ftruncate(int(fd), size) }

// layAhead does nothing: blocks are allocated ahead on Linux only.
func layAhead(uintptr, int64) {}

// punch returns false: the reserve can be given up as a whole only.
func punch(uintptr, int64, int64) bool { return false }

// mapFile returns nil: files are mapped on Linux only, where this is tested.
func mapFile(uintptr, int) []byte { return nil }

// birth returns 0, not known: a copy may keep the time of birth here.
func birth(uintptr) uint64 { return 0 }

func unmap([]byte) error { return nil }

package pebble

import "golang.org/x/sys/unix"

// layOut allocates the size and the blocks of a new file.
func layOut(fd uintptr, size int64) { _ = unix.Fallocate(int(fd), 0, 0, size) }

// mapFile returns the beginning of a file as memory, or nil.
func mapFile(fd uintptr, size int) []byte {
	mem, err := unix.Mmap(int(fd), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil
	}
	return mem
}

func unmap(mem []byte) error { return unix.Munmap(mem) }

package pebble

import "golang.org/x/sys/unix"

// layOut allocates the size and the blocks of a new file.
func layOut(fd uintptr, size int64) { _ = unix.Fallocate(int(fd), 0, 0, size) }

// layAhead allocates blocks from the position of a file on, and keeps its size.
func layAhead(fd uintptr, n int64) {
	if at, err := unix.Seek(int(fd), 0, unix.SEEK_CUR); err == nil {
		_ = unix.Fallocate(int(fd), unix.FALLOC_FL_KEEP_SIZE, at, n)
	}
}

// punch gives the blocks of a part of a file back to the disk, and reports whether
// it could.
func punch(fd uintptr, at, n int64) bool {
	return unix.Fallocate(int(fd), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, at, n) == nil
}

// mapFile returns the beginning of a file as memory, or nil.
func mapFile(fd uintptr, size int) []byte {
	mem, err := unix.Mmap(int(fd), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil
	}
	return mem
}

// birth returns when a file was created, in nanoseconds, or 0.
func birth(fd uintptr) uint64 {
	var st unix.Statx_t
	if unix.Statx(int(fd), "", unix.AT_EMPTY_PATH, unix.STATX_BTIME, &st) != nil || st.Mask&unix.STATX_BTIME == 0 {
		return 0
	}
	return uint64(st.Btime.Sec)*1e9 + uint64(st.Btime.Nsec)
}

func unmap(mem []byte) error { return unix.Munmap(mem) }

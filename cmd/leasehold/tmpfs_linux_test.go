package main

import "syscall"

// mountTmpfs mounts a file system of a size, until the end.
func mountTmpfs(dir, size string, atEnd func(func())) error {
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size="+size); err != nil {
		return err
	}
	atEnd(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) }) // a test that failed may still use it
	return nil
}

package process_test

import "golang.org/x/sys/unix"

// withMark returns nothing here; the pipe shows which processes are left.
func withMark(string) []string { return nil }

func running(pid int) bool { return unix.Kill(pid, 0) == nil }

func sid(pid int) (int, error) { return unix.Getsid(pid) }

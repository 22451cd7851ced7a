package process_test

import "golang.org/x/sys/unix"

// withMark finds nothing here: the pipe tells.
func withMark(string) []string { return nil }

func running(pid int) bool { return unix.Kill(pid, 0) == nil }

func sid(pid int) (int, error) { return unix.Getsid(pid) }

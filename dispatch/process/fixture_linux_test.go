package process_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// withMark lists the processes that have the mark in their environment, without
// using the package under test.
func withMark(mark string) (list []string) {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		env, _ := os.ReadFile(dir + "/environ") // a zombie has none
		if slices.ContainsFunc(bytes.Split(env, []byte{0}), func(pair []byte) bool { return string(pair) == mark }) {
			command, _ := os.ReadFile(dir + "/cmdline")
			list = append(list, fmt.Sprintf("%s %q", filepath.Base(dir), command))
		}
	}
	return list
}

// running reports whether a process exists and is neither stopped nor a zombie.
func running(pid int) bool {
	stat, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	_, state, ok := bytes.Cut(stat, []byte(") "))
	return ok && state[0] != 'Z' && state[0] != 'T'
}

func sid(pid int) (int, error) { return unix.Getsid(pid) }

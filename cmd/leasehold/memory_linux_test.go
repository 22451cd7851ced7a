package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
)

// A daemon in a control group collects its garbage before the kernel would kill it.
func TestMemoryIsThatOfTheControlGroup(t *testing.T) {
	t.Parallel()
	const limit = 100 << 20
	group := limitedGroup(t, limit)
	for name, c := range map[string]struct {
		environment string
		want        int64
	}{
		"the group's":     {"A=", limit * 9 / 10},
		"the environment": {"GOMEMLIMIT=80MiB", 80 << 20},
	} {
		t.Run(name, func(t *testing.T) {
			newDir(t)
			cmd := testProgram(t, "serve", "--log-format", "json")
			cmd.Args = slices.Concat([]string{"sh", "-c", `echo $$ >"$0" && exec "$@"`, filepath.Join(group, "cgroup.procs"), cmd.Path}, cmd.Args[1:])
			cmd.Path = "/bin/sh"
			cmd.Env = append(cmd.Env, c.environment)
			out, err := cmd.StderrPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
			for lines := bufio.NewScanner(out); lines.Scan(); {
				var line struct {
					Message string
					Bytes   int64
				}
				_ = json.Unmarshal(lines.Bytes(), &line)
				if line.Message == "memory is limited" {
					if line.Bytes != c.want {
						t.Errorf("to %d, not %d", line.Bytes, c.want)
					}
					return
				}
				t.Log(lines.Text())
				if line.Message == "ready" {
					break
				}
			}
			t.Error("it has no limit")
		})
	}
}

// limitedGroup makes a control group until the end, or skips the test where it cannot.
func limitedGroup(t *testing.T, bytes int64) string {
	for _, at := range []struct{ dir, limit string }{
		{"/sys/fs/cgroup/memory", "memory.limit_in_bytes"},
		{"/sys/fs/cgroup", "memory.max"},
	} {
		group, err := os.MkdirTemp(at.dir, "leasehold-test-")
		if err != nil {
			continue
		}
		t.Cleanup(func() { _ = os.Remove(group) })
		f, err := os.OpenFile(filepath.Join(group, at.limit), os.O_WRONLY, 0)
		if err != nil {
			continue
		}
		_, err = f.WriteString(strconv.FormatInt(bytes, 10))
		if errors.Join(err, f.Close()) == nil {
			return group
		}
	}
	t.Skip("no control group can be made here")
	return ""
}

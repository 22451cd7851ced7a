package main

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// A spotlight that is killed leaves no process: not its daemon, not the
// dispatcher of its story, not one of the agents.
func TestKilledSpotlightLeavesNoProcess(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("looks for processes in /proc")
	}
	v := newVictim(t)
	v.cmd = exec.Command(v.binary, "spotlight", "kill-cascade")
	v.cmd.Env = append(os.Environ(), "TMPDIR="+v.dir)
	out, err := v.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := v.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewScanner(out); !strings.Contains(lines.Text(), "ignores SIGTERM"); {
		if !lines.Scan() {
			t.Fatal("it ended before its agents were there")
		}
	}
	found, err := filepath.Glob(filepath.Join(v.dir, "leasehold-*"))
	if err != nil || len(found) != 1 {
		t.Fatalf("directories of the story: %v, %v", found, err)
	}
	ofStory := "XDG_STATE_HOME=" + found[0]
	if n := len(marked(ofStory)); n < 8 { // daemon, dispatcher and its watchdog, 4 agents and 2 children of theirs
		t.Fatalf("%d processes are of the story", n)
	}
	v.kill()
	awaitTrue(t, "no process of the story is left", func() bool { return len(marked(ofStory)) == 0 })
}

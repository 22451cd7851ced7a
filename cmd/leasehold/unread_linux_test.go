package main

import (
	"bufio"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// What prints when something happens ends with the program that reads it, as grep -m1
// does, and not at the next thing that happens.
func TestAStreamEndsWithItsReader(t *testing.T) {
	t.Parallel()
	dir := shortDir(t)
	binary := leaseholdIn(t, dir)
	streams := 0
	for _, c := range everyCommand() {
		for _, flag := range []string{"watch", "follow"} {
			if c.Flags().Lookup(flag) == nil || c.Name() == "logs" { // testdata/logs.txt has that
				continue
			}
			streams++
			cmd := exec.CommandContext(t.Context(), binary, append(wordsOf(c), "--"+flag)...)
			cmd.Dir, cmd.Env = dir, append(os.Environ(), "HOME="+dir, "XDG_STATE_HOME="+dir+"/s", "XDG_RUNTIME_DIR="+dir+"/r")
			unread, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			said, err := cmd.StderrPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			// From here on it waits for a daemon, and has nothing to print.
			if line, err := bufio.NewReader(said).ReadString('\n'); err != nil || !strings.Contains(line, "nothing to show") {
				t.Errorf("%v: %q, %v", cmd.Args, line, err)
			}
			if c.Name() != "events" {
				if line, err := bufio.NewReader(unread).ReadString('\n'); err != nil {
					t.Errorf("%v: %q, %v", cmd.Args, line, err)
				}
			}
			if err := unread.Close(); err != nil {
				t.Error(err)
			}
			err = cmd.Wait()
			if state, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || state.Signal() != syscall.SIGPIPE {
				t.Errorf("%v: %v, not SIGPIPE", cmd.Args, err)
			}
		}
	}
	if streams < 9 {
		t.Errorf("%d streams were found", streams)
	}
}

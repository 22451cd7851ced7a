package main

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// A shell filters what it is given by what the user has typed. So a list that ends
// early must be the list of what begins with that.
func TestShellsCompleteWhatIsFarDownTheList(t *testing.T) {
	t.Parallel()
	newDir(t)
	startDaemon(t)
	client, _ := startShim(t, "--run", "many")
	client.handshake()
	id := 1
	call := func(tool, list, element string, from, to int) {
		var elements []string
		for n := from; n < to; n++ {
			elements = append(elements, fmt.Sprintf(element, n))
		}
		id++
		client.call(id, tool, fmt.Sprintf(`{%q:[%s]}`, list, strings.Join(elements, ",")))
		client.answer(id)
	}
	for n := 0; n < 1008; n += 16 {
		call("lease_acquire_many", "leases", `{"scope":"run","key":"k%04d"}`, n, n+16)
	}
	for n := 0; n < 200; n += 100 {
		call("task_enqueue_many", "tasks", `{"queue":"q%03d","payload":1}`, n, n+100)
	}
	leasehold := leaseholdIn(t, t.TempDir())
	for word, args := range map[string][]string{
		"k1005": {"revoke", "--run", "many", "k100"},
		"q150":  {"queue", "list", "--run", "many", "--queue", "q15"},
	} {
		cmd := exec.Command(leasehold, append([]string{"__complete"}, args...)...)
		cmd.Env, cmd.Stderr = append(environOf(t), "LEASEHOLD_SOCKET="+inDir(t, "s")), os.Stderr
		if out, err := cmd.Output(); err != nil || !strings.Contains(string(out), word) {
			t.Errorf("%s is not among %d: %v", word, strings.Count(string(out), "\n"), err)
		}
	}
}

package simulation

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/leasehold/leasehold/dispatch"
	mcp "github.com/leasehold/leasehold/dispatch/client"
)

var (
	clusterLoad  = flag.Duration("cluster.load", 0, "print what 12 runs cost with one server and with three, for so long each; give -cluster.partitions=12")
	clusterShare = flag.Float64("cluster.share", 0, "with -cluster.load: how much of a processor each server has, such as 0.25; 0: as much as there is")
)

// TestServersShareTheLoad prints what a lease costs with one server and with three: 48
// clients of 12 runs each take and give back a lease of their own, over and over.
//
// Servers, database and clients share the processors of one machine. So three servers
// cannot do more than one: they do less by what they cost more. The processor time of a
// lease says what to expect of machines of their own: servers work beside each other there,
// and all of them share the database. With -cluster.share, each server has as much of a
// processor as the others, as on small machines of one size.
func TestServersShareTheLoad(t *testing.T) {
	if *clusterLoad == 0 {
		t.Skip("this is for -cluster.load")
	}
	h := newHouse(t, 3)
	h.direct = true // a proxy runs in this process
	h.share = *clusterShare
	h.servers[0].start()
	operator := h.operator()
	var clients []loader
	for n := range 12 {
		run := fmt.Sprint("load-", n)
		h.add(operator, run, "root", "root")
		for w := range 4 {
			clients = append(clients, loader{h.add(operator, run, fmt.Sprint("w", w), "worker"), dispatch.PartitionOf(run, *clusterOver)})
		}
	}
	operator.Close()
	h.settled(1)
	h.load("one server", clients, func(int, int) *machine { return h.servers[0] })
	h.servers[1].start()
	h.servers[2].start()
	h.settled(3)
	leads := make(map[int]*machine)
	for partition := range *clusterOver {
		leads[partition] = h.leader(partition)
	}
	h.load("three servers, each client at its leader", clients, func(_, partition int) *machine { return leads[partition] })
	h.load("three servers, each client at any", clients, func(i, _ int) *machine { return h.servers[i%3] })
}

// A loader is an actor that takes and gives back leases.
type loader struct {
	token     string
	partition int
}

// load prints what the leases of the loaders cost. door says to which server each
// connects.
func (h *house) load(name string, loaders []loader, door func(i, partition int) *machine) {
	var connected []*mcp.Client
	for i, l := range loaders {
		connected = append(connected, door(i, l.partition).connect(l.token))
	}
	before := h.spent()
	var clients sync.WaitGroup
	var leases atomic.Int64
	until := time.Now().Add(*clusterLoad)
	for i, c := range connected {
		clients.Go(func() {
			defer c.Close()
			for time.Now().Before(until) {
				answer, err := c.Call(context.Background(), "run_lease_acquire", map[string]any{"key": fmt.Sprint("key-", i)})
				if err != nil {
					h.t.Error(err)
					return
				}
				var lease struct {
					ID string `json:"lease_id"`
				}
				_ = json.Unmarshal(answer.Object, &lease)
				if _, err := c.Call(context.Background(), "run_lease_release", map[string]any{"lease_id": lease.ID}); err != nil {
					h.t.Error(err)
					return
				}
				leases.Add(1)
			}
		})
	}
	clients.Wait()
	after := h.spent()
	each := func(before, after time.Duration) float64 {
		return float64((after - before).Microseconds()) / float64(leases.Load())
	}
	h.t.Logf("%s: %.0f leases/s; processor time of a lease: servers %.0f µs, database %.0f µs, clients %.0f µs", name, float64(leases.Load())/clusterLoad.Seconds(),
		each(before.servers, after.servers), each(before.database, after.database), each(before.clients, after.clients))
}

// confine lets a process have only a share of a processor, by a control group that close
// removes.
func (h *house) confine(pid int, share float64) {
	const groups, period = "/sys/fs/cgroup", 10_000 // microseconds
	name := fmt.Sprintf("leasehold-test-%d", pid)
	quota := int(share * period)
	dir, settings := filepath.Join(groups, name), map[string]string{"cpu.max": fmt.Sprint(quota, " ", period)}
	if old := filepath.Join(groups, "cpu", "cpu.cfs_quota_us"); exists(old) { // the first version of control groups
		dir, settings = filepath.Join(groups, "cpu", name), map[string]string{"cpu.cfs_period_us": fmt.Sprint(period), "cpu.cfs_quota_us": fmt.Sprint(quota)}
	}
	err := os.Mkdir(dir, 0o755)
	h.confined = append(h.confined, dir)
	for file, value := range settings {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, file), []byte(value), 0o644))
	}
	if err := errors.Join(err, os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0o644)); err != nil {
		h.t.Fatalf("-cluster.share needs control groups, and who may make them: %v", err)
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// spent is the processor time that has been used.
type spent struct{ servers, database, clients time.Duration }

func (h *house) spent() (s spent) {
	for _, m := range h.servers {
		if m.cmd != nil {
			s.servers += processorTime(m.cmd.Process.Pid)
		}
	}
	s.database = processorTime(h.postmaster)
	var own syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &own); err != nil {
		h.t.Fatal(err)
	}
	s.clients = time.Duration(own.Utime.Nano() + own.Stime.Nano())
	return s
}

// processorTime returns the processor time of a process and its children, or 0 where
// there is no /proc.
func processorTime(pid int) (used time.Duration) {
	stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, after, _ := strings.Cut(string(stat), ") ")
	const utime, cstime, tick = 11, 14, 10 * time.Millisecond
	if fields := strings.Fields(after); len(fields) > cstime {
		for _, field := range fields[utime : cstime+1] {
			n, _ := strconv.Atoi(field)
			used += time.Duration(n) * tick
		}
	}
	children, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	for child := range strings.FieldsSeq(string(children)) {
		n, _ := strconv.Atoi(child)
		used += processorTime(n)
	}
	return used
}

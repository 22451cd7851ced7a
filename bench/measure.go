package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	maxWorkers = 64
	many       = 100 // tasks in a batch
)

// payload is the payload of every task: JSON of 256 bytes.
var payload = func() []byte {
	p := make([]byte, 256)
	for i := range p {
		p[i] = "abcdefghijklmnopqrstuvwxyz"[i*7%26]
	}
	p[0], p[255] = '"', '"'
	return p
}()

// An operation is a kind of call that bench measures.
type operation string

const (
	enqueue     operation = "enqueue"
	cycle       operation = "claim+submit"
	enqueueMany operation = "enqueue x100"
	cycleMany   operation = "claim+submit x100"
	emptyTool   operation = "empty tool" // calls, not tasks
)

var operations = []operation{enqueue, cycle, enqueueMany, cycleMany, emptyTool}

// A step does an operation once, as one of the workers, and returns the number of
// tasks. Each worker does one step after the other. errDry means that there was no
// task.
type step func(ctx context.Context, worker int) (tasks int, err error)

var errDry = errors.New("no task is ready")

// A contender is a running queue.
type contender struct {
	*entrant
	version string
	steps   map[operation]step
	// runs are for a queue that brings its own workers. A run does cycles for
	// about as long as window says.
	runs  map[operation]func(ctx context.Context, workers int, window time.Duration) (sample, error)
	ready int                  // tasks, about
	cpu   func() time.Duration // what it has used of the processors; nil: not known
	// commits returns how many commits it has made; nil: not known.
	commits func(ctx context.Context) (int64, error)
	close   func() error
}

func (c *contender) used() time.Duration {
	if c.cpu == nil {
		return 0
	}
	return c.cpu()
}

func (c *contender) can(op operation) bool { return c.steps[op] != nil || c.runs[op] != nil }

// A sample is a number of tasks and the time that they took.
type sample struct {
	tasks int
	took  time.Duration
	cpu   time.Duration // of the processors; 0: not known
}

func (s sample) rate() float64 { return float64(s.tasks) / s.took.Seconds() }

// cost is the microseconds of the processors that a task took.
func (s sample) cost() float64 { return float64(s.cpu.Nanoseconds()) / 1e3 / float64(s.tasks) }

// measure runs op in the workers until window is over.
func (c *contender) measure(ctx context.Context, op operation, workers int, window time.Duration) (s sample, err error) {
	used := c.used()
	if run := c.runs[op]; run != nil {
		s, err = run(ctx, workers, window)
	} else {
		s, err = together(ctx, workers, window, c.steps[op])
	}
	s.cpu = c.used() - used
	switch op {
	case enqueue, enqueueMany:
		c.ready += s.tasks
	case cycle, cycleMany:
		c.ready -= s.tasks
	}
	if err != nil {
		return s, fmt.Errorf("%s: %s: %w", c.name, op, err)
	}
	return s, nil
}

// together runs step in each worker. It ends early if the tasks run out.
func together(ctx context.Context, workers int, window time.Duration, do step) (sample, error) {
	counts, errs := make([]int, workers), make([]error, workers)
	dry := make(chan struct{})
	var once sync.Once
	var wg sync.WaitGroup
	start := time.Now()
	for w := range workers {
		wg.Go(func() {
			for time.Since(start) < window && ctx.Err() == nil {
				n, err := do(ctx, w)
				counts[w] += n
				if errors.Is(err, errDry) {
					once.Do(func() { close(dry) })
				}
				select {
				case <-dry:
					return
				default:
				}
				if err != nil {
					errs[w] = err
					return
				}
			}
		})
	}
	wg.Wait()
	s := sample{took: time.Since(start)}
	for _, n := range counts {
		s.tasks += n
	}
	if ctx.Err() != nil {
		return s, context.Cause(ctx)
	}
	return s, errors.Join(errs...)
}

// A trial is all the rounds of one number of workers.
type trial struct {
	Workers int
	Rates   map[string]map[operation][]float64 // by contender; tasks a second, one of each round
	Costs   map[string]map[operation][]float64 // where they are known; µs of the processors for a task
	commits map[string]map[operation][]float64 // where they are known; for a task
}

func newTrial(workers int, contenders []*contender) trial {
	r := trial{Workers: workers, Rates: make(map[string]map[operation][]float64), Costs: make(map[string]map[operation][]float64), commits: make(map[string]map[operation][]float64)}
	for _, c := range contenders {
		r.Rates[c.name] = make(map[operation][]float64)
		r.Costs[c.name] = make(map[operation][]float64)
		r.commits[c.name] = make(map[operation][]float64)
	}
	return r
}

// round measures all contenders once, in a different order each time.
func (r trial) round(ctx context.Context, round int, contenders []*contender, window time.Duration) error {
	for i := range contenders {
		c := contenders[(i+round)%len(contenders)]
		for _, op := range operations {
			if !c.can(op) {
				continue
			}
			if op == cycle || op == cycleMany {
				if err := c.stock(ctx, r.expect(c, op, window)); err != nil {
					return err
				}
			}
			settle(contenders)
			s, err := c.measure(ctx, op, r.Workers, window)
			if err != nil {
				return err
			}
			if s.tasks == 0 {
				return fmt.Errorf("%s: %s: nothing done in %v", c.name, op, s.took)
			}
			r.Rates[c.name][op] = append(r.Rates[c.name][op], s.rate())
			if s.cpu > 0 {
				r.Costs[c.name][op] = append(r.Costs[c.name][op], s.cost())
			}
		}
	}
	return nil
}

// settle waits, for a limited time, until this process and the contenders' servers are
// idle. A store compacts after many writes, and that would slow down the next contender.
func settle(contenders []*contender) {
	const look = 20 * time.Millisecond
	for range 150 {
		before := allUsed(contenders)
		time.Sleep(look)
		if allUsed(contenders)-before < look/5 {
			return
		}
	}
}

func allUsed(contenders []*contender) time.Duration {
	used := cpuTime()
	for _, c := range contenders {
		used += c.used()
	}
	return used
}

// cpuTime returns the processor time of this process.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// cpuTimeOf returns the processor time of another process in steps of 10 ms, or 0 if the
// system does not tell.
func cpuTimeOf(pid int) time.Duration {
	stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, after, _ := strings.Cut(string(stat), ") ")
	fields := strings.Fields(after)
	if len(fields) < 13 {
		return 0
	}
	user, err := strconv.Atoi(fields[11])
	system, err2 := strconv.Atoi(fields[12])
	if err != nil || err2 != nil {
		return 0
	}
	return time.Duration(user+system) * 10 * time.Millisecond
}

// cpuTimeBelow returns cpuTimeOf a process and its children.
func cpuTimeBelow(pid int) time.Duration {
	sum := cpuTimeOf(pid)
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, list := range lists {
		children, _ := os.ReadFile(list) // the process may have ended
		for child := range strings.FieldsSeq(string(children)) {
			if n, err := strconv.Atoi(child); err == nil {
				sum += cpuTimeOf(n)
			}
		}
	}
	return sum
}

// expect returns how many tasks op may take in a window: somewhat more than it ever took.
// Before its first round, the rate of enqueue is used.
func (r trial) expect(c *contender, op operation, window time.Duration) int {
	rate := r.Rates[c.name][enqueue][0]
	if done := r.Rates[c.name][op]; len(done) > 0 {
		rate = slices.Max(done)
	}
	return int(1.3*rate*window.Seconds()) + many*r.Workers
}

// stock enqueues, without measuring, until there are n tasks.
func (c *contender) stock(ctx context.Context, n int) error {
	op := enqueue
	if c.can(enqueueMany) {
		op = enqueueMany
	}
	for c.ready < n {
		if _, err := c.measure(ctx, op, maxWorkers, 50*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

// fsyncTime returns the median time of a write of 4 KiB with an fsync, in a file that
// already has its full size.
func fsyncTime(dir string) (time.Duration, error) {
	f, err := os.Create(filepath.Join(dir, "fsync"))
	if err != nil {
		return 0, err
	}
	defer f.Close() // it goes with its directory
	const n = 200
	block := make([]byte, 4096)
	var times []time.Duration
	for i := range 2 * n {
		start := time.Now()
		if _, err := f.WriteAt(block, int64(i%n*len(block))); err != nil {
			return 0, err
		}
		if err := f.Sync(); err != nil {
			return 0, err
		}
		if i >= n { // the second time over
			times = append(times, time.Since(start))
		}
	}
	return median(times), nil
}

func median[T float64 | time.Duration](xs []T) T {
	xs = slices.Sorted(slices.Values(xs))
	return xs[len(xs)/2]
}

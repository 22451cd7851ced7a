package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"text/tabwriter"
	"time"
)

type report struct {
	Machine string
	Fsync   time.Duration
	Config  config
	Missing []missing
	Trials  []trial
	entered []*contender
}

type missing struct{ Peer, Why string }

// machine describes this machine and its load.
func machine() string {
	model := runtime.GOARCH
	info, _ := os.ReadFile("/proc/cpuinfo") // elsewhere the architecture will do
	for line := range strings.Lines(string(info)) {
		if name, ok := strings.CutPrefix(line, "model name"); ok {
			model = strings.Trim(name, "\t :\n")
			break
		}
	}
	m := fmt.Sprintf("%s, %d of %s, %s", runtime.GOOS, runtime.NumCPU(), model, runtime.Version())
	if load, err := os.ReadFile("/proc/loadavg"); err == nil {
		first, _, _ := strings.Cut(string(load), " ")
		m += ", load " + first + " before"
	}
	return m
}

// rate returns the median of op's rounds, or 0 if there is none.
func (r trial) rate(name string, op operation) float64 {
	if xs := r.Rates[name][op]; len(xs) > 0 {
		return median(xs)
	}
	return 0
}

// cost returns the median of op's costs, or 0 if they are not known.
func (r trial) cost(name string, op operation) float64 {
	if xs := r.Costs[name][op]; len(xs) > 0 {
		return median(xs)
	}
	return 0
}

// ratio returns the median of the ratios of each round, or 0 if there is none. It
// compares within a round, because a slow phase of the machine slows both.
func (r trial) ratio(name string, op operation, to string, toOp operation) float64 {
	a, b := r.Rates[name][op], r.Rates[to][toOp]
	if len(a) == 0 || len(a) != len(b) {
		return 0
	}
	ratios := make([]float64, len(a))
	for i := range a {
		ratios[i] = a[i] / b[i]
	}
	return median(ratios)
}

// best returns the peer that does op fastest, or "" if there is none.
func (r trial) best(op operation) (name string) {
	for _, p := range known() {
		if rate := r.rate(p, op); rate > 0 && rate > r.rate(name, op) {
			name = p
		}
	}
	return name
}

// A goal is what a contender of ours should reach of the best peer's rate.
type goal struct {
	Contender string
	Operation operation
	Peer      string // the best one, or ""
	Want, Got float64
}

// goals are those of the API where many work at once, and those of both ways
// through the socket, which is the door that users have.
func (r trial) goals() (goals []goal) {
	want := func(contender string, op operation, ratio float64) {
		best := r.best(op)
		goals = append(goals, goal{contender, op, best, ratio, r.ratio(contender, op, best, op)})
	}
	if r.Workers < 8 {
		return nil
	}
	atLeast := 0.8
	if r.Workers >= 64 {
		atLeast = 1
		want(api, enqueue, 2)
		want(api, cycle, 2.1)
	}
	for _, door := range []string{socket, program} {
		want(door, enqueue, atLeast)
		want(door, cycle, atLeast)
	}
	return goals
}

func (r report) print(out io.Writer) {
	fmt.Fprintf(out, "%s; an fsync of 4 KiB takes %v\n", r.Machine, r.Fsync.Round(time.Microsecond))
	if r.Fsync < 10*time.Microsecond {
		fmt.Fprintf(out, "THAT IS NO DISK: say with -dir where one is.\n")
	}
	fmt.Fprintf(out, "256-byte payloads, every acknowledged write synced; tasks a second, median of %d rounds of %v each\n", r.Config.Rounds, r.Config.Window)
	for _, c := range r.entered {
		fmt.Fprintf(out, "  %s: %s\n", c.name, c.version)
	}
	for _, m := range r.Missing {
		fmt.Fprintf(out, "LEFT OUT: %s: %s\n", m.Peer, m.Why)
	}
	for _, t := range r.Trials {
		fmt.Fprintf(out, "\n%d workers\n", t.Workers)
		t.print(out, r.entered)
	}
}

func (r trial) print(out io.Writer, entered []*contender) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "syncs\t")
	for _, op := range operations {
		if op != emptyTool {
			fmt.Fprintf(w, "%s\tto bare\t", op)
		}
	}
	fmt.Fprintf(w, "  \n")
	for _, c := range entered {
		fmt.Fprintf(w, "%s\t", c.syncs)
		for _, op := range operations {
			if op == emptyTool {
				continue
			}
			fmt.Fprintf(w, "%s\t%s\t", number(r.rate(c.name, op), 0), number(r.ratio(c.name, op, bare, op), 2))
		}
		fmt.Fprintf(w, "  %s\n", c.name)
	}
	_ = w.Flush() // the table is for people
	if rate := r.rate(socket, emptyTool); rate > 0 {
		fmt.Fprintf(out, "  an empty tool by the socket: %s calls a second; with a bare commit after each call that makes %s\n",
			number(rate, 0), number(1/(1/rate+1/r.rate(bare, enqueue)), 0))
	}
	if empty := r.cost(socket, emptyTool); empty > 0 {
		fmt.Fprintf(out, "  µs of the daemon's processor time: %s for an empty call, %s for an enqueue, %s for a claim and its submit; of the API's: %s and %s\n",
			number(empty, 1), number(r.cost(socket, enqueue), 1), number(r.cost(socket, cycle), 1),
			number(r.cost(api, enqueue), 1), number(r.cost(api, cycle), 1))
	}
	for _, g := range r.goals() {
		word := "reached"
		switch {
		case g.Got == 0:
			word = "not measured"
		case g.Got < g.Want:
			word = "MISSED"
		}
		fmt.Fprintf(out, "  %-12s  %5s, goal at least %.1f: %s of %s to the best peer's, %s\n",
			word, number(g.Got, 2), g.Want, g.Operation, g.Contender, cmp.Or(g.Peer, "none"))
	}
}

func number(x float64, digits int) string {
	if x == 0 {
		return "-"
	}
	return fmt.Sprintf("%.*f", digits, x)
}

func (r report) json(out io.Writer) error {
	type contenderJSON struct{ Name, Version, Syncs string }
	type trialJSON struct {
		trial
		Medians map[string]map[operation]float64
		Goals   []goal
	}
	all := struct {
		report
		Contenders []contenderJSON
		Trials     []trialJSON
	}{report: r}
	for _, c := range r.entered {
		all.Contenders = append(all.Contenders, contenderJSON{c.name, c.version, c.syncs})
	}
	for _, t := range r.Trials {
		medians := make(map[string]map[operation]float64)
		for name, ops := range t.Rates {
			medians[name] = make(map[operation]float64)
			for op := range ops {
				medians[name][op] = t.rate(name, op)
			}
		}
		all.Trials = append(all.Trials, trialJSON{t, medians, t.goals()})
	}
	e := json.NewEncoder(out)
	e.SetIndent("", "  ")
	return e.Encode(all)
}

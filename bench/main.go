// Command bench compares Leasehold's queue with other durable queues on one machine
// in one run. A bare Pebble is the limit. README.md says what is measured, and how to
// read it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func main() {
	if os.Getenv("GOMAXPROCS") == "" { // for all contenders, as leasehold serve does
		runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + 1)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

type config struct {
	Dir     string
	Peers   []string
	Workers []int
	Rounds  int
	Window  time.Duration
	JSON    bool

	Database bool // measure what many machines have: leases and tasks on one database

	HandOver string // the leasehold command, to measure only how it hands over
}

const usage = `usage: bench [flags]

Compares durable queues, 256-byte payloads, every acknowledged write synced. It
starts the servers of the peers on the loopback and in a temporary directory,
and stops them at the end. A peer that is not installed is left out, with how to
install it.

`

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	if len(args) == 3 && args[0] == serveArg {
		return serve(ctx, args[1], args[2], stdout, stderr)
	}
	cfg, err := parse(args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		fmt.Fprintf(stderr, "bench: %v\n", err)
		return 2
	}
	measure := compare
	if cfg.HandOver != "" {
		measure = handOver
	}
	if cfg.Database {
		measure = compareDatabases
	}
	if err := measure(ctx, cfg, stdout, stderr); err != nil {
		fmt.Fprintf(stderr, "bench: %v\n", err)
		return 1
	}
	return 0
}

func parse(args []string, stderr io.Writer) (cfg config, err error) {
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.Usage = func() { io.WriteString(stderr, usage); f.PrintDefaults() }
	f.StringVar(&cfg.Dir, "dir", os.TempDir(), "`directory` for all states, on the disk that is to be measured")
	f.IntVar(&cfg.Rounds, "rounds", 7, "rounds, of which the median is told")
	f.DurationVar(&cfg.Window, "window", 500*time.Millisecond, "how long each operation is measured in a round")
	f.BoolVar(&cfg.JSON, "json", false, "print JSON, every round with it")
	f.StringVar(&cfg.HandOver, "handover", "", "measure only hand-overs between two shims of this leasehold `command`")
	f.BoolVar(&cfg.Database, "database", false, "compare leases and tasks on a PostgreSQL, and etcd's mutex, instead")
	quick := f.Bool("quick", false, "3 rounds of 150 ms, for a first look")
	peers := f.String("peers", strings.Join(known(), ","), "whom to measure beside Leasehold")
	workers := f.String("workers", "1,8,64", "how many workers, one run for each number")
	if err := f.Parse(args); err != nil {
		return cfg, err
	}
	if *quick {
		cfg.Rounds, cfg.Window = 3, 150*time.Millisecond
	}
	for _, p := range strings.FieldsFunc(*peers, func(r rune) bool { return r == ',' }) {
		if !slices.Contains(known(), p) {
			return cfg, fmt.Errorf("-peers %s: there are %s", p, strings.Join(known(), ", "))
		}
		cfg.Peers = append(cfg.Peers, p)
	}
	for w := range strings.SplitSeq(*workers, ",") {
		n, err := strconv.Atoi(w)
		if err != nil || n < 1 || n > maxWorkers {
			return cfg, fmt.Errorf("-workers %s: must be numbers from 1 to %d", *workers, maxWorkers)
		}
		cfg.Workers = append(cfg.Workers, n)
	}
	switch {
	case f.NArg() > 0:
		return cfg, fmt.Errorf("unknown argument %q", f.Arg(0))
	case cfg.Rounds < 1 || cfg.Rounds > 100:
		return cfg, errors.New("-rounds: must be from 1 to 100")
	case cfg.Window < 10*time.Millisecond || cfg.Window > time.Minute:
		return cfg, errors.New("-window: must be from 10ms to 1m")
	}
	return cfg, nil
}

// compare measures all contenders and reports.
func compare(ctx context.Context, cfg config, stdout, stderr io.Writer) (err error) {
	dir, err := os.MkdirTemp(cfg.Dir, "leasehold-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	// A server may run as another user, and must be able to reach its own directory.
	if err := os.Chmod(dir, 0o711); err != nil {
		return err
	}
	r := report{Machine: machine(), Config: cfg}
	if r.Fsync, err = fsyncTime(dir); err != nil {
		return err
	}
	var contenders []*contender
	defer func() {
		for _, c := range slices.Backward(contenders) {
			err = errors.Join(err, c.close())
		}
	}()
	for _, e := range entrants {
		if !e.ours && !slices.Contains(cfg.Peers, e.name) {
			continue
		}
		c, err := e.start(ctx, place{dir, e.name})
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil && !e.ours {
			r.Missing = append(r.Missing, missing{e.name, err.Error()})
			fmt.Fprintf(stderr, "%s is left out: %v\n", e.name, err)
			continue
		}
		if err != nil {
			return fmt.Errorf("%s: %w", e.name, err)
		}
		c.entrant = e
		contenders = append(contenders, c)
		fmt.Fprintf(stderr, "%s: %s\n", e.name, c.version)
	}
	r.entered = contenders
	for _, workers := range cfg.Workers {
		t := newTrial(workers, contenders)
		for round := range cfg.Rounds {
			fmt.Fprintf(stderr, "%d workers, round %d of %d\n", workers, round+1, cfg.Rounds)
			if err := t.round(ctx, round, contenders, cfg.Window); err != nil {
				return err
			}
		}
		r.Trials = append(r.Trials, t)
	}
	if cfg.JSON {
		return r.json(stdout)
	}
	r.print(stdout)
	return nil
}

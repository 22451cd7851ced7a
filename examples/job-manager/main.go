// Job-manager is a service of three replicas behind a load balancer. One replica generates
// jobs, and workers execute them. Every replica reports the status, and can stop the
// service. Replicas and workers are killed and paused, and leases are revoked, at random.
// In the end every job was done exactly once.
//
//	go run ./examples/job-manager [-for 20s] [-leasehold leasehold]
//
// It starts its own daemon, replicas and workers. See demo.go for the faults, generator.go
// and worker.go for the code of the service, and ledger.go for what a resource must do so
// that nothing happens twice.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/leasehold/leasehold/client"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "job-manager:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if part := os.Getenv(partVar); part != "" {
		return runPart(ctx, part)
	}
	flags := flag.NewFlagSet("job-manager", flag.ExitOnError)
	length := flags.Duration("for", 20*time.Second, "how long jobs are generated")
	program := flags.String("leasehold", "leasehold", "the leasehold executable, or its name in PATH")
	_ = flags.Parse(args) // an error ends the program
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q; -h lists the options", flags.Arg(0))
	}
	d, err := startDaemon(ctx, *program)
	if err != nil {
		return err
	}
	_, err = demonstrate(ctx, demo{Servers: d.servers, Token: d.token, Length: *length, Out: os.Stdout})
	if ctx.Err() != nil {
		err = errors.New("interrupted")
	}
	return errors.Join(err, d.stop())
}

// The environment variables of the service's processes.
const (
	partVar    = "JOB_MANAGER_PART" // replica or worker
	nameVar    = "JOB_MANAGER_NAME"
	listenVar  = "JOB_MANAGER_LISTEN"
	ledgerVar  = "JOB_MANAGER_LEDGER"
	serversVar = "LEASEHOLD_SERVERS" // separated by commas
	tokenVar   = "LEASEHOLD_TOKEN"
)

const (
	jobs = "jobs"          // the queue
	ttl  = 1 * time.Second // of the generator's lease and of claims; it is short, so that many are lost
)

func runPart(ctx context.Context, part string) error {
	c, err := client.Open(ctx, client.Options{Servers: strings.Split(os.Getenv(serversVar), ","), Token: os.Getenv(tokenVar)})
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }() // an error does not matter: the session ends anyway
	if part == "worker" {
		return work(ctx, c, os.Getenv(ledgerVar))
	}
	return serveReplica(ctx, c, os.Getenv(nameVar), os.Getenv(listenVar))
}

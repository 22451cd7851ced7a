// Job-manager is a service of three replicas behind a load balancer. One of them
// generates jobs, workers execute them, and any of them tells the status or stops it
// all. Replicas and workers are killed, stopped and robbed of their leases at random;
// at the end every job was done once.
//
//	go run ./examples/job-manager [-for 20s] [-leasehold leasehold]
//
// It starts a daemon of its own, and everything else as processes of its own: see
// demo.go for what happens to them, generator.go and worker.go for what a service has of
// this, and ledger.go for what a resource must do so that nothing happens twice.
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
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
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
	flags := flag.NewFlagSet("job-manager", flag.ContinueOnError)
	length := flags.Duration("for", 20*time.Second, "how long jobs are generated")
	program := flags.String("leasehold", "leasehold", "the command")
	if err := flags.Parse(args); err != nil {
		return err
	}
	d, err := startDaemon(ctx, *program)
	if err != nil {
		return err
	}
	r, err := demonstrate(ctx, demo{Servers: d.servers, Token: d.token, Length: *length, Out: os.Stdout})
	fmt.Print(r)
	return errors.Join(err, d.stop())
}

// What a process of the service is told by its environment.
const (
	partVar    = "JOB_MANAGER_PART" // replica or worker
	nameVar    = "JOB_MANAGER_NAME"
	listenVar  = "JOB_MANAGER_LISTEN"
	ledgerVar  = "JOB_MANAGER_LEDGER"
	serversVar = "LEASEHOLD_SERVERS" // with commas between them
	tokenVar   = "LEASEHOLD_TOKEN"
)

const (
	jobs = "jobs"          // the queue
	ttl  = 1 * time.Second // of the generator's lease and of claims: short, so that much is lost
)

func runPart(ctx context.Context, part string) error {
	c, err := client.Open(ctx, client.Options{Servers: strings.Split(os.Getenv(serversVar), ","), Token: os.Getenv(tokenVar)})
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }() // its session ends without it, too
	if part == "worker" {
		return work(ctx, c, os.Getenv(ledgerVar))
	}
	return serveReplica(ctx, c, os.Getenv(nameVar), os.Getenv(listenVar))
}

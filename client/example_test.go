package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	"github.com/leasehold/leasehold/client"
	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/dispatch/server"
	"github.com/leasehold/leasehold/engine/pebble"
)

// A program deploys under a lease: nobody else does meanwhile, and if the lease is lost
// the deployment ends before somebody else begins one.
func ExampleClient_Acquire() {
	daemon := startDaemon("deploy", "other")
	defer daemon.stop()
	ctx := context.Background()

	// ANCHOR: lease
	c, err := client.Open(ctx, client.Options{Servers: []string{daemon.url}, Token: daemon.token["deploy"]})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()

	lease, err := c.Acquire(ctx, "deploy", client.LeaseOptions{TTL: 10 * time.Second, Reason: "release 42"})
	if err != nil {
		log.Fatal(err)
	}
	deploy := func(ctx context.Context) error { return ctx.Err() } // stops when the lease is lost
	if err := deploy(lease.Context()); err != nil {
		log.Fatal(context.Cause(lease.Context()))
	}
	// ANCHOR_END: lease
	other := daemon.open("other")
	defer other.Close()
	_, err = other.TryAcquire(ctx, "deploy", client.LeaseOptions{})
	fmt.Println(client.CodeOf(err))

	// ANCHOR: release
	if err := lease.Release(ctx); err != nil { // lost before: whoever has it now may have begun
		log.Fatal(err)
	}
	// ANCHOR_END: release
	_, err = other.TryAcquire(ctx, "deploy", client.LeaseOptions{})
	fmt.Println(err)
	// Output:
	// LEASE_HELD
	// <nil>
}

// A write that carries a gate happens only if the lease is still held. The check and the
// write are one transaction.
func ExampleLease_Gate() {
	daemon := startDaemon("planner")
	defer daemon.stop()
	ctx := context.Background()
	c := daemon.open("planner")
	defer c.Close()

	// ANCHOR: gate
	lease, err := c.Acquire(ctx, "plan", client.LeaseOptions{})
	if err != nil {
		log.Fatal(err)
	}
	gate, err := lease.Gate() // immediately before the write
	if err != nil {
		log.Fatal(err)
	}
	_, err = c.Enqueue(ctx, client.NewTask{Queue: "steps", Payload: "step 1", Gates: []client.Gate{gate}})
	// ANCHOR_END: gate
	fmt.Println(err)

	if err := lease.Release(ctx); err != nil {
		log.Fatal(err)
	}
	_, err = c.Enqueue(ctx, client.NewTask{Queue: "steps", Payload: "step 2", Gates: []client.Gate{gate}}) // too late
	fmt.Println(client.CodeOf(err))
	_, err = lease.Gate()
	fmt.Println(errors.Is(err, client.ErrReleased))
	// Output:
	// <nil>
	// STALE_TOKEN
	// true
}

// A worker takes tasks until its context ends.
func ExampleClient_Work() {
	daemon := startDaemon("lead", "worker")
	defer daemon.stop()
	ctx := context.Background()
	lead, c := daemon.open("lead"), daemon.open("worker")
	defer lead.Close()
	defer c.Close()

	// ANCHOR: enqueue
	id, err := lead.Enqueue(ctx, client.NewTask{Queue: "compile", Payload: map[string]string{"package": "queue"}})
	if err != nil {
		log.Fatal(err)
	}
	// ANCHOR_END: enqueue

	working, stop := context.WithCancel(ctx)
	done := make(chan error)
	go func() {
		// ANCHOR: work
		err := c.Work(working, client.Worker{
			Queues: []string{"compile"}, Concurrency: 4,
			Handle: func(ctx context.Context, t *client.Task) (any, error) {
				var what struct{ Package string }
				if err := json.Unmarshal(t.Payload, &what); err != nil {
					return nil, client.Final(err) // no other attempt will do better
				}
				return compile(ctx, what.Package) // an error has it tried again
			},
		})
		// ANCHOR_END: work
		done <- err
	}()

	// ANCHOR: wait
	outcome, err := lead.Wait(ctx, id)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(outcome.State, string(outcome.Result))
	// ANCHOR_END: wait
	stop()
	fmt.Println(<-done)
	// Output:
	// completed "compiled queue"
	// <nil>
}

func compile(ctx context.Context, name string) (string, error) { return "compiled " + name, ctx.Err() }

// Every replica takes part; one runs. Another takes over when that one ends, or is cut
// off.
func ExampleClient_RunSingleton() {
	daemon := startDaemon("replica 1", "replica 2")
	defer daemon.stop()
	ctx, stop := context.WithCancel(context.Background())
	c := daemon.open("replica 1")
	defer c.Close()

	// ANCHOR: singleton
	err := c.RunSingleton(ctx, client.Singleton{
		Key: "generator", TTL: 10 * time.Second,
		Run: func(ctx context.Context, l *client.Lease) error {
			for i := 1; ctx.Err() == nil; i++ { // ends when the lease is lost
				gate, err := l.Gate()
				if err != nil {
					break
				}
				_, err = c.Enqueue(ctx, client.NewTask{
					Queue: "jobs", Payload: i, Key: fmt.Sprint("job ", i), Gates: []client.Gate{gate},
				})
				if err != nil {
					return err
				}
				if i == 3 {
					stop() // for this example
					<-ctx.Done()
				}
			}
			return nil
		},
	})
	// ANCHOR_END: singleton
	fmt.Println(err)

	// ANCHOR: do
	var queues struct {
		Queues []struct{ Ready int }
	}
	if err := c.Do(context.Background(), "GET", "/queues?queue=jobs", nil, &queues); err != nil {
		log.Fatal(err)
	}
	// ANCHOR_END: do
	fmt.Println(queues.Queues[0].Ready)
	// Output:
	// <nil>
	// 3
}

// An exampleDaemon is what leasehold serve is, in this process, at a socket of its own.
type exampleDaemon struct {
	url   string
	token map[string]string // by the name of the actor
	stop  func()
}

func startDaemon(actors ...string) *exampleDaemon {
	dir, err := os.MkdirTemp("", "lh")
	must(err)
	eng, err := pebble.Open(pebble.Options{Dir: filepath.Join(dir, "db")})
	must(err)
	ctx, cancel := context.WithCancel(context.Background())
	state, err := dispatch.Open(ctx, eng, dispatch.Options{})
	must(err)
	ln, err := server.ListenSocket(filepath.Join(dir, "d", "sock"))
	must(err)
	ended := make(chan error, 2)
	go func() { ended <- state.Tend(ctx) }()
	go func() { ended <- server.New(state, server.Options{}).ServeSocket(ctx, ln) }()
	d := &exampleDaemon{url: "unix://" + ln.Addr().String(), token: make(map[string]string)}
	d.stop = func() {
		cancel()
		must(errors.Join(<-ended, <-ended, eng.Close(), os.RemoveAll(dir)))
	}
	_, _, err = state.AddActor(ctx, dispatch.NewActor{Run: "site", Name: "root", Role: dispatch.Root})
	must(err)
	for _, name := range actors {
		_, d.token[name], err = state.AddActor(ctx, dispatch.NewActor{Run: "site", Name: name, Role: dispatch.Worker})
		must(err)
	}
	return d
}

func (d *exampleDaemon) open(actor string) *client.Client {
	c, err := client.Open(context.Background(), client.Options{Servers: []string{d.url}, Token: d.token[actor]})
	must(err)
	return c
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

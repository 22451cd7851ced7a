package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/dispatch/server"
	"github.com/leasehold/leasehold/engine/pebble"
)

var length = flag.Duration("jobs.for", 2*time.Second, "how long jobs are generated")

// TestMain runs a replica or a worker if the test binary was started as one.
func TestMain(m *testing.M) {
	if os.Getenv(partVar) != "" {
		if err := run(context.Background(), nil); err != nil {
			fmt.Fprintln(os.Stderr, "job-manager:", err)
			os.Exit(1)
		}
		return
	}
	flag.Parse()
	os.Exit(m.Run())
}

// Whatever is killed, paused and revoked, each job is done once, no payment is made twice,
// and no two replicas generate at the same time.
func TestEachJobIsDoneOnce(t *testing.T) {
	dir, err := os.MkdirTemp("", "jobs") // t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	eng, err := pebble.Open(pebble.Options{Dir: filepath.Join(dir, "db")})
	if err != nil {
		t.Fatal(err)
	}
	state, err := dispatch.Open(t.Context(), eng, dispatch.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ln, err := server.ListenSocket(filepath.Join(dir, "d", "sock"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 2)
	go func() { ended <- state.Tend(ctx) }()
	go func() { ended <- server.New(state, server.Options{}).ServeSocket(ctx, ln) }()
	defer func() {
		stop()
		if err := errors.Join(<-ended, <-ended, state.Check(context.Background()), eng.Close()); err != nil {
			t.Error(err)
		}
	}()
	patience, cancel := context.WithTimeout(t.Context(), *length+time.Minute)
	defer cancel()
	r, err := demonstrate(patience, demo{
		Servers: []string{"unix://" + ln.Addr().String()}, Length: *length, Out: t.Output(),
		Token: func(ctx context.Context, name string) (string, error) {
			role := dispatch.Worker
			if name == "root" {
				role = dispatch.Root
			}
			_, token, err := state.AddActor(ctx, dispatch.NewActor{Run: "jobs", Name: name, Role: role})
			return token, err
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v\n%s", r.status, r)
	if r.Paid == 0 {
		t.Error("no job was done")
	}
}

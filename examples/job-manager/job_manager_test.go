package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
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

// newDemo returns a demo with a daemon of its own.
func newDemo(t *testing.T, out io.Writer) demo {
	dir, err := os.MkdirTemp("", "jobs") // t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
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
	t.Cleanup(func() {
		stop()
		if err := errors.Join(<-ended, <-ended, state.Check(context.Background()), eng.Close()); err != nil {
			t.Error(err)
		}
	})
	return demo{
		Servers: []string{"unix://" + ln.Addr().String()}, Length: *length, Out: out,
		Token: func(ctx context.Context, name string) (string, error) {
			role := dispatch.Worker
			if name == "root" {
				role = dispatch.Root
			}
			_, token, err := state.AddActor(ctx, dispatch.NewActor{Run: "jobs", Name: name, Role: role})
			return token, err
		},
	}
}

// Whatever is killed, paused and revoked, each job is done once, no payment is made twice,
// and no two replicas generate at the same time.
func TestEachJobIsDoneOnce(t *testing.T) {
	patience, cancel := context.WithTimeout(t.Context(), *length+time.Minute)
	defer cancel()
	r, err := demonstrate(patience, newDemo(t, t.Output()))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", r.status)
	if r.Paid == 0 {
		t.Error("no job was done")
	}
}

// A demo that was interrupted has checked nothing, so it does not say that it has.
func TestAnInterruptedDemoReportsNothing(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	var out bytes.Buffer
	d := newDemo(t, &out)
	makeActor := d.Token
	d.Token = func(ctx context.Context, name string) (string, error) {
		if name == "worker-1" {
			interrupt()
		}
		return makeActor(context.WithoutCancel(ctx), name)
	}
	if _, err := demonstrate(ctx, d); err == nil || out.Len() > 0 {
		t.Errorf("it ended with %v and printed %q", err, &out)
	}
}

// A daemon that does not start has a reason, and so has its absence.
func TestAFailedStartSaysWhy(t *testing.T) {
	for program, want := range map[string]string{"sh": "sh: ", "nothing": "with -leasehold"} {
		if _, err := startDaemon(t.Context(), program); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("startDaemon(%s): %v, want %q", program, err, want)
		}
	}
}

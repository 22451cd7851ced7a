package client_test

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// An outside is the module of somebody else's program, which has this one as a
// dependency.
type outside struct {
	t    *testing.T
	dir  string
	bins string
}

func newOutside(t *testing.T) *outside {
	t.Helper()
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	o := &outside{t, t.TempDir(), t.TempDir()}
	own, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	sums, err := os.ReadFile(filepath.Join(root, "go.sum"))
	if err != nil {
		t.Fatal(err)
	}
	// The versions that this module requires are those that are here.
	const self = "module github.com/leasehold/leasehold\n"
	needs := strings.Replace(string(own), self, "module example.com/outside\n", 1) +
		"\nrequire github.com/leasehold/leasehold v0.0.0\nreplace github.com/leasehold/leasehold => " + root + "\n"
	o.write("go.mod", needs)
	o.write("go.sum", string(sums))
	return o
}

func (o *outside) write(name, text string) {
	o.t.Helper()
	path := filepath.Join(o.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		o.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		o.t.Fatal(err)
	}
}

// run compiles a program of the outside and returns what it prints.
func (o *outside) run(name, source string, environ ...string) string {
	o.t.Helper()
	o.write(name+"/main.go", source)
	bin := filepath.Join(o.bins, name)
	build := exec.CommandContext(o.t.Context(), "go", "build", "-mod=mod", "-o", bin, "./"+name)
	build.Dir, build.Env = o.dir, append(os.Environ(), "GOPROXY=off", "GOWORK=off", "GOFLAGS=")
	if out, err := build.CombinedOutput(); err != nil {
		o.t.Fatalf("%s does not compile: %v\n%s", name, err, out)
	}
	run := exec.CommandContext(o.t.Context(), bin)
	run.Env = append(os.Environ(), environ...)
	var stdout, stderr bytes.Buffer
	run.Stdout, run.Stderr = &stdout, &stderr
	if err := run.Run(); err != nil {
		o.t.Fatalf("%s: %v\n%s%s", name, err, &stdout, &stderr)
	}
	return stdout.String()
}

// A program of another module works with package client alone.
func TestAProgramOfAnotherModuleUsesTheClient(t *testing.T) {
	d := startDaemon("deploy")
	defer d.stop()
	out := newOutside(t).run("deploy", `package main

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/leasehold/leasehold/client"
)

func main() {
	ctx, stop := context.WithCancel(context.Background())
	c, err := client.Open(ctx, client.Options{Servers: []string{os.Getenv("SERVER")}, Token: os.Getenv("TOKEN")})
	if err != nil {
		log.Fatal(err)
	}
	lease, err := c.Acquire(ctx, "deploy", client.LeaseOptions{Reason: "release 42"})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := c.Enqueue(lease.Context(), client.NewTask{Queue: "q", Payload: "hello"}); err != nil {
		log.Fatal(err)
	}
	err = c.Work(ctx, client.Worker{Queues: []string{"q"}, Handle: func(_ context.Context, t *client.Task) (any, error) {
		fmt.Println("did", string(t.Payload))
		stop()
		return nil, nil
	}})
	if err != nil {
		log.Fatal(err)
	}
	if err := lease.Release(context.Background()); err != nil {
		log.Fatal(err)
	}
	if err := c.Close(); err != nil {
		log.Fatal(err)
	}
}
`, "SERVER="+d.url, "TOKEN="+d.token["deploy"])
	if out != "did \"hello\"\n" {
		t.Errorf("it printed %q", out)
	}
	c := d.open("deploy")
	defer c.Close()
	var left struct{ Leases []json.RawMessage }
	if err := c.Do(context.Background(), "GET", "/leases", nil, &left); err != nil || len(left.Leases) > 0 {
		t.Errorf("it left %s, %v", left.Leases, err)
	}
}

// A program that opens the packages below by itself, and so has nothing that ends
// leases and claims, is refused once one should have ended. It does not go on as if
// they were held for ever.
func TestAProgramWithoutBackgroundWorkIsRefused(t *testing.T) {
	out := newOutside(t).run("direct", `package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/clock"
	"github.com/leasehold/leasehold/engine/pebble"
	"github.com/leasehold/leasehold/queue"
	"github.com/leasehold/leasehold/registry"
)

func main() {
	ctx := context.Background()
	passed := time.Duration(0)
	began := clock.Running()
	clk := clock.Clock{Running: func() time.Duration { return began + passed }, Wall: time.Now}
	eng, err := pebble.Open(pebble.Options{Dir: os.Getenv("STATE"), Clock: clk})
	if err != nil {
		log.Fatal(err)
	}
	core := registry.New(eng, registry.Options{})
	leases, tasks := core.Registry("run:"+uuid.NewString()), queue.New(eng, core, queue.Options{})
	one := registry.Holder{Session: uuid.New(), Actor: uuid.New(), Path: "one"}
	two := registry.Holder{Session: uuid.New(), Actor: uuid.New(), Path: "two"}
	if _, err := leases.Acquire(ctx, registry.Request{Holder: one, Key: "deploy", TTL: time.Second}); err != nil {
		log.Fatal(err)
	}
	for range 10 {
		passed += 2 * time.Second
		_, err := leases.Acquire(ctx, registry.Request{Holder: two, Key: "other", TTL: time.Hour})
		_, wrong := tasks.Enqueue(ctx, queue.NewTask{Run: uuid.New(), Queue: "q", Payload: []byte("1")})
		fmt.Println(errors.Is(err, engine.ErrUntended), errors.Is(wrong, engine.ErrUntended))
	}
}
`, "STATE="+filepath.Join(t.TempDir(), "state"))
	lines := strings.Fields(strings.ReplaceAll(out, " ", "/"))
	if len(lines) != 10 || lines[0] != "false/false" || lines[9] != "true/true" {
		t.Errorf("it went on as if leases ended: %v", lines)
	}
}

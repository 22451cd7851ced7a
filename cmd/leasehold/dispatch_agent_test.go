package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/leasehold/leasehold/dispatch/client"
	"github.com/leasehold/leasehold/dispatch/server"
)

// A chaosPrompt is what an agent of a chaotic tree is told.
type chaosPrompt struct {
	Seed   uint64
	Widths []int // children of each lead, level by level; the last are workers
	Calm   bool  // nobody dies
}

// chaosAgent is one agent of a chaotic tree. A lead spawns the level below it
// and waits for it; all contend for the same few leases and tasks. Then it ends
// one way or another: see fate.
func chaosAgent() error {
	text, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	var told chaosPrompt
	if err := json.Unmarshal(text, &told); err != nil {
		return fmt.Errorf("prompt %q: %w", text, err)
	}
	path := os.Getenv("LEASEHOLD_PATH")
	a := &chaotic{told: told, path: path, rnd: rand.New(rand.NewPCG(told.Seed, hashOf(path)))}
	ctx := context.Background()
	nc, err := net.Dial("unix", os.Getenv("LEASEHOLD_SOCKET"))
	if err != nil {
		return err
	}
	hello := server.Hello{Token: os.Getenv("LEASEHOLD_TOKEN")}
	if a.c, err = client.Connect(ctx, nc, hello, "chaos", ""); err != nil {
		return err
	}
	if err := a.spawn(ctx); err != nil {
		return err
	}
	for range 1 + a.rnd.IntN(4) {
		if err := a.contend(ctx); err != nil {
			return err
		}
	}
	if !told.Calm && os.Getenv("LEASEHOLD_ROLE") != "root" {
		a.fate()
	}
	if err := a.await(ctx); err != nil {
		return err
	}
	return a.call(ctx, "actor_report", map[string]any{"result": "chaos at " + path}, nil)
}

func hashOf(s string) uint64 {
	h := uint64(14695981039346656037)
	for _, b := range []byte(s) {
		h = (h ^ uint64(b)) * 1099511628211
	}
	return h
}

type chaotic struct {
	told     chaosPrompt
	path     string
	rnd      *rand.Rand
	c        *client.Client
	children []string
}

// call makes a call. To be refused is part of it.
func (a *chaotic) call(ctx context.Context, tool string, args map[string]any, answer any) error {
	got, err := a.c.Call(ctx, tool, args)
	var refusal *client.Refusal
	switch {
	case errors.As(err, &refusal):
		return nil
	case err != nil:
		return fmt.Errorf("%s: %w", tool, err)
	case answer == nil:
		return nil
	}
	return json.Unmarshal(got.Object, answer)
}

func (a *chaotic) spawn(ctx context.Context) error {
	if len(a.told.Widths) == 0 {
		return nil
	}
	below := a.told
	below.Widths = a.told.Widths[1:]
	prompt, err := json.Marshal(below)
	if err != nil {
		return err
	}
	for n := range a.told.Widths[0] {
		tool, args := "spawn_sublead", map[string]any{"name": fmt.Sprintf("%c%d", 'A'+len(below.Widths), n+1), "prompt": string(prompt)}
		if len(below.Widths) == 0 {
			tool, args["name"] = "spawn_worker", fmt.Sprintf("W%d", n+1)
			args["worktree"] = n == 0
		}
		var made struct {
			ActorID string `json:"actor_id"`
			Path    string
		}
		if err := a.call(ctx, tool, args, &made); err != nil {
			return err
		}
		if made.ActorID != "" {
			a.children = append(a.children, made.ActorID)
			fmt.Println("spawned", made.Path)
		}
	}
	return nil
}

func (a *chaotic) await(ctx context.Context) error {
	for len(a.children) > 0 {
		var waited struct{ Done bool }
		err := a.call(ctx, "actor_wait", map[string]any{"actors": a.children, "mode": "all", "wait_secs": 20}, &waited)
		if err != nil || waited.Done {
			return err
		}
	}
	return nil
}

// contend takes something that others want, and does not always give it back.
func (a *chaotic) contend(ctx context.Context) error {
	key := fmt.Sprint("key", a.rnd.IntN(6))
	wait := a.rnd.Float64()
	switch a.rnd.IntN(5) {
	case 0, 1:
		var got struct {
			ID string `json:"lease_id"`
		}
		err := a.call(ctx, "run_lease_acquire", map[string]any{"key": key, "wait_secs": wait, "ttl_secs": 3600}, &got)
		if err != nil || got.ID == "" || a.rnd.IntN(3) == 0 {
			return err
		}
		time.Sleep(time.Duration(a.rnd.IntN(50)) * time.Millisecond)
		return a.call(ctx, "run_lease_release", map[string]any{"lease_id": got.ID}, nil)
	case 2:
		return a.call(ctx, "lease_acquire", map[string]any{"name": key, "wait_secs": wait, "keep_alive": true}, nil)
	case 3:
		return a.call(ctx, "task_enqueue", map[string]any{"queue": "chaos", "payload": a.path}, nil)
	default:
		return a.call(ctx, "task_claim", map[string]any{"queues": []string{"chaos"}, "ttl_secs": 3600, "wait_secs": wait}, nil)
	}
}

// fate ends the agent, or leaves it to end well.
func (a *chaotic) fate() {
	n := a.rnd.IntN(100)
	if len(a.told.Widths) > 0 {
		n = a.rnd.IntN(300) // whoever leads takes many with it
	}
	switch {
	case n < 60 || n > 100:
	case n < 70:
		os.Exit(1)
	case n < 80:
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	case n < 84:
		select {} // until it is told to end
	case n < 88:
		signal.Ignore(syscall.SIGTERM)
		select {}
	case n < 94: // leave a child behind, which ignores SIGTERM
		_ = exec.Command("sh", "-c", "trap '' TERM; sleep 1000 & sleep 1000").Start()
	default: // leave one in a session of its own, whose parent is gone
		left := exec.Command("sh", "-c", "sleep 1000 & exit 0")
		left.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		_ = left.Run()
	}
}

// marked are the processes that carry a mark in their environment, by /proc.
func marked(mark string) (pids []string) {
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		environ, err := os.ReadFile("/proc/" + e.Name() + "/environ")
		if err == nil && strings.Contains("\x00"+string(environ), "\x00"+mark+"\x00") {
			pids = append(pids, e.Name())
		}
	}
	return pids
}

package view_test

import (
	"context"
	"encoding/json"
	"maps"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/dispatch/client"
	"github.com/leasehold/leasehold/dispatch/process"
	"github.com/leasehold/leasehold/dispatch/server"
	"github.com/leasehold/leasehold/engine/pebble"
)

// A daemon is one whose state is in memory. In a bubble its clocks stand still
// while somebody works, so that what it tells is the same each time.
type daemon struct {
	t     *testing.T
	state *dispatch.State
	*server.Server
	ctx   context.Context
	conns sync.WaitGroup
}

func newDaemon(t *testing.T) *daemon {
	t.Helper()
	return newDaemonThatKeeps(t, dispatch.Retention{})
}

func newDaemonThatKeeps(t *testing.T, keep dispatch.Retention) *daemon {
	t.Helper()
	eng, err := pebble.Open(pebble.Options{Dir: "state", FS: vfs.NewMem()})
	if err != nil {
		t.Fatal(err)
	}
	state, err := dispatch.Open(t.Context(), eng, dispatch.Options{Keep: keep})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	d := &daemon{t: t, state: state, Server: server.New(state, server.Options{}), ctx: ctx}
	d.conns.Go(func() { _ = state.Tend(ctx) })
	t.Cleanup(func() {
		stop()
		d.conns.Wait()
		if err := eng.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// connect opens a session that lasts until the test ends.
func (d *daemon) connect(hello server.Hello) *client.Client {
	d.t.Helper()
	near, far := net.Pipe()
	d.conns.Go(func() { d.ServeConn(d.ctx, far, process.Peer{}) })
	c, err := client.Connect(d.t.Context(), near, hello, "test", "")
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() { c.Close() })
	return c
}

// actor adds an actor at a lead's path and connects as it.
func (d *daemon) actor(run, parent, name string, role dispatch.Role) agent {
	d.t.Helper()
	_, token, err := d.state.AddActor(d.t.Context(), dispatch.NewActor{Run: run, Parent: parent, Name: name, Role: role})
	if err != nil {
		d.t.Fatal(err)
	}
	return agent{d, d.connect(server.Hello{Token: token})}
}

type agent struct {
	d *daemon
	c *client.Client
}

type args = map[string]any

func (a agent) call(tool string, with args) json.RawMessage {
	a.d.t.Helper()
	answer, err := a.c.Call(a.d.t.Context(), tool, with)
	if err != nil {
		a.d.t.Fatalf("%s %v: %v", tool, with, err)
	}
	return answer.Object
}

// waits calls a tool that waits, and goes on.
func (a agent) waits(tool string, with args) {
	a.d.conns.Go(func() { _, _ = a.c.Call(a.d.ctx, tool, with) })
	time.Sleep(time.Second)
}

// reserved makes a key of a run that is kept for W2, who is first in line.
func (d *daemon) reserved(run, key string) {
	d.t.Helper()
	holder, first := d.actor(run, "root", "W1", dispatch.Worker), d.actor(run, "root", "W2", dispatch.Worker)
	holder.call("run_lease_acquire", args{"key": key})
	if answer, err := first.c.Call(d.t.Context(), "run_lease_acquire", args{"key": key, "wait_secs": 1}); err == nil {
		d.t.Fatalf("granted while it is held: %s", answer.Object)
	}
	holder.c.Close()
	synctest.Wait()
}

// busyRun is a run with what makes a view hard to draw: long keys, wide runes, long
// lines, claims, and tasks in every state.
func (d *daemon) busyRun(run string) (lead agent) {
	t := d.t
	lead = d.actor(run, "", "lead", dispatch.Root)
	shop := d.actor(run, "", "checkout-service", dispatch.Sublead)
	w1 := d.actor(run, "checkout-service", "payments", dispatch.Worker)
	w2 := d.actor(run, "checkout-service", "webhook-and-retries", dispatch.Worker)
	docs := d.actor(run, "", "翻訳者", dispatch.Worker)
	gone := d.actor(run, "", "spike", dispatch.Worker)
	gone.c.Close()

	const long = "file:services/checkout/internal/payments/adapters/stripe/webhook_handler.go"
	w1.call("run_lease_acquire", args{"key": long, "ttl_secs": 7200})
	w2.call("run_lease_acquire", args{"key": "port:8443", "ttl_secs": 90, "as": "planner"})
	docs.call("run_lease_acquire", args{"key": "docs/日本語/設計書/第三章-決済と返金の流れ.md", "ttl_secs": 600})
	docs.call("run_lease_acquire", args{"key": "assets/🚀🎉-launch.png", "ttl_secs": 600})
	shop.call("run_lease_acquire", args{"key": "deploy/staging", "ttl_secs": 60, "keep_alive": true})
	lead.call("lease_acquire", args{"name": "release-notes.md", "ttl_secs": 300})
	w1.call("lease_acquire", args{"name": "schema.sql", "ttl_secs": 300})
	for _, waiter := range []agent{w2, docs, lead, shop} {
		waiter.waits("run_lease_acquire", args{"key": long, "wait_secs": 50})
	}
	w2.waits("run_lease_acquire", args{"key": "deploy/staging", "wait_secs": 50})

	enqueue := func(queue string, more args) (id string) {
		with := args{"queue": queue, "payload": args{"file": "a.go"}}
		maps.Copy(with, more)
		var made struct {
			TaskID string `json:"task_id"`
		}
		if err := json.Unmarshal(lead.call("task_enqueue", with), &made); err != nil {
			t.Fatal(err)
		}
		return made.TaskID
	}
	claim := func(queue string) (task struct {
		TaskID string `json:"task_id"`
		Token  int
	},
	) {
		var list struct{ Tasks []json.RawMessage }
		if err := json.Unmarshal(w1.call("task_claim", args{"queues": []string{queue}, "ttl_secs": 120}), &list); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(list.Tasks[0], &task); err != nil {
			t.Fatal(err)
		}
		return task
	}
	enqueue("compile", args{"max_attempts": 1})
	dead := claim("compile")
	w1.call("task_nack", args{"task_id": dead.TaskID, "token": dead.Token, "reason": "no compiler for the target: 目標が見つかりません"})
	enqueue("compile", nil)
	claim("compile")
	enqueue("compile", args{"priority": 9})
	enqueue("compile", args{"delay_secs": 3600})
	enqueue("images-and-thumbnails-for-all-locales", nil)
	done := claim("images-and-thumbnails-for-all-locales")
	w1.call("task_submit", args{"task_id": done.TaskID, "token": done.Token, "status": "completed", "result": 1})
	enqueue("images-and-thumbnails-for-all-locales", nil)
	back := claim("images-and-thumbnails-for-all-locales")
	w1.call("task_nack", args{"task_id": back.TaskID, "token": back.Token, "reason": "the disk is full", "delay_secs": 0})
	if err := d.state.EndActor(t.Context(), run, "spike", "went in circles and found nothing that the plan could use"); err != nil {
		t.Fatal(err)
	}
	time.Sleep(7 * time.Second)
	return lead
}

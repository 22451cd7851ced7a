package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasehold/leasehold/dispatch/client"
	"github.com/leasehold/leasehold/dispatch/server"
	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/pebble"
	"github.com/leasehold/leasehold/queue"
	"github.com/leasehold/leasehold/registry"
)

var (
	killRounds = flag.Int("kill.rounds", 3, "how often TestKillLosesNothingAcknowledged kills the daemon")
	killSeed   = flag.Uint64("kill.seed", 0, "its seed; 0: a new one")
)

// TestKillLosesNothingAcknowledged kills the real binary, kill -9, at random
// moments while clients enqueue, claim, submit, give back and cancel, and take and
// release leases. A call that
// was cut off is sent again until it is answered, without a request_id or an
// idempotency key. After each restart what was answered is there; in the end all
// that is left can be done, each task once, and each enqueue has made one task. The events
// have each acknowledged grant, release, enqueue and submit exactly once, in order. A
// hundred rounds are
//
//	go test ./cmd/leasehold -run TestKill -v -timeout 30m -kill.rounds 100
func TestKillLosesNothingAcknowledged(t *testing.T) {
	t.Parallel()
	seed := cmp.Or(*killSeed, rand.Uint64())
	t.Logf("-kill.rounds=%d -kill.seed=%d", *killRounds, seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	d := newVictim(t)
	l := &killLedger{t: t, tasks: make(map[string]*killTask), made: make(map[string]string), witness: newWitness(t)}
	began := time.Now()

	d.start()
	ctx, cancel := context.WithCancel(t.Context())
	var load sync.WaitGroup
	const clients = 8
	for n := range clients {
		c := &loadClient{victim: d, ledger: l, name: fmt.Sprint("c", n), leases: make(map[string]heldByLoad), rnd: rand.New(rand.NewPCG(seed, uint64(n)+1))}
		load.Go(func() { c.run(ctx) })
	}
	for round := 0; round < *killRounds && !t.Failed(); round++ {
		time.Sleep(time.Duration(20+rnd.IntN(300)) * time.Millisecond)
		d.kill()
		if round%10 == 0 {
			d.check()
		}
		d.start()
		l.verify(d, false)
		l.witness.look(d)
	}
	cancel()
	load.Wait()
	if t.Failed() {
		return
	}
	d.kill()
	d.check()
	d.start()
	l.verify(d, true)
	drained := l.drain(d)
	l.verify(d, true)
	l.witness.look(d)
	l.witness.verify(l)
	d.kill()
	d.check()
	t.Logf("%d kills in %v: %d tasks, %d submits and %d cancels acknowledged, %d calls cut short, %d tasks left to drain",
		*killRounds+2, time.Since(began).Round(time.Second), len(l.tasks), l.submits.Load(), l.cancels.Load(), l.cut.Load(), drained)
}

// A victim is a daemon that is killed.
type victim struct {
	t      *testing.T
	binary string
	dir    string
	cmd    *exec.Cmd
}

func newVictim(t *testing.T) *victim {
	dir := shortDir(t)
	d := &victim{t: t, binary: leaseholdIn(t, dir), dir: dir}
	t.Cleanup(func() {
		if d.cmd != nil {
			d.kill()
		}
	})
	return d
}

func (d *victim) socket() string { return filepath.Join(d.dir, "s") }
func (d *victim) state() string  { return filepath.Join(d.dir, "state") }

func (d *victim) start() {
	d.t.Helper()
	d.cmd = exec.Command(d.binary, "serve", "--state", d.state(), "--socket", d.socket(), "--log-level", "error")
	d.cmd.Stderr = os.Stderr
	if err := d.cmd.Start(); err != nil {
		d.t.Fatal(err)
	}
	awaitTrue(d.t, "the daemon listens", func() bool {
		nc, err := net.Dial("unix", d.socket())
		if err == nil {
			nc.Close()
		}
		return err == nil
	})
}

func (d *victim) kill() {
	_ = d.cmd.Process.Kill() // SIGKILL
	_ = d.cmd.Wait()
	d.cmd = nil
}

// check looks for disagreements in a copy of what the kill left.
func (d *victim) check() {
	d.t.Helper()
	dir := d.t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(filepath.Join(d.state(), "db"))); err != nil {
		d.t.Fatal(err)
	}
	eng, err := pebble.Open(pebble.Options{Dir: dir})
	if err != nil {
		d.t.Fatal(err)
	}
	defer eng.Close()
	core := registry.New(eng, registry.Options{})
	q := queue.New(eng, core, queue.Options{})
	ctx := d.t.Context()
	err = errors.Join(core.Recover(ctx), q.Recover(ctx), eng.View(ctx, func(tx engine.Tx) error {
		return errors.Join(core.Check(tx), q.Check(tx, nil))
	}))
	if err != nil {
		d.t.Error(err)
	}
	os.RemoveAll(dir)
}

func (d *victim) dial(ctx context.Context, hello server.Hello) (*client.Client, error) {
	nc, err := new(net.Dialer).DialContext(ctx, "unix", d.socket())
	if err != nil {
		return nil, err
	}
	return client.Connect(ctx, nc, hello, "load", "1")
}

// A killLedger is what the daemon has acknowledged.
type killLedger struct {
	t                     *testing.T
	submits, cancels, cut atomic.Int64
	witness               *witness

	pause sync.RWMutex // held by whoever looks, and read by each call of the load

	mu     sync.Mutex
	tasks  map[string]*killTask
	made   map[string]string // ids by payload, each of which is of one enqueue
	recent []string          // ids of what was acknowledged since the last look
}

type killTask struct {
	payload string
	final   string // the state that was acknowledged; "": none
	result  string
	claimed bool // by the client that drains
}

func (l *killLedger) enqueued(id, payload string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seenLocked(id, payload)
	if was, ok := l.tasks[id]; ok && was.payload != payload {
		l.t.Errorf("task %s is of %s and of %s", id, was.payload, payload)
	}
	if l.tasks[id] == nil {
		l.tasks[id] = &killTask{payload: payload}
	}
	l.recent = append(l.recent, id)
}

// seenLocked finds that an enqueue made one task, however often it was sent.
func (l *killLedger) seenLocked(id, payload string) {
	if was, ok := l.made[payload]; ok && was != id {
		l.t.Errorf("one enqueue of %s made tasks %s and %s", payload, was, id)
	}
	l.made[payload] = id
}

func (l *killLedger) finished(id, state, result string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	task := l.tasks[id]
	if task == nil { // its enqueue was cut short
		return
	}
	if task.final != "" && (task.final != state || task.result != result) {
		l.t.Errorf("task %s ended as %s %s and as %s %s", id, task.final, task.result, state, result)
	}
	task.final, task.result = state, result
	l.recent = append(l.recent, id)
}

// verify finds what was acknowledged since the last look, and some of all that
// was before, or all.
func (l *killLedger) verify(d *victim, all bool) {
	l.t.Helper()
	l.pause.Lock() // once the calls that were cut short are answered
	defer l.pause.Unlock()
	c, err := d.dial(l.t.Context(), server.Hello{Run: "load", Name: "verifier"})
	if err != nil {
		l.t.Fatal(err)
	}
	defer c.Close()
	l.mu.Lock()
	defer l.mu.Unlock()
	ids := l.recent
	l.recent = nil
	for id := range l.tasks {
		if all || len(ids) < 300 {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	for _, id := range slices.Compact(ids) {
		want := l.tasks[id]
		var got struct {
			State           string
			Payload, Result json.RawMessage
		}
		if err := ask(l.t.Context(), c, "task_get", map[string]any{"task_id": id}, &got); err != nil {
			l.t.Errorf("task %s: %v", id, err)
			continue
		}
		if string(got.Payload) != want.payload || want.final != "" && (got.State != want.final || string(got.Result) != want.result) {
			l.t.Errorf("task %s is %s with payload %s and result %s, want %+v", id, got.State, got.Payload, got.Result, want)
		}
	}
}

// askAs is ask for a call that may have been sent before.
func askAs(ctx context.Context, c *client.Client, name string, again bool, tool string, args map[string]any, into any) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	answer, err := c.CallAs(ctx, name, again, tool, args)
	if err != nil {
		return err
	}
	return json.Unmarshal(answer.Object, into)
}

func ask(ctx context.Context, c *client.Client, tool string, args map[string]any, into any) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	answer, err := c.Call(ctx, tool, args)
	if err != nil {
		return err
	}
	return json.Unmarshal(answer.Object, into)
}

type claimedByLoad struct {
	Tasks []struct {
		TaskID  string `json:"task_id"`
		Payload json.RawMessage
		Token   uint64
	}
}

// drain works off what is left, and finds nothing stuck.
func (l *killLedger) drain(d *victim) (n int) {
	l.t.Helper()
	c, err := d.dial(l.t.Context(), server.Hello{Run: "load", Name: "drain"})
	if err != nil {
		l.t.Fatal(err)
	}
	defer c.Close()
	for end := time.Now().Add(3 * time.Minute); ; {
		var claims claimedByLoad
		if err := ask(l.t.Context(), c, "task_claim", map[string]any{"queues": []string{"a", "b"}, "ttl_secs": 600, "count": 100, "wait_secs": 1}, &claims); err != nil {
			l.t.Fatal(err)
		}
		for _, task := range claims.Tasks {
			n++
			l.mu.Lock()
			l.seenLocked(task.TaskID, string(task.Payload))
			l.mu.Unlock()
			if was := l.tasks[task.TaskID]; was != nil {
				if was.final != "" || was.claimed {
					l.t.Errorf("task %s is %s, and came again (%v)", task.TaskID, was.final, was.claimed)
				}
				was.claimed = true
			}
			if err := ask(l.t.Context(), c, "task_submit", map[string]any{"task_id": task.TaskID, "token": task.Token, "status": "completed", "result": "drained"}, &struct{}{}); err != nil {
				l.t.Error(err)
			}
			l.finished(task.TaskID, "completed", `"drained"`)
		}
		var stats struct {
			Queues []struct {
				Queue          string
				Ready, Delayed uint64
				InProgress     uint64 `json:"in_progress"`
			}
		}
		if err := ask(l.t.Context(), c, "queue_stats", map[string]any{}, &stats); err != nil {
			l.t.Fatal(err)
		}
		left := uint64(0)
		for _, s := range stats.Queues {
			left += s.Ready + s.Delayed + s.InProgress
		}
		switch {
		case left == 0:
			return n
		case time.Now().After(end):
			l.t.Fatalf("stuck: %+v", stats)
		}
	}
}

// A loadClient does what workers do. When its connection is cut it goes on with
// its session, and asks again what was not answered.
type loadClient struct {
	*victim
	ledger *killLedger
	name   string
	rnd    *rand.Rand
	handle string
	conn   *client.Client
	made   int
	calls  int
	held   []heldByLoad
	leases map[string]heldByLoad // by key
}

type heldByLoad struct {
	id      string
	token   uint64
	payload string
}

func (c *loadClient) run(ctx context.Context) {
	defer func() {
		if c.conn != nil {
			c.conn.Close()
		}
	}()
	for ctx.Err() == nil {
		time.Sleep(time.Duration(c.rnd.IntN(4)) * time.Millisecond)
		c.act(ctx)
	}
}

func (c *loadClient) act(ctx context.Context) {
	c.ledger.pause.RLock()
	defer c.ledger.pause.RUnlock()
	switch n := c.rnd.IntN(24); {
	case n >= 20:
		c.lease(ctx)
	case n < 8:
		c.made++
		payload := fmt.Sprintf(`"%s/%d"`, c.name, c.made)
		args := map[string]any{"queue": []string{"a", "b"}[c.rnd.IntN(2)], "payload": json.RawMessage(payload), "priority": c.rnd.IntN(10), "max_attempts": 100}
		if c.rnd.IntN(4) == 0 {
			args["delay_secs"] = c.rnd.Float64()
		}
		var got struct {
			TaskID string `json:"task_id"`
		}
		if c.call(ctx, "task_enqueue", args, &got) == nil {
			c.ledger.enqueued(got.TaskID, payload)
			if c.rnd.IntN(10) == 0 {
				c.cancel(ctx, got.TaskID)
			}
		}
	case n < 13 || len(c.held) == 0:
		c.made++
		args := map[string]any{
			"queues": []string{"b", "a"}, "ttl_secs": 5, "count": 1 + c.rnd.IntN(3),
			"wait_secs": c.rnd.Float64() / 10,
		}
		if c.rnd.IntN(20) == 0 {
			args["ttl_secs"] = 1
		}
		var got claimedByLoad
		if c.call(ctx, "task_claim", args, &got) == nil {
			for _, task := range got.Tasks {
				c.held = append(c.held, heldByLoad{task.TaskID, task.Token, string(task.Payload)})
			}
		}
	default:
		c.finish(ctx)
	}
}

func (c *loadClient) cancel(ctx context.Context, id string) {
	var got struct{ State string }
	if c.call(ctx, "task_cancel", map[string]any{"task_id": id}, &got) == nil && got.State == "cancelled" {
		c.ledger.finished(id, "cancelled", "")
		c.ledger.cancels.Add(1)
	}
}

// finish does something with the oldest task that the client holds.
func (c *loadClient) finish(ctx context.Context) {
	task := c.held[0]
	c.held = c.held[1:]
	args := map[string]any{"task_id": task.id, "token": task.token}
	switch n := c.rnd.IntN(10); {
	case n == 0: // keeps it until its ttl ends
	case n == 1:
		args["reason"], args["delay_secs"] = "load", c.rnd.Float64()
		_ = c.call(ctx, "task_nack", args, &struct{}{})
	case n == 2:
		_ = c.call(ctx, "task_abandon", args, &struct{}{})
	case n == 3:
		_ = c.call(ctx, "task_heartbeat", args, &struct{}{})
		c.held = append(c.held, task)
	default:
		args["status"], args["result"] = "completed", json.RawMessage(task.payload)
		if c.call(ctx, "task_submit", args, &struct{}{}) == nil {
			c.ledger.finished(task.id, "completed", task.payload)
			c.ledger.submits.Add(1)
		}
	}
}

// call calls a tool until it is answered. A refusal is an answer, and only some may
// come.
func (c *loadClient) call(ctx context.Context, tool string, args map[string]any, into any) error {
	c.calls++
	name := fmt.Sprint(c.name, "/", c.calls)
	for again := false; ; again = true {
		if c.conn == nil {
			hello := server.Hello{Run: "load", Name: c.name, Handle: c.handle}
			conn, err := c.dial(ctx, hello)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if err != nil {
				time.Sleep(5 * time.Millisecond)
				continue
			}
			if c.handle = conn.Handle; !conn.Resumed {
				c.held = nil
				clear(c.leases)
			}
			c.conn = conn
		}
		err := askAs(ctx, c.conn, name, again, tool, args, into)
		var refusal *client.Refusal
		switch {
		case err == nil:
			return nil
		case errors.As(err, &refusal):
			if !mayRefuse(err) {
				c.t.Errorf("%s: %v", tool, err)
			}
			return err
		case ctx.Err() != nil:
			return ctx.Err()
		}
		c.ledger.cut.Add(1)
		c.conn.Close()
		c.conn = nil
	}
}

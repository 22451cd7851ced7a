package client_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasehold/leasehold/client"
	"github.com/leasehold/leasehold/dispatch"
)

var (
	seeds     = flag.Int("client.seeds", 3, "how many seeds TestNothingDependsOnTheOrderOfAnswers tries")
	firstSeed = flag.Uint64("client.seed", 0, "its first seed; 0: a new one")
)

// What happens when is random, and whatever it is: nobody holds a key beside another,
// tokens rise, tasks are made and finished once, and nothing is left over.
func TestNothingDependsOnTheOrderOfAnswers(t *testing.T) {
	first := *firstSeed
	if first == 0 {
		first = rand.Uint64() >> 16
	}
	for seed := first; seed < first+uint64(*seeds); seed++ {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			inHouse(t, func(t *testing.T, h *house) { newWeather(t, h, seed).run() })
		})
	}
}

// A weather is a time of trouble in a house, and what those in it were told.
type weather struct {
	*testing.T
	h        *house
	machines []*machine
	clients  []*client.Client

	calm atomic.Bool // the trouble is over

	mu       sync.Mutex
	rand     *rand.Rand
	holders  map[string]*client.Lease   // by key; the one that was granted last
	enqueued map[string]int             // by payload: 1 if Enqueue returned an error, 2 if it returned an id
	ids      map[string]map[string]bool // of the tasks that were executed, by payload
}

const (
	troubleFor = 2 * time.Minute
	someTTL    = 4 * time.Second
)

func newWeather(t *testing.T, h *house, seed uint64) *weather {
	return &weather{
		T: t, h: h, rand: rand.New(rand.NewPCG(seed, 0)),
		holders: make(map[string]*client.Lease), enqueued: make(map[string]int), ids: make(map[string]map[string]bool),
	}
}

func (w *weather) run() {
	for i := range 3 {
		m := w.h.machine()
		w.machines = append(w.machines, m)
		m.answers(w.late)
		w.clients = append(w.clients, m.open(fmt.Sprint("client ", i)))
	}
	ctx, stop := context.WithTimeout(w.Context(), troubleFor)
	defer stop()
	var users sync.WaitGroup
	for i, c := range w.clients {
		for j := range 3 {
			users.Go(func() { w.lease(ctx, c) })
			users.Go(func() { w.enqueue(ctx, c, fmt.Sprint(i, j)) })
		}
		users.Go(func() { w.work(ctx, c) })
	}
	for ctx.Err() == nil {
		w.trouble()
		w.sleep(4 * time.Second)
	}
	w.calm.Store(true)
	users.Wait()
	w.finish()
}

// n is a random number below max.
func (w *weather) n(max int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.rand.IntN(max)
}

func (w *weather) sleep(most time.Duration) { time.Sleep(time.Duration(w.n(int(most)))) }

// late has some answers come late, and some not at all.
func (w *weather) late(answer []byte) time.Duration {
	switch n := w.n(100); {
	case w.calm.Load():
	case n < 3:
		return -1
	case n < 20 && !bytes.Contains(answer, []byte("event-stream")):
		return time.Duration(w.n(int(2 * time.Second)))
	}
	return 0
}

// trouble is one thing that goes wrong.
func (w *weather) trouble() {
	m, c := w.machines[w.n(len(w.machines))], w.clients[w.n(len(w.clients))]
	switch w.n(7) {
	case 0:
		m.cut()
	case 1:
		m.pull()
		w.sleep(8 * time.Second)
		m.plug()
	case 2:
		m.slept.Add(int64(w.n(int(someTTL))))
	case 3:
		if err := w.h.end(); err != nil {
			w.Error(err)
		}
		w.sleep(3 * time.Second)
		w.h.begin()
		w.h.open("localhost:80")
	case 4:
		soon, cancel := context.WithTimeout(w.Context(), time.Second)
		_ = c.Do(soon, "DELETE", "/session", nil, nil)
		cancel()
	default:
		_, _ = w.h.state.Revoke(w.Context(), "r", dispatch.Revocation{Scope: dispatch.RunScope, Key: w.key(), Reason: "trouble"}) // it may be free
	}
}

func (w *weather) key() string { return []string{"key", "file:src/**", "file:src/a.go"}[w.n(3)] }

// lease takes leases, uses them and releases them. Some of its calls are cancelled.
func (w *weather) lease(ctx context.Context, c *client.Client) {
	for ctx.Err() == nil {
		soon, cancel := context.WithTimeout(ctx, time.Duration(1+w.n(int(10*time.Second))))
		key, ask := w.key(), c.Acquire
		if w.n(3) == 0 {
			ask = c.TryAcquire
		}
		l, err := ask(soon, key, client.LeaseOptions{TTL: someTTL})
		if err != nil {
			w.returned(soon, cancel, err)
			w.sleep(time.Second)
			continue
		}
		cancel()
		w.hold(l, key)
		w.sleep(3 * time.Second)
		soon, cancel = context.WithTimeout(w.Context(), time.Duration(1+w.n(int(3*time.Second))))
		w.returned(soon, cancel, l.Release(soon))
	}
}

// returned checks that a call has returned when its context ended.
func (w *weather) returned(ctx context.Context, cancel func(), err error) {
	defer cancel()
	if deadline, _ := ctx.Deadline(); time.Since(deadline) > 0 {
		w.Errorf("a call returned %v after its context had ended: %v", time.Since(deadline), err)
	}
}

// hold notes a lease that was just granted, and checks that of two holders the earlier
// learns that it has lost. Only a revoke and the end of a session may be told late.
func (w *weather) hold(l *client.Lease, key string) {
	if strings.HasPrefix(key, "file:") {
		key = "file:src/a.go" // both have it
	}
	w.mu.Lock()
	earlier := w.holders[key]
	if earlier == nil || l.Token() > earlier.Token() {
		w.holders[key] = l
	}
	w.mu.Unlock()
	switch {
	case earlier == nil:
	case l.Token() == earlier.Token():
		w.Errorf("%s was granted with token %d twice", key, l.Token())
	case l.Token() > earlier.Token():
		w.endsSoon(key, earlier)
	default: // its answer came late
		w.endsSoon(key, l)
	}
}

// endsSoon checks that a lease that another holds by now ends.
func (w *weather) endsSoon(key string, lost *client.Lease) {
	if _, err := lost.Gate(); err != nil {
		return
	}
	select {
	case <-lost.Context().Done():
	case <-time.After(someTTL):
		w.Errorf("%s is held by two", key)
	}
}

func (w *weather) enqueue(ctx context.Context, c *client.Client, name string) {
	for i := 0; ctx.Err() == nil; i++ {
		soon, cancel := context.WithTimeout(ctx, time.Duration(1+w.n(int(10*time.Second))))
		payload := fmt.Sprint(name, " ", i)
		_, err := c.Enqueue(soon, client.NewTask{Queue: "q", Payload: payload, MaxAttempts: 100})
		w.mu.Lock()
		w.enqueued[payload] = 1
		if err == nil {
			w.enqueued[payload] = 2
		}
		w.mu.Unlock()
		w.returned(soon, cancel, err)
		w.sleep(8 * time.Second)
	}
}

// work executes tasks, in several shifts.
func (w *weather) work(ctx context.Context, c *client.Client) {
	for ctx.Err() == nil {
		shift, cancel := context.WithTimeout(ctx, time.Duration(1+w.n(int(20*time.Second))))
		err := c.Work(shift, client.Worker{Queues: []string{"q"}, Concurrency: 2, TTL: someTTL, Drain: time.Second, Handle: w.handle})
		cancel()
		if err != nil {
			w.Error("a worker: ", err)
		}
	}
}

func (w *weather) handle(ctx context.Context, task *client.Task) (any, error) {
	w.executed(task)
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(time.Duration(w.n(int(3 * time.Second)))):
	}
	if w.n(4) == 0 {
		return nil, errors.New("not yet")
	}
	return fmt.Sprint(string(task.Payload), " by ", task.Token), nil
}

// finish finds what is left when the trouble is over.
func (w *weather) finish() {
	for _, c := range w.clients {
		if err := c.Close(); err != nil {
			w.Error(err)
		}
	}
	last := w.h.client("last")
	ctx, cancel := context.WithTimeout(w.Context(), 10*someTTL)
	defer cancel()
	for i := range 2 {
		if _, err := last.Acquire(ctx, fmt.Sprint("key ", i), client.LeaseOptions{}); err != nil {
			w.Error("it is still held: ", err)
		}
	}
	found := make(map[string]int)
	stop := work(w.T, last, client.Worker{Queues: []string{"q"}, TTL: someTTL, Concurrency: 50, Handle: func(_ context.Context, task *client.Task) (any, error) {
		w.executed(task)
		return nil, nil
	}})
	time.Sleep(10 * time.Minute) // longer than any task waits for its next attempt
	stop()
	w.mu.Lock()
	defer w.mu.Unlock()
	for payload, ids := range w.ids {
		found[payload] = len(ids)
	}
	for payload, told := range w.enqueued {
		if n := found[payload]; n > 1 || told == 2 && n == 0 {
			w.Errorf("task %q was enqueued %d times", payload, n)
		}
	}
}

// executed notes which tasks there are.
func (w *weather) executed(task *client.Task) {
	w.mu.Lock()
	defer w.mu.Unlock()
	payload := strings.Trim(string(task.Payload), `"`)
	if w.ids[payload] == nil {
		w.ids[payload] = make(map[string]bool)
	}
	w.ids[payload][task.ID] = true
}

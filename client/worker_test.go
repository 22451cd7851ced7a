package client_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold/client"
)

func enqueue(t *testing.T, c *client.Client, task client.NewTask) (id string) {
	t.Helper()
	id, err := c.Enqueue(t.Context(), task)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func outcome(t *testing.T, c *client.Client, id string) client.Outcome {
	t.Helper()
	o, err := c.Wait(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// work runs a worker, and gives what stops it.
func work(t *testing.T, c *client.Client, w client.Worker) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Work(ctx, w) }()
	return func() {
		t.Helper()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func TestAWorkerEndsTasksAsItsHandlerSays(t *testing.T) {
	inHouse(t, func(t *testing.T, h *house) {
		one := h.client("one")
		stop := work(t, h.client("two"), client.Worker{Queues: []string{"q"}, Concurrency: 2, Handle: func(ctx context.Context, task *client.Task) (any, error) {
			var what string
			if err := json.Unmarshal(task.Payload, &what); err != nil {
				return nil, err
			}
			switch {
			case what == "fails":
				return nil, client.Final(errors.New("it cannot be done"))
			case what == "later" && task.Attempt < 3:
				return nil, errors.New("not yet")
			case what == "never":
				return nil, errors.New("not ever")
			case what == "no JSON":
				return func() {}, nil
			case what == "no UTF-8":
				return "caf\xe9", nil
			case what == "large":
				return strings.Repeat("x", 2<<20), nil
			case what == "very large":
				return strings.Repeat("x", 5<<20), nil
			case what == "nested":
				return json.RawMessage(strings.Repeat("[", 64) + strings.Repeat("]", 64)), nil
			case what == "deep":
				return json.RawMessage(strings.Repeat("[", 70) + strings.Repeat("]", 70)), nil
			case what == "fails at length":
				return nil, client.Final(errors.New(strings.Repeat("x", 2<<20)))
			case what == "fails in no UTF-8":
				return nil, client.Final(errors.New(strings.Repeat("\xffa", 32<<10)))
			case what == "fails in two bytes each":
				return nil, client.Final(errors.New("a" + strings.Repeat("é", 64<<10)))
			case what == "final without an error":
				return "done", client.Final(nil)
			case what == "ends its goroutine": // more often than there are places
				runtime.Goexit()
			case what == "slow": // longer than the ttl
				time.Sleep(10 * time.Minute)
				return nil, ctx.Err()
			}
			return map[string]int{"attempt": task.Attempt}, nil
		}})
		for what, want := range map[string]string{
			"ok": `completed {"attempt":1}`, "later": `completed {"attempt":3}`, "fails": `failed "it cannot be done"`, "never": `dead `,
			"slow": `completed null`, "no JSON": `failed "the result: json: unsupported type: func()"`,
			"no UTF-8": `failed "the result: result must be valid UTF-8"`,
			"large":    `failed "the result: limit reached: bytes of a result, at most 1048576; store it in a file and send its path"`, "very large": `failed "the result: a message is larger than 4 MiB"`,
			"nested": "completed " + strings.Repeat("[", 64) + strings.Repeat("]", 64),
			"deep":   `failed "the result: tasks[0]: result must not be nested deeper than 64 levels"`, "fails at length": `failed "` + strings.Repeat("x", 64<<10) + `"`,
			"fails in no UTF-8": `failed "` + strings.Repeat("\ufffda", 16<<10) + `"`, "fails in two bytes each": `failed "a` + strings.Repeat("é", 32<<10-1) + `"`,
			"final without an error": `completed "done"`, "ends its goroutine": `dead `,
		} {
			id := enqueue(t, one, client.NewTask{Queue: "q", Payload: what, MaxAttempts: 3})
			if o := outcome(t, one, id); o.State+" "+string(o.Result)+string(o.Error) != want {
				t.Errorf("%s: %s %s%s, want %s", what, o.State, o.Result, o.Error, want)
			}
		}
		stop()
	})
}

// What the handler of a lost claim does cannot run into what the next one does: its
// context has ended before the task can be another's, and its end is refused.
func TestALostClaimEndsItsHandlerBeforeAnotherHasTheTask(t *testing.T) {
	inHouse(t, func(t *testing.T, h *house) {
		const ttl = 3 * time.Second
		here := h.machine()
		one, two := here.open("one"), h.client("two")
		ended, begun := make(chan time.Time, 1), make(chan time.Time, 1)
		var warned atomic.Bool
		stopOne := work(t, one, client.Worker{
			Queues: []string{"q"}, TTL: ttl,
			Jeopardy: func(task *client.Task, left time.Duration, err error) { warned.Store(true) },
			Handle: func(ctx context.Context, task *client.Task) (any, error) {
				<-ctx.Done()
				ended <- time.Now()
				return "the first", nil // it is late, and does not know better
			},
		})
		id := enqueue(t, two, client.NewTask{Queue: "q", Payload: 1})
		time.Sleep(10 * time.Second)
		stopTwo := work(t, two, client.Worker{Queues: []string{"q"}, TTL: ttl, Handle: func(_ context.Context, task *client.Task) (any, error) {
			begun <- time.Now()
			return fmt.Sprint("attempt ", task.Attempt), nil
		}})
		here.pull()
		end, begin := <-ended, <-begun
		if !end.Before(begin) || !warned.Load() {
			t.Errorf("the first handler ended %v after the second began; warned: %v", end.Sub(begin), warned.Load())
		}
		here.plug()
		if o := outcome(t, two, id); string(o.Result) != `"attempt 2"` {
			t.Errorf("the task ended as %s %s", o.State, o.Result)
		}
		stopOne()
		stopTwo()
	})
}

// A cancelled task ends its handler at once.
func TestACancelledTaskEndsItsHandler(t *testing.T) {
	inHouse(t, func(t *testing.T, h *house) {
		one := h.client("one")
		causes := make(chan error, 1)
		stop := work(t, h.client("two"), client.Worker{Queues: []string{"q"}, TTL: time.Hour, Handle: func(ctx context.Context, _ *client.Task) (any, error) {
			<-ctx.Done()
			causes <- context.Cause(ctx)
			return nil, ctx.Err()
		}})
		id := enqueue(t, one, client.NewTask{Queue: "q", Payload: 1})
		time.Sleep(time.Second)
		if err := one.Do(t.Context(), "POST", "/tasks/"+id+"/cancel", map[string]any{}, nil); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		select {
		case cause := <-causes:
			if !errors.Is(cause, client.ErrLost) {
				t.Errorf("it ended because %v", cause)
			}
		default:
			t.Error("the handler goes on")
		}
		stop()
	})
}

// A worker that ends takes no more, lets its handlers finish, and does not wait for ever.
func TestAWorkerDrains(t *testing.T) {
	inHouse(t, func(t *testing.T, h *house) {
		one := h.client("one")
		var begun atomic.Int64
		stop := work(t, h.client("two"), client.Worker{Queues: []string{"q"}, Concurrency: 2, Drain: 20 * time.Second, Handle: func(ctx context.Context, task *client.Task) (any, error) {
			begun.Add(1)
			if string(task.Payload) == "1" {
				time.Sleep(15 * time.Second)
				return "in time", nil
			}
			<-ctx.Done()
			if !errors.Is(context.Cause(ctx), client.ErrDraining) {
				t.Errorf("the second ends because %v", context.Cause(ctx))
			}
			return nil, ctx.Err()
		}})
		var ids []string
		for i := range 4 {
			ids = append(ids, enqueue(t, one, client.NewTask{Queue: "q", Payload: i + 1}))
		}
		time.Sleep(time.Second)
		began := time.Now()
		stop()
		if took := time.Since(began); took < 19*time.Second || took > 21*time.Second || begun.Load() != 2 {
			t.Errorf("it drained in %v, and began %d", took, begun.Load())
		}
		if o := outcome(t, one, ids[0]); string(o.Result) != `"in time"` {
			t.Errorf("the first: %s %s", o.State, o.Result)
		}
		var left struct{ Tasks []struct{ Attempt int } }
		if err := one.Do(t.Context(), "GET", "/queues/q/tasks?state=ready", nil, &left); err != nil || len(left.Tasks) != 3 {
			t.Errorf("ready: %v %v", left, err)
		}
	})
}

// Calls of many goroutines share requests, a lone one does not wait, and nobody is
// refused for another.
func TestConcurrentCallsAreSentTogether(t *testing.T) {
	inHouse(t, func(t *testing.T, h *house) {
		here := h.machine()
		one := here.open("one")
		began := time.Now()
		enqueue(t, one, client.NewTask{Queue: "q", Payload: 1})
		if took := time.Since(began); took > 0 {
			t.Errorf("a lone call takes %v", took)
		}
		const calls = 300
		before := here.requests("POST /api/v1/tasks/many")
		var wg sync.WaitGroup
		var refused atomic.Int64
		ids := make([]string, calls)
		for i := range calls {
			wg.Go(func() {
				queue := "q"
				if i%100 == 50 {
					queue = "no such name/"
				}
				id, err := one.Enqueue(t.Context(), client.NewTask{Queue: queue, Payload: i})
				switch {
				case queue == "q" && err != nil:
					t.Errorf("task %d: %v", i, err)
				case queue != "q" && client.CodeOf(err) != "INVALID_ARGUMENT":
					t.Errorf("a task that is wrong: %v", err)
				case queue != "q":
					refused.Add(1)
				}
				ids[i] = id
			})
		}
		wg.Wait()
		if refused.Load() != 3 {
			t.Errorf("%d were refused", refused.Load())
		}
		var seen sync.Map
		before = here.requests("POST /api/v1/tasks/many") - before
		if before > 3*(100+1)+5 {
			t.Errorf("%d calls took %d requests", calls, before)
		}
		submits := here.requests("POST /api/v1/tasks/submit")
		stop := work(t, one, client.Worker{Queues: []string{"q"}, Concurrency: 64, Handle: func(_ context.Context, task *client.Task) (any, error) {
			if _, twice := seen.LoadOrStore(task.ID, true); twice {
				t.Errorf("task %s is executed twice", task.ID)
			}
			return nil, nil
		}})
		for i, id := range ids {
			if i%100 != 50 {
				outcome(t, one, id)
			}
		}
		stop()
		if submits = here.requests("POST /api/v1/tasks/submit") - submits; submits > calls/4 {
			t.Errorf("the ends of %d tasks took %d requests", calls, submits)
		}
	})
}

// A worker outlives an outage that a call does not, whether its server or a proxy answers.
func TestAWorkerOutlivesAnOutage(t *testing.T) {
	inHouse(t, func(t *testing.T, h *house) {
		one := h.client("one")
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			done <- one.Work(ctx, client.Worker{Queues: []string{"q"}, Handle: func(context.Context, *client.Task) (any, error) {
				stop()
				return nil, nil
			}})
		}()
		h.refuse("localhost:80")
		time.Sleep(10 * time.Minute)
		h.doors["localhost:80"].shut()
		h.open("localhost:80")
		enqueue(t, h.client("two"), client.NewTask{Queue: "q", Payload: 1})
		if err := <-done; err != nil || ctx.Err() == nil {
			t.Errorf("it has ended: %v", err)
		}
	})
}

// A call is made once, whatever becomes of its answer.
func TestACallWhoseAnswerIsLostIsMadeOnce(t *testing.T) {
	inHouse(t, func(t *testing.T, h *house) {
		here := h.machine()
		one := here.open("one")
		for range 20 {
			done := make(chan struct{})
			go func() {
				defer close(done)
				enqueue(t, one, client.NewTask{Queue: "q", Payload: 1})
			}()
			here.cut()
			<-done
		}
		var ready struct{ Tasks []struct{} }
		if err := one.Do(t.Context(), "GET", "/queues/q/tasks", nil, &ready); err != nil || len(ready.Tasks) != 20 {
			t.Errorf("20 calls made %d tasks: %v", len(ready.Tasks), err)
		}
	})
}

// However replicas come and go, one runs at a time, and before long one does.
func TestASingletonRunsOnOneReplica(t *testing.T) {
	inHouse(t, func(t *testing.T, h *house) {
		const ttl = 3 * time.Second
		var running, terms, warned atomic.Int64
		var busy atomic.Int64 // how long one ran, in all
		last := uint64(0)
		replicas := make([]*machine, 3)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for i := range replicas {
			replicas[i] = h.machine()
			c := replicas[i].open(fmt.Sprint("replica", i))
			wg.Go(func() {
				warn := func(time.Duration, error) { warned.Add(1) }
				err := c.RunSingleton(ctx, client.Singleton{Key: "generator", TTL: ttl, Jeopardy: warn, Run: func(ctx context.Context, l *client.Lease) error {
					if running.Add(1) != 1 {
						t.Error("it runs twice")
					}
					if l.Token() <= last {
						t.Errorf("token %d after %d", l.Token(), last)
					}
					last = l.Token()
					terms.Add(1)
					began := time.Now()
					<-ctx.Done()
					busy.Add(int64(time.Since(began)))
					running.Add(-1)
					return ctx.Err()
				}})
				if err != nil {
					t.Error(err)
				}
			})
		}
		began := time.Now()
		for round := range 12 {
			time.Sleep(20 * time.Second)
			m := replicas[round%3]
			m.pull()
			time.Sleep(10 * time.Second)
			m.plug()
		}
		time.Sleep(10 * time.Second)
		if idle := time.Since(began) - time.Duration(busy.Load()); running.Load() != 1 || terms.Load() < 4 || idle > time.Minute+20*time.Second {
			t.Errorf("%d run after %d terms, and for %v none did", running.Load(), terms.Load(), idle)
		}
		if warned.Load() == 0 {
			t.Error("nobody was told that the lease was in jeopardy")
		}
		cancel()
		wg.Wait()
		synctest.Wait() // one may have been granted it while it gave up
		if _, err := h.client("other").TryAcquire(t.Context(), "generator", client.LeaseOptions{}); err != nil {
			t.Errorf("the lease of a singleton that has ended: %v", err)
		}
	})
}

func TestACloseEndsWorkersAndSingletons(t *testing.T) {
	inHouse(t, func(t *testing.T, h *house) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		c := h.client("one")
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		if err := c.Work(ctx, client.Worker{Queues: []string{"q"}}); !errors.Is(err, client.ErrClosed) {
			t.Errorf("a worker ends with %v", err)
		}
		if err := c.RunSingleton(ctx, client.Singleton{Key: "a"}); !errors.Is(err, client.ErrClosed) {
			t.Errorf("a singleton ends with %v", err)
		}
	})
}

// One call claims no more tasks than a server gives at once.
func TestAWorkerMayHaveMoreHandlersThanOneCallClaims(t *testing.T) {
	inHouse(t, func(t *testing.T, h *house) {
		c := h.client("one")
		stop := work(t, c, client.Worker{Queues: []string{"q"}, Concurrency: 101, Handle: func(context.Context, *client.Task) (any, error) { return nil, nil }})
		outcome(t, c, enqueue(t, c, client.NewTask{Queue: "q", Payload: 1}))
		stop()
	})
}

func TestASingletonEndsWithItsRun(t *testing.T) {
	inHouse(t, func(t *testing.T, h *house) {
		one, two := h.client("one"), h.client("two")
		other := h.client("other")
		broken := errors.New("broken")
		run := func(ctx context.Context, _ *client.Lease) error {
			if _, err := other.TryAcquire(ctx, "a", client.LeaseOptions{}); err == nil || !strings.Contains(err.Error(), "singleton") {
				t.Errorf("another is told: %v", err)
			}
			return broken
		}
		for _, c := range []*client.Client{one, two} {
			if err := c.RunSingleton(t.Context(), client.Singleton{Key: "a", Run: run}); err != broken {
				t.Errorf("it ends with %v", err)
			}
		}
		if _, err := one.TryAcquire(t.Context(), "a", client.LeaseOptions{}); err != nil {
			t.Errorf("its lease: %v", err)
		}
	})
}

// The lease must not be renewed for as long as the client is open, since no
// replica would run.
func TestASingletonThatPanicsGivesItsLeaseBack(t *testing.T) {
	inHouse(t, func(t *testing.T, h *house) {
		func() {
			defer func() { _ = recover() }()
			_ = h.client("one").RunSingleton(t.Context(), client.Singleton{Key: "clean", Run: func(context.Context, *client.Lease) error { panic("it cannot go on") }})
		}()
		if _, err := h.client("two").TryAcquire(t.Context(), "clean", client.LeaseOptions{}); err != nil {
			t.Error(err)
		}
	})
}

func TestARefusedTokenIsNotTriedAgain(t *testing.T) {
	inHouse(t, func(t *testing.T, h *house) {
		m := h.machine()
		began := time.Now()
		_, err := client.OpenAt(t.Context(), client.Options{Servers: []string{"http://localhost"}, Token: "lh_no"}, m.clock(), m.dial)
		if client.CodeOf(err) != "UNAUTHENTICATED" || time.Since(began) > time.Second {
			t.Errorf("it answers %v after %v", err, time.Since(began))
		}
		_, err = client.OpenAt(t.Context(), client.Options{Servers: []string{"http://localhost:9"}, Token: "lh_no", Outage: 5 * time.Second}, m.clock(), m.dial)
		if took := time.Since(began); err == nil || took < 5*time.Second || took > 8*time.Second {
			t.Errorf("without a server it answers %v after %v", err, took)
		}
		began = time.Now()
		_, err = client.OpenAt(t.Context(), client.Options{Servers: []string{"http://localhost"}, Token: "one\nlh_no"}, m.clock(), m.dial)
		if err == nil || !strings.Contains(err.Error(), "several lines") || time.Since(began) > time.Second {
			t.Errorf("what actor add prints is answered %v after %v", err, time.Since(began))
		}
		began = time.Now()
		_, err = client.OpenAt(t.Context(), client.Options{Servers: []string{"http://localhost"}, Token: "lh_no\n"}, m.clock(), m.dial)
		if client.CodeOf(err) != "UNAUTHENTICATED" || time.Since(began) > time.Second {
			t.Errorf("with the end of its line it answers %v after %v", err, time.Since(began))
		}
		for _, wrong := range [][]string{nil, {"localhost:80"}, {"unix:"}, {"ftp://localhost"}} {
			if _, err := client.Open(t.Context(), client.Options{Servers: wrong}); err == nil {
				t.Errorf("servers %q are taken", wrong)
			}
		}
		for _, exposed := range []string{"http://leases.example", "http://10.0.0.1:7711", "http://127.0.0.1.example", "http://localhost@leases.example"} {
			_, err := client.OpenAt(t.Context(), client.Options{Servers: []string{exposed}, Token: "lh_no"}, m.clock(), m.dial)
			if err == nil || !strings.Contains(err.Error(), "would show the token") {
				t.Errorf("server %s is answered %v", exposed, err)
			}
		}
	})
}

// A certificate does not change from one attempt to the next. Another server may have a
// better one.
func TestABadCertificateIsNotTriedAgain(t *testing.T) {
	var tried atomic.Int64
	bad := httptest.NewUnstartedServer(nil)
	bad.TLS = &tls.Config{MinVersion: tls.VersionTLS12, GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		tried.Add(1)
		return nil, nil
	}}
	bad.Config.ErrorLog = log.New(io.Discard, "", 0)
	bad.StartTLS()
	defer bad.Close()
	good := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = io.WriteString(w, `{"code":"UNAUTHENTICATED","message":"no"}`)
	}))
	defer good.Close()

	options := client.Options{Servers: []string{bad.URL}, Token: "lh_no", Outage: 200 * time.Millisecond}
	_, err := client.Open(t.Context(), options)
	if invalid := (*tls.CertificateVerificationError)(nil); !errors.As(err, &invalid) || tried.Load() != 1 {
		t.Errorf("after %d attempts: %v", tried.Load(), err)
	}
	options.Servers = append(options.Servers, good.URL)
	if _, err := client.Open(t.Context(), options); client.CodeOf(err) != "UNAUTHENTICATED" {
		t.Errorf("the next server is not asked: %v", err)
	}
}

// A limit that is reached when a task ends does not cost its result.
func TestAWorkerTellsAResultAgainThatALimitRefuses(t *testing.T) {
	var claimed, refused atomic.Bool
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch path := strings.TrimPrefix(r.URL.Path, "/api/v1"); {
		case path == "/tasks/next" && claimed.CompareAndSwap(false, true):
			_, _ = io.WriteString(w, `{"tasks":[{"task_id":"1","token":1}]}`)
		case path == "/tasks/submit" && refused.CompareAndSwap(false, true):
			w.WriteHeader(http.StatusTooManyRequests)
			_, _ = io.WriteString(w, `{"code":"LIMIT","message":"too many bytes of calls","max":1}`)
		case path == "/tasks/submit":
			_, _ = io.WriteString(w, `{"tasks":[{"task_id":"1"}]}`)
		case path == "/tasks/next", path == "/session/notices":
			<-r.Context().Done()
		default:
			_, _ = io.WriteString(w, `{"session":"s"}`)
		}
	}))
	defer server.Close()
	var said bytes.Buffer
	c, err := client.Open(t.Context(), client.Options{Servers: []string{server.URL}, Token: "lh_a", Log: slog.New(slog.NewTextHandler(&said, nil))})
	if err != nil {
		t.Fatal(err)
	}
	err = c.Work(ctx, client.Worker{Queues: []string{"q"}, Handle: func(context.Context, *client.Task) (any, error) {
		stop()
		return nil, nil
	}})
	if err := errors.Join(err, c.Close()); err != nil || strings.Contains(said.String(), "was not told") {
		t.Errorf("%v, log: %s", err, said.String())
	}
}

func TestACallThatCannotBeSentIsRefused(t *testing.T) {
	inHouse(t, func(t *testing.T, h *house) {
		one := h.client("one")
		for _, call := range []struct{ method, path string }{{"GE T", "/leases"}, {"GET", "/leases?\x00"}, {"GET", "/%zz"}} {
			if err := one.Do(t.Context(), call.method, call.path, nil, nil); err == nil || client.CodeOf(err) != "" {
				t.Errorf("%q is answered %v", call, err)
			}
		}
	})
}

// Whoever gets no answer in an outage is told that the call may have taken effect, unless it
// changes nothing, or no server can have got it.
func TestACallWithoutAnAnswerMayHaveTakenEffect(t *testing.T) {
	inHouse(t, func(t *testing.T, h *house) {
		here := h.machine()
		one, two := here.open("one"), h.client("two")
		warned := func(err error) bool {
			t.Helper()
			if err == nil || !strings.HasPrefix(err.Error(), "no server answers: ") {
				t.Errorf("without an answer: %v", err)
				return false
			}
			return strings.Contains(err.Error(), "; the call may have taken effect, so look before you repeat it")
		}
		here.answers(func(answer []byte) time.Duration {
			if bytes.Contains(answer, []byte("application/json")) {
				return -1
			}
			return 0
		})
		if err := one.Store(t.Context(), "/shared/a", 1); !warned(err) {
			t.Errorf("a write: %v", err)
		}
		var v int
		if found, err := two.Load(t.Context(), "/shared/a", &v); !found || v != 1 || err != nil {
			t.Errorf("the entry that was written: %v, %v", v, err)
		}
		if _, err := one.Load(t.Context(), "/shared/a", &v); warned(err) {
			t.Errorf("a read: %v", err)
		}
		here.answers(nil)
		h.doors["localhost:80"].shut()
		here.cut()
		synctest.Wait()
		if err := one.Store(t.Context(), "/shared/a", 2); warned(err) {
			t.Errorf("a write that no server got: %v", err)
		}
	})
}

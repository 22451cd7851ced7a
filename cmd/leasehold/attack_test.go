package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leasehold/leasehold/dispatch/server"
)

// An attacker is a program that does to a daemon what a greedy or broken client
// might, as told in lines on stdin, each of which it answers with one:
//
//	prepare  ready
//	go       began: the attack is under way
//	stop     over: it has ended
//
// An attack that ends by itself says over without being told.
type attacker struct {
	daemon string // its socket
	web    string // its URL
	prey   string // the run that is attacked from
	round  int

	ctx  context.Context // of the round
	stop context.CancelFunc
	all  sync.WaitGroup
	refusals
}

// refusals are why connections and calls failed, for whoever wonders whether an
// attack takes place.
type refusals struct {
	mu    sync.Mutex
	seen  map[string]int
	calls atomic.Int64
}

func (r *refusals) note(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.seen == nil {
		r.seen = make(map[string]int)
	}
	r.seen[err.Error()]++
}

// An attack is one way to be greedy.
type attack struct {
	name string
	// prepare makes what the attack needs, before each round if again is so,
	// otherwise once.
	prepare func(*attacker)
	again   bool
	// run attacks until the round ends. One that ends by itself has end.
	run func(*attacker)
	// once says that run ends by itself.
	once bool
}

// attackMain is the program.
func attackMain(name string) error {
	a := &attacker{daemon: ownDir("s"), web: os.Getenv("LEASEHOLD_TEST_WEB"), prey: "prey"}
	var how attack
	for _, candidate := range attacks {
		if candidate.name == name {
			how = candidate
		}
	}
	in := bufio.NewScanner(os.Stdin)
	prepared := false
	for in.Scan() {
		switch in.Text() {
		case "prepare":
			a.round++
			if how.prepare != nil && (!prepared || how.again) {
				how.prepare(a)
			}
			prepared = true
			fmt.Println("ready")
		case "go":
			standBack()
			a.ctx, a.stop = context.WithCancel(context.Background())
			fmt.Println("began")
			how.run(a)
			if how.once {
				fmt.Println("over")
			}
		case "stop":
			a.stop()
			a.all.Wait()
			fmt.Println("over")
		}
	}
	for why, n := range a.seen {
		fmt.Fprintf(os.Stderr, "%s: %d times %s\n", name, n, why)
	}
	fmt.Fprintf(os.Stderr, "%s: %d answers\n", name, a.calls.Load())
	return in.Err()
}

// each runs n of them until the round ends, each again when it returns.
func (a *attacker) each(n int, do func(i int) error) {
	for i := range n {
		a.all.Go(func() {
			for a.ctx.Err() == nil {
				if err := do(i); err != nil && a.ctx.Err() == nil {
					a.note(err)
					sleep(a.ctx, time.Millisecond) // nobody is served faster for asking in a tight loop
				}
			}
		})
	}
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// A raw is a connection to the socket that costs its owner little.
type raw struct {
	a  *attacker
	nc net.Conn
	br *bufio.Reader
}

func (a *attacker) dial(h server.Hello) (*raw, error) {
	nc, err := net.Dial("unix", a.daemon)
	if err != nil {
		return nil, err
	}
	br, _, err := server.Greet(nc, h)
	if err != nil {
		nc.Close()
		return nil, err
	}
	return &raw{a, nc, br}, nil
}

func (a *attacker) must(h server.Hello) *raw {
	r, err := a.dial(h)
	if err != nil {
		panic(err)
	}
	return r
}

// join is a new worker of the run that is attacked from.
func (a *attacker) join(name string) *raw {
	return a.must(server.Hello{Run: a.prey, Name: name})
}

// whileIn closes the connection with the round, so that whoever reads or writes
// stops.
func (r *raw) whileIn(ctx context.Context) (stop func() bool) {
	return context.AfterFunc(ctx, func() { r.nc.Close() })
}

func callLine(id int, tool, arguments string) []byte {
	return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":%q,"arguments":%s}}`+"\n", id, tool, arguments)
}

// call calls a tool and gives its answer, which is valid until the next.
func (r *raw) call(tool, arguments string) ([]byte, error) {
	if _, err := r.nc.Write(callLine(1, tool, arguments)); err != nil {
		return nil, err
	}
	return r.next()
}

// next reads an answer. Of a long one it gives the end.
func (r *raw) next() ([]byte, error) {
	for {
		line, err := r.br.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if err == nil {
			r.a.calls.Add(1)
		}
		return line, err
	}
}

// pipeline makes n calls, so many at a time, of which none may be refused.
func (r *raw) pipeline(n, window int, call func(i int) []byte) {
	slots := make(chan struct{}, window)
	go func() {
		bw := bufio.NewWriterSize(r.nc, 64<<10)
		for i := range n {
			select {
			case slots <- struct{}{}:
			default:
				bw.Flush()
				slots <- struct{}{}
			}
			bw.Write(call(i))
		}
		bw.Flush()
	}()
	for range n {
		answer, err := r.next()
		if err != nil {
			panic(err)
		}
		if bytes.Contains(answer, []byte(`"isError":true`)) {
			panic("an attack cannot be prepared: " + string(answer))
		}
		<-slots
	}
}

// parallel does something n times at once.
func parallel(n int, do func(i int)) {
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { do(i) })
	}
	all.Wait()
}

// lease takes n leases for as long as ttl says at the time.
func (r *raw) lease(tool, key, prefix string, n int, ttl func() float64) {
	r.pipeline(n, 64, func(i int) []byte {
		return callLine(i, tool, fmt.Sprintf(`{%q:"%s/%d","ttl_secs":%.3f}`, key, prefix, i, ttl()))
	})
}

func hour() float64 { return 3600 }

// enqueue puts n tasks in a queue of their own each, or all in one.
func (r *raw) enqueue(n int, queue func(i int) string) {
	r.pipeline(n, 128, func(i int) []byte {
		return callLine(i, "task_enqueue", fmt.Sprintf(`{"queue":%q,"payload":{"n":%d}}`, queue(i), i))
	})
}

// fill fills a store: 60 MiB in values of size bytes.
func (r *raw) fill(size int) {
	value := strings.Repeat("x", size)
	r.pipeline(min(9000, 60<<20/(size+100)), 16, func(i int) []byte {
		return callLine(i, "kv_set", fmt.Sprintf(`{"path":"/shared/%06d","value":%q}`, i, value))
	})
}

// callers call a tool on n connections of m actors, as fast as they are answered.
func (a *attacker) callers(n, m int, call func(i int) (tool, arguments string)) {
	for i := range n {
		c := a.join(fmt.Sprintf("caller%d", i%m))
		tool, arguments := call(i)
		a.repeat(c, tool, arguments)
	}
}

// repeat calls a tool on a connection until the round ends.
func (a *attacker) repeat(c *raw, tool, arguments string) {
	stop := c.whileIn(a.ctx)
	a.all.Go(func() {
		defer stop()
		for a.ctx.Err() == nil {
			if _, err := c.call(tool, arguments); err != nil && a.ctx.Err() == nil {
				a.note(err)
				return
			}
		}
	})
}

// waiting makes 16 000 calls that wait, on 64 connections of 8 actors.
func (a *attacker) waiting(ctx context.Context, tool, arguments string) {
	parallel(64, func(i int) {
		c := a.join(fmt.Sprintf("waiter%d", i%8))
		c.whileIn(ctx)
		for n := range 250 {
			c.nc.Write(callLine(n, tool, arguments))
		}
	})
}

func (a *attacker) operator() *raw { return a.must(server.Hello{Operator: true}) }

// token makes an actor and gives its token.
func (a *attacker) token(run, name, role string) string {
	return a.secret("operator_actor_add", fmt.Sprintf(`{"run":%q,"name":%q,"role":%q}`, run, name, role))
}

// secret gives the token in an operator's answer.
func (a *attacker) secret(tool, arguments string) string {
	op := a.operator()
	defer op.nc.Close()
	answer, err := op.call(tool, arguments)
	if err != nil {
		panic(err)
	}
	var m struct {
		Result struct {
			StructuredContent struct{ Token string }
		}
	}
	if err := json.Unmarshal(answer, &m); err != nil || m.Result.StructuredContent.Token == "" {
		panic(fmt.Sprintf("no token: %v %s", err, answer))
	}
	return m.Result.StructuredContent.Token
}

// access issues a token of a program.
func (a *attacker) access(role string) string {
	return a.secret("operator_token_issue", fmt.Sprintf(`{"name":"attacker","role":%q}`, role))
}

// until calls a tool until its answer has what is wanted.
func (a *attacker) until(tool, arguments, wanted string) {
	op := a.operator()
	defer op.nc.Close()
	for {
		answer, err := op.call(tool, arguments)
		if err != nil {
			panic(err)
		}
		if bytes.Contains(answer, []byte(wanted)) {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}

const attackers = 16 // callers of most attacks

// horde are workers, each with its share of something.
func (a *attacker) horde(n int, do func(i int, r *raw)) []*raw {
	all := make([]*raw, n)
	for i := range all {
		all[i] = a.join(fmt.Sprintf("horde%d", i))
	}
	parallel(n, func(i int) { do(i, all[i]) })
	return all
}

// kept is what prepare leaves for run.
var kept []*raw

// hot is the lease that everybody waits for.
var hot string

// leaseOf is the lease that an answer grants.
func leaseOf(answer []byte) string {
	var m struct {
		Result struct {
			StructuredContent struct {
				LeaseID string `json:"lease_id"`
			}
		}
	}
	_ = json.Unmarshal(answer, &m) // otherwise it grants none
	return m.Result.StructuredContent.LeaseID
}

var attacks = []attack{
	{name: "half-open HTTP requests", run: func(a *attacker) {
		host := strings.TrimPrefix(a.web, "http://")
		var open [4][100]net.Conn
		next := [4]int{}
		a.each(4, func(i int) error {
			nc, err := net.Dial("tcp", host)
			if err != nil {
				return err
			}
			fmt.Fprint(nc, "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n")
			a.calls.Add(1)
			oldest := &open[i][next[i]%100]
			if *oldest != nil {
				(*oldest).Close()
			}
			*oldest = nc
			next[i]++
			return nil
		})
	}},
	{name: "HTTP sessions", prepare: func(a *attacker) {
		webToken = a.token(a.prey, "root", "root")
	}, run: func(a *attacker) {
		client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 100}}
		a.each(8, func(i int) error {
			session, err := a.initialize(client)
			if err != nil || i%2 == 0 { // half of them keep what they get
				return err
			}
			_, err = a.mcp(client, "DELETE", session, "")
			return err
		})
	}},
	{name: "clients that do not read", prepare: func(a *attacker) { a.join("filler").fill(60_000) }, run: func(a *attacker) {
		line := callLine(1, "kv_list", `{"glob":"/**","limit":1000,"values":true}`)
		a.each(64, func(i int) error {
			c, err := a.dial(server.Hello{Run: a.prey, Name: fmt.Sprint("deaf", i)})
			if err != nil {
				return err
			}
			defer c.nc.Close()
			defer c.whileIn(a.ctx)()
			for n := range 1000 {
				if _, err := c.nc.Write(bytes.Replace(line, []byte(`"id":1`), fmt.Appendf(nil, `"id":%d`, n), 1)); err != nil {
					return err
				}
				a.calls.Add(1)
			}
			sleep(a.ctx, time.Minute)
			return nil
		})
	}},
	{name: "kv_list of a full store", prepare: func(a *attacker) { a.join("filler").fill(60_000) }, run: func(a *attacker) {
		a.callers(attackers, 4, func(int) (string, string) { return "kv_list", `{"glob":"/**","limit":1000,"values":true}` })
	}},
	{name: "kv_list of small values", prepare: func(a *attacker) { a.join("filler").fill(3000) }, run: func(a *attacker) {
		a.callers(attackers, 4, func(int) (string, string) { return "kv_list", `{"glob":"/**","limit":1000,"values":true}` })
	}},
	{name: "kv_list that matches nothing", prepare: func(a *attacker) { a.join("filler").fill(3000) }, run: func(a *attacker) {
		glob := "/shared/" + strings.Repeat("*0", 100) + "x"
		a.callers(attackers, 4, func(int) (string, string) { return "kv_list", fmt.Sprintf(`{"glob":%q}`, glob) })
	}},
	{name: "kv_list of 50 000 leases", prepare: func(a *attacker) {
		kept = a.horde(5, func(i int, r *raw) { r.lease("lease_acquire", "name", fmt.Sprint("h", i), 10_000, hour) })
	}, run: func(a *attacker) {
		a.callers(attackers, 4, func(i int) (string, string) {
			if i%2 == 0 {
				return "kv_list", `{"glob":"/leases/**","limit":1}`
			}
			return "kv_list", `{"glob":"/leases/**","limit":1000,"values":true}`
		})
	}},
	{name: "listings of 30 000 queues", prepare: func(a *attacker) {
		parallel(30, func(i int) {
			r := a.must(server.Hello{Run: fmt.Sprint(a.prey, i%3), Name: fmt.Sprint("q", i)})
			r.enqueue(1000, func(n int) string { return fmt.Sprintf("queue-%d-%d", i, n) })
		})
		kept = a.horde(10, func(i int, r *raw) { r.lease("run_lease_acquire", "key", fmt.Sprint("h", i), 1000, hour) })
		parallel(4, func(i int) {
			for n := range 200 {
				kept = append(kept, a.must(server.Hello{Run: fmt.Sprint(a.prey, i), Name: fmt.Sprint("idle", n)}))
			}
		})
	}, run: func(a *attacker) {
		for i := range attackers {
			c := a.must(server.Hello{Run: fmt.Sprint(a.prey, i%3), Name: fmt.Sprint("looker", i)})
			tool, arguments := "queue_stats", `{"limit":1000}`
			switch i % 4 {
			case 1:
				tool, arguments = "lease_list", `{"limit":200}`
			case 2:
				tool, arguments = "actor_list", `{"limit":200}`
			}
			a.repeat(c, tool, arguments)
		}
	}},
	{name: "expiry of 100 000 leases", again: true, once: true, prepare: func(a *attacker) {
		expiry = time.Now().Add(30 * time.Second)
		left := func() float64 { return max(1, time.Until(expiry).Seconds()) }
		kept = a.horde(10, func(i int, r *raw) {
			r.lease("run_lease_acquire", "key", fmt.Sprintf("r%d/h%d", a.round, i), 10_000, left)
		})
	}, run: func(a *attacker) {
		time.Sleep(time.Until(expiry))
		a.until("operator_leases", fmt.Sprintf(`{"run":%q}`, a.prey), `"leases":[]`)
		for _, r := range kept {
			r.nc.Close()
		}
	}},
	{name: "end of sessions with 100 000 leases", again: true, once: true, prepare: func(a *attacker) {
		kept = a.horde(10, func(i int, r *raw) {
			r.lease("run_lease_acquire", "key", fmt.Sprintf("r%d/h%d", a.round, i), 10_000, hour)
		})
	}, run: func(a *attacker) {
		for _, r := range kept {
			r.nc.Close()
		}
		a.until("operator_leases", fmt.Sprintf(`{"run":%q}`, a.prey), `"leases":[]`)
	}},
	{name: "end of a session with 30 000 claims", again: true, once: true, prepare: func(a *attacker) {
		parallel(8, func(i int) {
			r := a.must(server.Hello{Run: a.prey, Name: "producer"})
			defer r.nc.Close()
			r.enqueue(30_000/8, func(int) string { return fmt.Sprint("work", a.round) })
		})
		kept = []*raw{a.join("hoarder")}
		kept[0].pipeline(300, 4, func(i int) []byte {
			return callLine(i, "task_claim", fmt.Sprintf(`{"queues":["work%d"],"ttl_secs":3600,"wait_secs":0,"count":100}`, a.round))
		})
	}, run: func(a *attacker) {
		kept[0].nc.Close()
		a.until("operator_queue_stats", fmt.Sprintf(`{"run":%q,"queue":"work%d"}`, a.prey, a.round), `"in_progress":0`)
	}},
	{name: "removal of a big run", again: true, once: true, prepare: func(a *attacker) {
		a.prey = fmt.Sprint("prey", a.round)
		parallel(10, func(i int) {
			r := a.join(fmt.Sprintf("h%d", i))
			r.lease("run_lease_acquire", "key", fmt.Sprint("h", i), 2000, hour)
			r.enqueue(2000, func(n int) string { return fmt.Sprint("q", n%100) })
			if i == 0 {
				r.fill(10_000)
			}
		})
		op := a.operator()
		defer op.nc.Close()
		if _, err := op.call("operator_actor_end", fmt.Sprintf(`{"run":%q,"path":"root"}`, a.prey)); err != nil {
			panic(err)
		}
	}, run: func(a *attacker) {
		op := a.operator()
		defer op.nc.Close()
		if _, err := op.call("operator_run_remove", fmt.Sprintf(`{"run":%q}`, a.prey)); err != nil {
			panic(err)
		}
		sleep(a.ctx, time.Second) // its rows go afterwards
	}},
	{name: "a flood of large tasks", run: func(a *attacker) {
		payload := strings.Repeat("x", 256<<10)
		a.callers(attackers, 4, func(i int) (string, string) {
			return "task_enqueue", fmt.Sprintf(`{"queue":"flood","payload":%q}`, payload)
		})
	}},
	{name: "1 000 waiters for one key", again: true, prepare: func(a *attacker) {
		keeper := a.join("keeper")
		key := fmt.Sprint("hot", a.round) // those of the last round may still be on their way out
		lease, err := keeper.call("run_lease_acquire", fmt.Sprintf(`{"key":%q,"ttl_secs":3600}`, key))
		if err != nil {
			panic(err)
		}
		kept = []*raw{keeper}
		for i := range 10 {
			c := a.join(fmt.Sprintf("waiter%d-%d", a.round, i))
			// Each waits as 100 sub-agents.
			for n := range 100 {
				c.nc.Write(callLine(n, "run_lease_acquire", fmt.Sprintf(`{"key":%q,"as":"s%d","wait_secs":50}`, key, n)))
			}
			kept = append(kept, c)
		}
		a.until("operator_leases", fmt.Sprintf(`{"run":%q}`, a.prey), `"in_line":1000`)
		hot = leaseOf(lease)
	}, run: func(a *attacker) {
		key := fmt.Sprint("hot", a.round)
		for _, c := range kept[1:] {
			stop := c.whileIn(a.ctx)
			// Each gives the key back at once, and waits again.
			a.all.Go(func() {
				defer stop()
				for {
					answer, err := c.next()
					if err != nil {
						return
					}
					var m struct{ ID int }
					lease := leaseOf(answer)
					if json.Unmarshal(answer, &m) != nil || lease == "" {
						continue
					}
					c.nc.Write(callLine(1000+m.ID, "run_lease_release", fmt.Sprintf(`{"lease_id":%q}`, lease)))
					c.nc.Write(callLine(m.ID, "run_lease_acquire", fmt.Sprintf(`{"key":%q,"as":"s%d","wait_secs":50}`, key, m.ID)))
				}
			})
		}
		kept[0].whileIn(a.ctx)
		if _, err := kept[0].call("run_lease_release", fmt.Sprintf(`{"lease_id":%q}`, hot)); err != nil {
			a.note(err)
		}
	}},
	{name: "a flood of calls that wait", run: func(a *attacker) {
		a.waiting(a.ctx, "kv_wait", `{"path":"/shared/none","wait_secs":50}`)
	}},
	{name: "waits for one entry", prepare: func(a *attacker) {
		a.waiting(context.Background(), "kv_wait", `{"path":"/shared/hot","min_version":1000000000,"wait_secs":50}`)
		time.Sleep(2 * time.Second)
	}, run: func(a *attacker) {
		a.repeat(a.join("setter"), "kv_set", `{"path":"/shared/hot","value":1}`)
	}},
	{name: "directories over 50 000 leases", prepare: func(a *attacker) {
		kept = a.horde(5, func(i int, r *raw) {
			r.pipeline(10_000, 64, func(n int) []byte {
				return callLine(n, "run_lease_acquire", fmt.Sprintf(`{"key":"file:src/h%d/%d","ttl_secs":3600,"mode":"shared"}`, i, n))
			})
		})
	}, run: func(a *attacker) {
		a.callers(attackers, 4, func(i int) (string, string) {
			return "run_lease_acquire", fmt.Sprintf(`{"key":"file:src/**","mode":%q,"wait_secs":%d}`, []string{"shared", "exclusive"}[i%2], i/2%2)
		})
	}},
	{name: "waits for 1 000 directories", prepare: func(a *attacker) {
		kept = a.horde(1, func(i int, r *raw) {
			r.lease("run_lease_acquire", "key", "file:src", 10_000, hour)
		})
	}, run: func(a *attacker) {
		for i := range 10 {
			c := a.join(fmt.Sprintf("waiter%d", i))
			c.whileIn(a.ctx)
			for n := range 100 {
				c.nc.Write(callLine(n, "run_lease_acquire", fmt.Sprintf(`{"key":"file:src/**","as":"s%d","wait_secs":50}`, n)))
			}
		}
		a.callers(attackers, 4, func(i int) (string, string) {
			return "run_lease_acquire", fmt.Sprintf(`{"key":"file:src/%d","wait_secs":0.1}`, i)
		})
	}},
	{name: "a long chain of waits", again: true, prepare: func(a *attacker) {
		const each = 90
		for _, r := range kept {
			r.nc.Close()
		}
		if a.round > 1 { // otherwise there is no such run yet
			a.until("operator_leases", fmt.Sprintf(`{"run":%q}`, a.prey), `"leases":[]`)
		}
		kept = a.horde(100, func(i int, r *raw) {
			r.pipeline(each, 64, func(n int) []byte {
				return callLine(n, "run_lease_acquire", fmt.Sprintf(`{"key":"link%d","as":"s%d","ttl_secs":3600}`, i*each+n, n))
			})
		})
		parallel(len(kept), func(i int) {
			for n := range each {
				kept[i].nc.Write(callLine(n, "run_lease_acquire", fmt.Sprintf(`{"key":"link%d","as":"s%d","wait_secs":50}`, i*each+n+1, n)))
			}
		})
		time.Sleep(2 * time.Second)
	}, run: func(a *attacker) {
		a.callers(attackers, 4, func(i int) (string, string) {
			return "run_lease_acquire", fmt.Sprintf(`{"key":"link0","as":"t%d","wait_secs":0.01}`, i)
		})
	}},
	{name: "histories of leases", prepare: func(a *attacker) {
		kept = a.horde(5, func(i int, r *raw) { r.lease("run_lease_acquire", "key", fmt.Sprint("h", i), 10_000, hour) })
	}, run: func(a *attacker) {
		a.callers(attackers, 4, func(i int) (string, string) {
			return "lease_history", `{"scope":"run","key":"none","limit":500}`
		})
	}},
	{name: "streams of events", prepare: func(a *attacker) {
		kept = a.horde(5, func(i int, r *raw) { r.lease("run_lease_acquire", "key", fmt.Sprint("h", i), 5000, hour) })
		webToken = a.access("reader")
	}, run: func(a *attacker) {
		client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 100}}
		a.each(64, func(i int) error {
			ctx, enough := context.WithTimeout(a.ctx, 200*time.Millisecond)
			defer enough()
			_, _, err := a.web1(ctx, client, "GET", "/api/v1/runs/"+a.prey+"/events/stream", "")
			if ctx.Err() != nil {
				err = nil
			}
			return err
		})
	}},
	{name: "requests without a token", run: func(a *attacker) {
		client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 100}}
		a.each(64, func(i int) error {
			switch i % 3 {
			case 0:
				a.web1(a.ctx, client, "GET", "/readyz", "")
			case 1:
				a.web1(a.ctx, client, "POST", "/mcp", initializeLine)
			default:
				a.web1(a.ctx, client, "POST", "/page/session", `{"code":"none"}`)
			}
			return nil
		})
	}},
	{name: "polls for tasks over HTTP", prepare: func(a *attacker) {
		webToken = a.token(a.prey, "root", "root")
	}, run: func(a *attacker) {
		client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 100}}
		_, answer, err := a.web1(a.ctx, client, "POST", "/api/v1/sessions", "")
		var opened struct{ Session string }
		if err != nil || json.Unmarshal(answer, &opened) != nil {
			panic(err)
		}
		a.each(100, func(i int) error { // as many as an actor may have
			_, _, err := a.web1(a.ctx, client, "POST", "/api/v1/tasks/next", `{"queues":["polled"],"ttl_secs":60,"wait_secs":50}`, "Leasehold-Session", opened.Session)
			return err
		})
		a.repeat(a.join("producer"), "task_enqueue", `{"queue":"polled","payload":1}`)
	}},
	{name: "claims from empty queues", run: func(a *attacker) {
		names := make([]string, 16)
		for i := range names {
			names[i] = fmt.Sprintf("empty%d", i)
		}
		queues, _ := json.Marshal(names)
		a.callers(64, 16, func(i int) (string, string) {
			return "task_claim", fmt.Sprintf(`{"queues":%s,"ttl_secs":60,"wait_secs":0.001}`, queues)
		})
	}},
	{name: "a flood of connections", run: func(a *attacker) {
		a.each(attackers, func(i int) error {
			c, err := a.dial(server.Hello{Run: a.prey, Name: "mayfly"})
			if err != nil {
				return err
			}
			a.calls.Add(1)
			return c.nc.Close()
		})
	}},
}

var (
	webToken string
	expiry   time.Time
)

// initialize opens a session over HTTP.
func (a *attacker) initialize(client *http.Client) (session string, err error) {
	resp, err := a.mcp(client, "POST", "", initializeLine)
	if err != nil {
		return "", err
	}
	return resp.Get("Mcp-Session-Id"), nil
}

func (a *attacker) mcp(client *http.Client, method, session, body string) (http.Header, error) {
	header, _, err := a.web1(a.ctx, client, method, "/mcp", body, "Mcp-Session-Id", session)
	return header, err
}

// web1 makes one request.
func (a *attacker) web1(ctx context.Context, client *http.Client, method, path, body string, headers ...string) (http.Header, []byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, a.web+path, strings.NewReader(body))
	if err != nil {
		return nil, nil, err
	}
	if webToken != "" {
		req.Header.Set("Authorization", "Bearer "+webToken)
	}
	req.Header.Set("Origin", a.web)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	for i := 0; i+1 < len(headers); i += 2 {
		if headers[i+1] != "" {
			req.Header.Set(headers[i], headers[i+1])
		}
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode >= 400 {
		err = fmt.Errorf("%s: %.80s", resp.Status, text)
	}
	a.calls.Add(1)
	return resp.Header, text, err
}

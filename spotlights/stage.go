package spotlights

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/leasehold/leasehold/dispatch/client"
	"github.com/leasehold/leasehold/dispatch/server"
)

// A stage has what a story needs: its daemon, its output and its clients.
type stage struct {
	ctx    context.Context
	daemon Daemon
	out    io.Writer

	operator *client.Client
	mu       sync.Mutex
	cast     []*client.Client // every client that connected
	calls    sync.WaitGroup   // goroutines of waiting calls
}

// leave closes all connections.
func (st *stage) leave() {
	st.mu.Lock()
	cast := st.cast
	st.mu.Unlock()
	for _, c := range cast {
		c.Close()
	}
	st.calls.Wait()
}

// say narrates what happens.
func (st *stage) say(format string, args ...any) { fmt.Fprintf(st.out, format+"\n", args...) }

// show quotes the first line of what an agent reads, without the JSON below it.
func (st *stage) show(who, text string) {
	line, _, _ := strings.Cut(text, "\n")
	st.say("    %s reads: %s", who, line)
}

// want ends the story unless ok is true.
func (st *stage) want(ok bool, format string, args ...any) {
	if !ok {
		panic(broken{fmt.Errorf(format, args...)})
	}
}

func (st *stage) must(err error) {
	if err != nil {
		panic(broken{err})
	}
}

func (st *stage) connect(hello server.Hello, name string) *client.Client {
	nc, err := st.daemon.Dial(st.ctx)
	st.must(err)
	c, err := client.Connect(st.ctx, nc, hello, name, "")
	st.must(err)
	st.mu.Lock()
	defer st.mu.Unlock()
	st.cast = append(st.cast, c)
	return c
}

// An actor is an actor of the tree that the operator added.
type actor struct {
	st    *stage
	path  string
	id    string
	token string
}

const run = "spotlight"

// operate calls an operator's tool for the run of the stories.
func (st *stage) operate(tool string, args map[string]any) client.Answer {
	if st.operator == nil {
		st.operator = st.connect(server.Hello{Operator: true}, "spotlight")
	}
	args["run"] = run
	answer, err := st.operator.Call(st.ctx, tool, args)
	st.must(err)
	return answer
}

func (st *stage) addActor(args map[string]any) actor {
	answer := st.operate("operator_actor_add", args)
	var made struct{ ActorID, Path, Token string }
	st.must(json.Unmarshal(answer.Object, &struct {
		ActorID *string `json:"actor_id"`
		Path    *string `json:"path"`
		Token   *string `json:"token"`
	}{&made.ActorID, &made.Path, &made.Token}))
	return actor{st, made.Path, made.ActorID, made.Token}
}

func (st *stage) root() actor { return st.addActor(map[string]any{"name": "lead", "role": "root"}) }

func (a actor) sublead(name string) actor { return a.add(name, "sublead") }
func (a actor) worker(name string) actor  { return a.add(name, "worker") }

func (a actor) add(name, role string) actor {
	return a.st.addActor(map[string]any{"name": name, "role": role, "parent": a.path})
}

// An agent is one MCP session of an actor.
type agent struct {
	actor
	*client.Client
}

// connect opens a session for the actor.
func (a actor) connect() *agent {
	return &agent{a, a.st.connect(server.Hello{Token: a.token}, a.path)}
}

// resume continues the agent's session over a new connection.
func (g *agent) resume() {
	g.Client = g.st.connect(server.Hello{Handle: g.Handle, Token: g.token}, g.path)
	g.st.want(g.Resumed, "%s could not resume its session", g.path)
}

// crash closes the agent's connection without a goodbye.
func (g *agent) crash() { g.Client.Close() }

// A lease is a grant as an agent receives it.
type lease struct {
	ID          string    `json:"lease_id"`
	Token       uint64    `json:"token"`
	ExpiresInMS int64     `json:"expires_in_ms"`
	AcquiredAt  time.Time `json:"acquired_at"`
	Reentrant   bool      `json:"reentrant"`
	text        string
}

// Tools that acquire a lease.
const (
	layerTool = "lease_acquire"
	runTool   = "run_lease_acquire"
)

// try asks for a lease, which may be refused.
func (g *agent) try(tool, key string, more ...any) (lease, *client.Refusal) {
	args := map[string]any{"key": key}
	if tool == layerTool {
		args = map[string]any{"name": key}
	}
	for i := 0; i+1 < len(more); i += 2 {
		args[more[i].(string)] = more[i+1]
	}
	answer, err := g.Call(g.st.ctx, tool, args)
	var refusal *client.Refusal
	if errors.As(err, &refusal) {
		return lease{}, refusal
	}
	g.st.must(err)
	l := lease{text: answer.Text}
	g.st.must(json.Unmarshal(answer.Object, &l))
	return l, nil
}

// acquire asks for a lease that must be granted.
func (g *agent) acquire(tool, key string, more ...any) lease {
	l, refusal := g.try(tool, key, more...)
	g.st.want(refusal == nil, "%s was refused %q: %v", g.path, key, refusal)
	return l
}

// refused asks for a lease that must be refused with the code.
func (g *agent) refused(code, tool, key string, more ...any) *client.Refusal {
	l, refusal := g.try(tool, key, more...)
	g.st.want(refusal != nil, "%s was granted %q with token %d", g.path, key, l.Token)
	g.st.want(refusal.Code == code, "%s was refused %q with %s, want %s", g.path, key, refusal.Code, code)
	return refusal
}

// An answer is the result of a waiting call.
type answer struct {
	lease
	refusal *client.Refusal
	err     error
	at      time.Time
}

// wait asks for a lease and stays in line. It returns once the daemon lists the
// waiter, or has answered.
func (g *agent) wait(tool, key string, more ...any) <-chan answer {
	before := g.st.waiting(key)
	c := make(chan answer, 1)
	g.st.calls.Go(func() {
		a := answer{}
		defer func() {
			if b, ok := recover().(broken); ok { // the agent is gone and gets no answer
				a.err = b.error
			}
			a.at = time.Now()
			c <- a
		}()
		a.lease, a.refusal = g.try(tool, key, append([]any{"wait_secs", 50}, more...)...)
	})
	for g.st.waiting(key) == before && len(c) == 0 {
		time.Sleep(time.Millisecond)
	}
	return c
}

// waiting returns how many waiters a key has, in any scope, as the operator
// sees it.
func (st *stage) waiting(key string) (n int) {
	seen := st.operate("operator_leases", map[string]any{})
	var list struct {
		Leases []struct {
			Name, Key string
			InLine    int `json:"in_line"`
		}
	}
	st.must(json.Unmarshal(seen.Object, &list))
	for _, l := range list.Leases {
		if l.Name+l.Key == key {
			n += l.InLine
		}
	}
	return n
}

// granted waits for the answer to a wait, which must be a grant.
func (st *stage) granted(who string, c <-chan answer) answer {
	a := <-c
	st.must(a.err)
	st.want(a.refusal == nil, "%s was refused after its wait: %v", who, a.refusal)
	return a
}

// stillWaits checks that a waiting call has no answer yet.
func (st *stage) stillWaits(who string, c <-chan answer) {
	select {
	case a := <-c:
		st.want(false, "%s should wait, and was answered: %+v", who, a)
	default:
	}
}

func (g *agent) release(l lease) {
	_, err := g.Call(g.st.ctx, "run_lease_release", map[string]any{"lease_id": l.ID})
	g.st.must(err)
}

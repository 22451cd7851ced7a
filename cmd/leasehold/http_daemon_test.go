package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	programs "github.com/leasehold/leasehold/client"
	"github.com/leasehold/leasehold/dispatch/client"
	"github.com/leasehold/leasehold/dispatch/server"
)

// A served is a daemon that serves HTTP.
type served struct {
	url string
	cmd *exec.Cmd
}

// serveHTTP starts a daemon with variables of its own.
func serveHTTP(t *testing.T, env ...string) *served {
	t.Helper()
	cmd := testProgram(t, "serve", "--http", "127.0.0.1:0", "--log-format", "console")
	cmd.Env = append(cmd.Env, env...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = t.Output()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	d := &served{cmd: cmd}
	t.Cleanup(d.kill)
	line, err := bufio.NewReader(out).ReadString('\n')
	if d.url = regexp.MustCompile(`http://[^/]+`).FindString(line); err != nil || d.url == "" {
		t.Fatalf("the daemon says %q: %v", line, err)
	}
	return d
}

func (d *served) open(t *testing.T, token string) *programs.Client {
	t.Helper()
	c, err := programs.Open(t.Context(), programs.Options{Servers: []string{d.url}, Token: token})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func (d *served) kill() {
	_ = d.cmd.Process.Kill()
	_ = d.cmd.Wait()
}

func (d *served) stop() {
	_ = d.cmd.Process.Signal(os.Interrupt)
	_ = d.cmd.Wait()
}

// A call with an Idempotency-Key whose answer was lost with the daemon has one effect and
// the same answer, when it is sent again to the next. Under that key nothing else is done.
func TestIdempotencyKeysOutlastTheDaemon(t *testing.T) {
	t.Parallel()
	newDir(t)
	d := serveHTTP(t)
	token := actorsOfRun(t, 1)[0]
	session := ""
	ask := func(path, key, body string) (status int, answer map[string]any) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, d.url+"/api/v1"+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+token)
		r.Header.Set("Idempotency-Key", key)
		if session != "" {
			r.Header.Set("Leasehold-Session", session)
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(b, &answer); err != nil {
			t.Fatalf("%s: %s %q", path, resp.Status, b)
		}
		return resp.StatusCode, answer
	}
	_, opened := ask("/sessions", "", "")
	session = opened["session"].(string)

	// What makes a call the same is told by these members of its answer.
	calls := []struct{ path, body, other string }{
		{"/queues/q/tasks", `{"payload":{"n":1}}`, `{"payload":{"n":2}}`},
		{"/tasks/many", `{"tasks":[{"queue":"q","payload":2},{"queue":"q","payload":3}]}`, `{"tasks":[{"queue":"q","payload":4}]}`},
		{"/leases", `{"key":"port 80","ttl_secs":600}`, `{"key":"port 81","ttl_secs":600}`},
		{"/tasks/next", `{"queues":["q"],"ttl_secs":600,"count":2}`, `{"queues":["q"],"ttl_secs":600,"count":1}`},
	}
	same := func(answer map[string]any) string {
		var text strings.Builder
		text.WriteString(fmt.Sprint(answer["task_id"], answer["lease_id"], answer["token"]))
		list, _ := answer["tasks"].([]any)
		for _, task := range list {
			text.WriteString(fmt.Sprint(task.(map[string]any)["task_id"], task.(map[string]any)["token"]))
		}
		return text.String()
	}
	var first []string
	for i, c := range calls {
		status, answer := ask(c.path, fmt.Sprint("call ", i), c.body)
		if status >= 300 {
			t.Fatalf("%s: %d %v", c.path, status, answer)
		}
		first = append(first, same(answer))
	}
	d.kill()
	d = serveHTTP(t)
	for i, c := range calls {
		if status, answer := ask(c.path, fmt.Sprint("call ", i), c.body); status >= 300 || same(answer) != first[i] {
			t.Errorf("%s again: %d %v, not %s", c.path, status, answer, first[i])
		}
		if status, answer := ask(c.path, fmt.Sprint("call ", i), c.other); status != http.StatusConflict || answer["code"] != "REQUEST_ID_REUSED" {
			t.Errorf("%s with another body: %d %v", c.path, status, answer)
		}
	}
	var stats struct{ Queues []struct{ Ready int } }
	if err := d.open(t, token).Do(t.Context(), http.MethodGet, "/queues", nil, &stats); err != nil || len(stats.Queues) != 1 || stats.Queues[0].Ready != 1 {
		t.Errorf("three tasks were enqueued and two claimed: %+v %v", stats, err)
	}
}

// actorsOfRun makes workers of a run, and gives their tokens.
func actorsOfRun(t *testing.T, n int) (tokens []string) {
	t.Helper()
	newActor(t, "load", "root", "root")
	for i := range n {
		tokens = append(tokens, newActor(t, "load", fmt.Sprint("w", i), "worker"))
	}
	return tokens
}

// newActor makes an actor, and gives its token.
func newActor(t *testing.T, run, name, role string) string {
	t.Helper()
	var made struct{ Token string }
	asOperator(t, "operator_actor_add", map[string]any{"run": run, "name": name, "role": role}, &made)
	return made.Token
}

// dialOperator connects an operator over the socket. The caller closes the connection.
func dialOperator(t *testing.T) *client.Client {
	t.Helper()
	nc, err := net.Dial("unix", inDir(t, "s"))
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.Connect(t.Context(), nc, server.Hello{Operator: true}, "test", "")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// asOperator calls a tool over the socket.
func asOperator(t *testing.T, tool string, in map[string]any, out any) {
	t.Helper()
	c := dialOperator(t)
	defer c.Close()
	answer, err := c.Call(t.Context(), tool, in)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(answer.Object, out); err != nil {
		t.Fatal(err)
	}
}

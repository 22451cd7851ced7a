package server_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/dispatch/process"
	"github.com/leasehold/leasehold/dispatch/server"
	"github.com/leasehold/leasehold/dispatch/work"
)

// visitorSocket makes a process of this test binary a visitor of that socket.
const visitorSocket = "SERVER_TEST_SOCKET"

// TestSocketVisitor is no test but a process: on a line of input it greets a
// daemon in two ways, or shows it the tokens of the line over one connection, and prints
// what it is taken for.
func TestSocketVisitor(t *testing.T) {
	path := os.Getenv(visitorSocket)
	if path == "" {
		t.Skip("is part of other tests")
	}
	var line string
	fmt.Scanln(&line)
	if line != "go" {
		transport := &http.Transport{MaxConnsPerHost: 1, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		}}
		for token := range strings.SplitSeq(line, ",") {
			token, session, _ := strings.Cut(token, "|")
			r, _ := http.NewRequestWithContext(t.Context(), "POST", "http://localhost/mcp", strings.NewReader(ping))
			r.Header.Set("Authorization", "Bearer "+token)
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set("Mcp-Session-Id", session)
			resp, err := transport.RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.Copy(io.Discard, resp.Body); err != nil { // so that the connection is used again
				t.Fatal(err)
			}
			resp.Body.Close()
			fmt.Println("taken for:", resp.StatusCode)
		}
		return
	}
	for _, hello := range []server.Hello{{Operator: true}, {Run: "default", Name: "me"}} {
		nc, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		_, w, err := server.Greet(nc, hello)
		if refused, ok := errors.AsType[*server.HelloError](err); ok {
			fmt.Println("taken for:", refused.Code)
		} else if err == nil {
			fmt.Println("taken for:", w.Actor.Run, w.Actor.Path)
		}
		nc.Close()
	}
}

func TestAProcessThatIsLaunchedIsNoOperator(t *testing.T) {
	d := newDaemon(t, server.Options{})
	path := socketPath(t)
	ln, err := server.ListenSocket(path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error)
	go func() { served <- d.ServeSocket(ctx, ln) }()
	defer func() {
		stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}()

	visit := func(line string, running func(pid int)) string {
		t.Helper()
		visitor := exec.Command(os.Args[0], "-test.run=^TestSocketVisitor$")
		visitor.Env = append(os.Environ(), visitorSocket+"="+path)
		input, err := visitor.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		var said strings.Builder
		visitor.Stdout = &said
		if err := visitor.Start(); err != nil {
			t.Fatal(err)
		}
		running(visitor.Process.Pid)
		if _, err := input.Write([]byte(line + "\n")); err != nil {
			t.Fatal(err)
		}
		if err := visitor.Wait(); err != nil {
			t.Fatalf("%v: %s", err, said.String())
		}
		var taken []string
		for line := range strings.Lines(said.String()) {
			if who, ok := strings.CutPrefix(line, "taken for: "); ok {
				taken = append(taken, strings.TrimSpace(who))
			}
		}
		return strings.Join(taken, ", ")
	}
	if got := visit("go", func(int) {}); got != "operator, default me" {
		t.Errorf("before there is a run: %s", got)
	}

	op, err := d.state.Connect(ctx, dispatch.Credentials{Operator: true}, process.Find(os.Getpid()).Peer)
	if err != nil {
		t.Fatal(err)
	}
	info, err := d.state.DispatchRun(ctx, op, dispatch.Dispatch{
		Run: "tree", Root: work.Order{Name: "lead", Agent: "sh", Prompt: "x"}, Agents: []string{"sh"},
	})
	if err != nil {
		t.Fatal(err)
	}
	orders, err := d.state.NextOrders(ctx, op, "tree", 0)
	if err != nil {
		t.Fatal(err)
	}
	if got := visit("go", func(int) {}); got != "FORBIDDEN, FORBIDDEN" {
		t.Errorf("another child of the dispatcher: %s", got)
	}
	root := func(pid int) {
		if err := d.state.LaunchStarted(ctx, op, "tree", info.Root, pid, ""); err != nil {
			t.Fatal(err)
		}
	}
	if got := visit("go", root); got != "FORBIDDEN, tree root" {
		t.Errorf("the root's process: %s", got)
	}
	d.token(t, "root")
	another := d.token(t, "another")
	session := openOver(t, d.listenTCP(t), another) // by a process that nobody knows
	if got := visit(orders.Launch[0].Token+","+another+"|"+session, root); got != "400, 403" {
		t.Errorf("the root's process shows its token, without a session, and then another's with its session: %s", got)
	}
	if _, _, err := d.state.LaunchExited(ctx, op, "tree", info.Root, work.Exit{Status: work.Succeeded}); err != nil {
		t.Error(err)
	}
	if err := op.Close(nil); err != nil {
		t.Error(err)
	}
}

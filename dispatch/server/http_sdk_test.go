package server_test

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/leasehold/leasehold/dispatch/server"
)

// newTCP serves a daemon's endpoint on the loopback.
func newTCP(t *testing.T, opts server.Options) (d *daemon, url string) {
	t.Helper()
	d = newDaemon(t, opts)
	ln, err := server.ListenHTTP("127.0.0.1:0", false)
	if err != nil {
		t.Fatal(err)
	}
	var served sync.WaitGroup
	served.Go(func() {
		if err := d.ServeEndpoint(d.ctx, ln); err != nil {
			t.Errorf("ServeEndpoint: %v", err)
		}
	})
	t.Cleanup(func() { d.stop(); served.Wait() })
	return d, "http://" + ln.Addr().String() + "/mcp"
}

// bearer sends a token with every request.
type bearer string

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(b))
	return http.DefaultTransport.RoundTrip(r)
}

// connectHTTP connects the official Go SDK's client.
func connectHTTP(ctx context.Context, url, token string) (*mcp.ClientSession, error) {
	client := mcp.NewClient(&mcp.Implementation{Name: "sdk", Version: "1"}, nil)
	return client.Connect(ctx, &mcp.StreamableClientTransport{
		Endpoint: url, HTTPClient: &http.Client{Transport: bearer(token)},
	}, nil)
}

func callSDK(ctx context.Context, cs *mcp.ClientSession, tool string, args map[string]any) error {
	res, err := cs.CallTool(ctx, &mcp.CallToolParams{Name: tool, Arguments: args})
	if err == nil && res.IsError {
		err = fmt.Errorf("%+v", res.StructuredContent)
	}
	return err
}

// TestHTTPVictim is no test but the client that others kill: it takes a lease
// in each scope, blocks in a third acquire, and says so.
func TestHTTPVictim(t *testing.T) {
	url, token := os.Getenv("LEASEHOLD_TEST_URL"), os.Getenv("LEASEHOLD_TEST_TOKEN")
	if url == "" {
		t.Skip("runs as a process of other tests")
	}
	cs, err := connectHTTP(t.Context(), url, token)
	if err != nil {
		t.Fatal(err)
	}
	for tool, args := range map[string]map[string]any{
		"run_lease_acquire": {"key": "a"}, "lease_acquire": {"name": "b"},
	} {
		if err := callSDK(t.Context(), cs, tool, args); err != nil {
			t.Fatal(err)
		}
	}
	fmt.Println("ready")
	t.Error(callSDK(t.Context(), cs, "run_lease_acquire", map[string]any{"key": "c", "wait_secs": 50}))
}

func TestSDKClientOverHTTP(t *testing.T) {
	const grace = 500 * time.Millisecond
	d, url := newTCP(t, server.Options{Transport: server.Transport{HTTPGrace: grace}})
	d.token(t, "root")
	victimToken := d.token(t, "victim")
	ctx := t.Context()
	holder, err := connectHTTP(ctx, url, d.token(t, "holder"))
	if err != nil {
		t.Fatal(err)
	}
	if v := holder.InitializeResult().ProtocolVersion; v != "2025-11-25" {
		t.Errorf("protocol version %s", v)
	}
	if err := callSDK(ctx, holder, "run_lease_acquire", map[string]any{"key": "c"}); err != nil {
		t.Fatal(err)
	}

	victim := exec.Command(os.Args[0], "-test.run=^TestHTTPVictim$")
	victim.Env = append(os.Environ(), "LEASEHOLD_TEST_URL="+url, "LEASEHOLD_TEST_TOKEN="+victimToken)
	out, err := victim.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := victim.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		t.Fatalf("victim: %q %v", line, err)
	}

	next, err := connectHTTP(ctx, url, d.token(t, "next"))
	if err != nil {
		t.Fatal(err)
	}
	var waits sync.WaitGroup
	granted := make([]time.Time, 2)
	for i, wait := range []struct {
		tool string
		args map[string]any
	}{
		{"run_lease_acquire", map[string]any{"key": "a", "wait_secs": 50}},
		{"lease_acquire", map[string]any{"name": "b", "wait_secs": 50}},
	} {
		waits.Go(func() {
			if err := callSDK(ctx, next, wait.tool, wait.args); err != nil {
				t.Error(err)
			}
			granted[i] = time.Now()
		})
	}
	killed := time.Now()
	victim.Process.Kill()
	victim.Wait()
	waits.Wait()
	for _, at := range granted {
		t.Logf("hand-over %v after the kill, %v of them grace", at.Sub(killed), grace)
		if at.Sub(killed) < grace {
			t.Errorf("hand-over %v after the kill", at.Sub(killed))
		}
	}

	// DELETE, which this client sends when it is closed, has no grace.
	var handOver sync.WaitGroup
	handOver.Go(func() {
		if err := callSDK(ctx, next, "run_lease_acquire", map[string]any{"key": "c", "wait_secs": 50}); err != nil {
			t.Error(err)
		}
	})
	closed := time.Now()
	if err := holder.Close(); err != nil {
		t.Error(err)
	}
	handOver.Wait()
	t.Logf("hand-over %v after DELETE", time.Since(closed))

	// A call that its client cancels gives up its place, and the session
	// goes on.
	other, err := connectHTTP(ctx, url, d.token(t, "other"))
	if err != nil {
		t.Fatal(err)
	}
	cancelCtx, cancel := context.WithCancel(ctx)
	time.AfterFunc(50*time.Millisecond, cancel)
	if err := callSDK(cancelCtx, other, "run_lease_acquire", map[string]any{"key": "c", "wait_secs": 50}); err == nil {
		t.Error("a cancelled call was answered")
	}
	if err := callSDK(ctx, other, "run_lease_acquire", map[string]any{"key": "d"}); err != nil {
		t.Error(err)
	}
	next.Close()
	if err := callSDK(ctx, other, "run_lease_acquire", map[string]any{"key": "c"}); err != nil {
		t.Errorf("the cancelled call holds a place or the lease: %v", err)
	}
	if err := other.Close(); err != nil {
		t.Error(err)
	}
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
}

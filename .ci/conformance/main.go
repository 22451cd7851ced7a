// Command conformance runs the scenarios of the official MCP conformance suite
// that apply to leasehold, against a daemon of its own.
//
// The suite sends no Authorization header and has no option for one, and the
// daemon serves nobody without. So a proxy on the loopback stands between them
// that adds an actor's token and changes nothing else: the Host and Origin
// that the suite makes up arrive as they are.
//
// `just conformance` installs the suite, builds the command and runs this from
// the root of the repository:
//
//	go run ./.ci/conformance -leasehold PATH -suite DIR
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// scenarios are those that ask for nothing but what leasehold offers: tools,
// resources and sessions. The others call tools, prompts and resources of the suite's own
// example server, or are of the stateless protocol version, which is not
// served.
var scenarios = []string{
	"server-initialize",
	"server-session-lifecycle",
	"ping",
	"logging-set-level",
	"tools-list",
	"resources-list",
	"server-sse-multiple-streams",
	"dns-rebinding-protection",
}

// specVersion is the newest version of the protocol that has sessions.
const specVersion = "2025-11-25"

func main() {
	leasehold := flag.String("leasehold", "leasehold", "the `binary` to test")
	suite := flag.String("suite", ".ci/conformance", "the `directory` where the suite is installed")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *leasehold, *suite); err != nil {
		fmt.Fprintln(os.Stderr, "conformance:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, leasehold, suite string) error {
	dir, err := os.MkdirTemp("", "leasehold-conformance-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)

	d := &daemon{binary: leasehold, dir: dir}
	stop, err := d.serve(ctx)
	if err != nil {
		return err
	}
	defer stop()
	token, err := d.token(ctx)
	if err != nil {
		return err
	}
	proxy, err := listen()
	if err != nil {
		return err
	}
	go func() { _ = http.Serve(proxy, bearing(token, d.http)) }() // ends with the process
	target := "http://" + proxy.Addr().String() + "/mcp"

	failed := 0
	for _, scenario := range scenarios {
		if err := check(ctx, suite, dir, scenario, target); err != nil {
			fmt.Printf("%s: %v\n", scenario, err)
			failed++
		}
	}
	fmt.Printf("%d passed, %d failed\n", len(scenarios)-failed, failed)
	if failed > 0 {
		stop() // it writes no more
		fmt.Printf("the daemon said:\n%s", d.said.Bytes())
		return errors.New("the server does not conform")
	}
	return nil
}

// check runs one scenario. The suite exits with 0 also where a check only
// warned or was skipped, so its results are read.
func check(ctx context.Context, suite, dir, scenario, target string) error {
	results := filepath.Join(dir, "results", scenario)
	modules := filepath.Join(suite, "node_modules")
	cmd := exec.CommandContext(ctx, node(modules),
		filepath.Join(modules, "@modelcontextprotocol", "conformance", "dist", "index.js"),
		"server", "--url", target, "--scenario", scenario, "--spec-version", specVersion, "--output-dir", results)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	files, err := filepath.Glob(filepath.Join(results, "*", "checks.json"))
	if err != nil || len(files) != 1 {
		return fmt.Errorf("the suite left %d results\n%s", len(files), out)
	}
	text, err := os.ReadFile(files[0])
	if err != nil {
		return err
	}
	var checks []struct{ ID, Status, ErrorMessage string }
	if err := json.Unmarshal(text, &checks); err != nil {
		return fmt.Errorf("%s: %w", files[0], err)
	}
	if len(checks) == 0 {
		return errors.New("the suite checked nothing")
	}
	for _, c := range checks {
		fmt.Printf("%-32s %-44s %s\n", scenario, c.ID, c.Status)
		if c.Status != "SUCCESS" && c.Status != "INFO" {
			err = errors.Join(err, fmt.Errorf("%s: %s %s", c.ID, c.Status, c.ErrorMessage))
		}
	}
	return err
}

// node is the Node that was installed beside the suite, which wants 22 or
// newer, else the machine's own.
func node(modules string) string {
	own := filepath.Join(modules, ".bin", "node")
	if _, err := os.Stat(own); err == nil {
		return own
	}
	return "node"
}

// A daemon is a leasehold serve over a state that nobody else has.
type daemon struct {
	binary string
	dir    string
	http   string
	said   bytes.Buffer // to be read when it has ended
}

func (d *daemon) socket() string { return filepath.Join(d.dir, "socket") }

// serve starts the daemon; stop ends it.
func (d *daemon) serve(ctx context.Context) (stop func(), err error) {
	free, err := listen()
	if err != nil {
		return nil, err
	}
	d.http = free.Addr().String()
	free.Close()
	cmd := exec.CommandContext(ctx, d.binary, "serve",
		"--state", filepath.Join(d.dir, "state"), "--socket", d.socket(), "--http", d.http)
	cmd.Stdout, cmd.Stderr = &d.said, &d.said
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	var end error
	ended := make(chan struct{})
	go func() { // ends with the daemon
		defer close(ended)
		end = cmd.Wait()
	}()
	stop = func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended
		<-ended
	}
	for range 200 {
		select {
		case <-ended:
			return nil, fmt.Errorf("the daemon did not start: %w\n%s", end, d.said.Bytes())
		case <-time.After(50 * time.Millisecond):
		}
		nc, err := net.Dial("tcp", d.http)
		if err != nil {
			continue
		}
		nc.Close()
		if _, err := os.Stat(d.socket()); err == nil {
			return stop, nil
		}
	}
	stop()
	return nil, fmt.Errorf("the daemon did not start within 10 s\n%s", d.said.Bytes())
}

// token makes an actor.
func (d *daemon) token(ctx context.Context) (string, error) {
	cmd := exec.CommandContext(ctx, d.binary, "actor", "add",
		"--socket", d.socket(), "--run", "conformance", "--name", "suite", "--role", "root", "--json")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("actor add: %w", err)
	}
	var made struct{ Token string }
	if err := json.Unmarshal(out, &made); err != nil || made.Token == "" {
		return "", fmt.Errorf("actor add printed no token: %s", out)
	}
	return made.Token, nil
}

func listen() (net.Listener, error) { return net.Listen("tcp", "127.0.0.1:0") }

// bearing passes requests on, with a token where there is none.
func bearing(token, addr string) http.Handler {
	target := &url.URL{Scheme: "http", Host: addr}
	return &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.Out.Host = r.In.Host
			if strings.TrimSpace(r.In.Header.Get("Authorization")) == "" {
				r.Out.Header.Set("Authorization", "Bearer "+token)
			}
		},
		FlushInterval: -1, // streams are passed on as they come
	}
}

package agenttest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

var errLeaked = errors.New("a secret stands in the arguments of a process")

// errExit ends a stand-in as its prompt says.
type errExit int

func (e errExit) Error() string { return fmt.Sprintf("exit %d, as the prompt says", int(e)) }

func (f fake) run(name string) (code int, err error) {
	g := Given{Client: name, Argv: os.Args, Env: make(map[string]string)}
	for _, pair := range os.Environ() {
		name, value, _ := strings.Cut(pair, "=")
		g.Env[name] = value
	}
	if g.Dir, err = os.Getwd(); err != nil {
		return 1, err
	}
	if err := f.given(&g, os.Args[1:]); err != nil {
		return Wrong, err
	}
	if err := g.check(); err != nil {
		return Wrong, err
	}
	a := &actor{given: &g, cost: 0.01}
	err = a.act(context.Background())
	var exit errExit
	switch {
	case errors.As(err, &exit):
		return int(exit), nil
	case errors.Is(err, errLeaked):
		return Leaked, err
	case err != nil:
		return Wrong, err
	}
	if err := g.record(); err != nil {
		return Wrong, err
	}
	return 0, f.print(os.Stdout, g, a.cost)
}

// check is what every client needs to be of use.
func (g *Given) check() error {
	if len(g.Command) == 0 {
		return errors.New("no MCP server leasehold is configured")
	}
	if g.Timeout < 60 {
		return fmt.Errorf("calls are cut at %v s, and one may wait 50 s", g.Timeout)
	}
	for _, name := range []string{"LEASEHOLD_SOCKET", "LEASEHOLD_TOKEN", "LEASEHOLD_RUN_ID", "LEASEHOLD_ACTOR_ID", "LEASEHOLD_NAME", "LEASEHOLD_ROLE"} {
		if g.Env[name] == "" {
			return fmt.Errorf("%s is not set", name)
		}
		if g.Server[name] != g.Env[name] {
			return fmt.Errorf("the MCP server gets %s=%q, and the agent %q", name, g.Server[name], g.Env[name])
		}
	}
	if strings.TrimSpace(g.Prompt) == "" {
		return errors.New("the prompt is empty")
	}
	return nil
}

// secretFree refuses a configuration that has a secret in it.
func (g *Given) secretFree(file string, text []byte) error {
	for _, name := range []string{"LEASEHOLD_TOKEN", "LEASEHOLD_SESSION"} {
		if secret := g.Env[name]; secret != "" && bytes.Contains(text, []byte(secret)) {
			return fmt.Errorf("%s has %s in clear", file, name)
		}
	}
	info, err := os.Stat(file)
	if err == nil && info.Mode()&0o077 != 0 {
		return fmt.Errorf("%s can be read by others", file)
	}
	return err
}

// piped is what comes by stdin.
func piped() (string, error) {
	text, err := io.ReadAll(os.Stdin)
	return string(text), err
}

// An actor does what its prompt says.
type actor struct {
	given   *Given
	session *mcp.ClientSession
	fields  map[string]any // of the last answers
	said    []string
	heard   string // by the last call
	cost    float64
}

func (a *actor) act(ctx context.Context) error {
	server := exec.CommandContext(ctx, a.given.Command[0], a.given.Command[1:]...)
	for name, value := range a.given.Server {
		server.Env = append(server.Env, name+"="+value)
	}
	server.Stderr = os.Stderr
	session, err := mcp.NewClient(&mcp.Implementation{Name: a.given.Client, Version: "0"}, nil).
		Connect(ctx, &mcp.CommandTransport{Command: server}, nil)
	if err != nil {
		return fmt.Errorf("start the MCP server %q: %w", a.given.Command, err)
	}
	defer session.Close() //nolint:errcheck // the server may end as it likes
	a.session, a.fields = session, make(map[string]any)
	list, err := session.ListTools(ctx, nil)
	if err != nil {
		return err
	}
	for _, tool := range list.Tools {
		a.given.Listed = append(a.given.Listed, tool.Name)
	}
	for line := range strings.Lines(a.given.Prompt) {
		verb, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		if err := a.do(ctx, verb, strings.TrimSpace(rest)); err != nil {
			return err
		}
	}
	// All of them are running now.
	if leaks := secretInArguments(a.given.Env["LEASEHOLD_TOKEN"], a.given.Env["LEASEHOLD_SESSION"]); len(leaks) > 0 {
		return fmt.Errorf("%w: %v", errLeaked, leaks)
	}
	a.given.Answer = a.heard
	if len(a.said) > 0 {
		a.given.Answer = strings.Join(a.said, "\n")
	}
	return nil
}

func (a *actor) do(ctx context.Context, verb, rest string) (err error) {
	switch verb {
	case "call":
		tool, args, _ := strings.Cut(rest, " ")
		return a.call(ctx, tool, args)
	case "say":
		a.said = append(a.said, rest)
	case "cost":
		a.cost, err = strconv.ParseFloat(rest, 64)
	case "sleep":
		var secs float64
		if secs, err = strconv.ParseFloat(rest, 64); err == nil {
			time.Sleep(time.Duration(secs * float64(time.Second)))
		}
	case "sh":
		out, err := exec.CommandContext(ctx, "sh", "-c", rest).CombinedOutput()
		a.heard = strings.TrimSpace(string(out))
		if err != nil {
			a.heard += fmt.Sprintf("\n%v", err)
		}
	case "exit":
		code, err := strconv.Atoi(rest)
		if err != nil {
			return err
		}
		return errExit(code)
	}
	return err
}

// call calls a tool, if the client lets it. A refusal is an answer like others.
func (a *actor) call(ctx context.Context, tool, args string) error {
	if a.given.Allowed != nil && !slices.Contains(a.given.Allowed, tool) {
		a.heard = tool + " is not allowed"
		return nil
	}
	var given map[string]any
	if args != "" {
		if err := json.Unmarshal([]byte(args), &given); err != nil {
			return fmt.Errorf("call %s %s: %w", tool, args, err)
		}
	}
	for name, value := range given {
		if s, ok := value.(string); ok && strings.HasPrefix(s, "$") {
			given[name] = a.fields[s[1:]]
		}
	}
	res, err := a.session.CallTool(ctx, &mcp.CallToolParams{Name: tool, Arguments: given})
	if err != nil {
		return fmt.Errorf("call %s: %w", tool, err)
	}
	var texts []string
	for _, c := range res.Content {
		if text, ok := c.(*mcp.TextContent); ok {
			texts = append(texts, text.Text)
		}
	}
	a.heard = strings.Join(texts, "\n")
	if object, ok := res.StructuredContent.(map[string]any); ok {
		maps.Copy(a.fields, object)
	}
	return nil
}

func (g *Given) record() error {
	dir := g.Env[RecordDir]
	if dir == "" {
		return nil
	}
	text, err := json.Marshal(g)
	if err != nil {
		return err
	}
	name := fmt.Sprintf("%s-%d.json", g.Client, os.Getpid())
	return os.WriteFile(filepath.Join(dir, name), text, 0o600)
}

// Records are what stand-ins have written into dir.
func Records(dir string) (all []Given, err error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		var g Given
		if err := json.Unmarshal(text, &g); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		all = append(all, g)
	}
	return all, nil
}

// secretInArguments are the processes that have one of the secrets in their
// arguments, by pid and name. Only Linux tells.
func secretInArguments(secrets ...string) (found []string) {
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		for _, secret := range secrets {
			if secret != "" && bytes.Contains(text, []byte(secret)) {
				program, _, _ := strings.Cut(string(text), "\x00")
				found = append(found, filepath.Base(filepath.Dir(file))+" "+program)
			}
		}
	}
	return found
}

package doctor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	osexec "os/exec"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/leasehold/leasehold/cmd/leasehold/internal/connection"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/shim"
)

// startTimeout is how long a server may take to answer a probe.
const startTimeout = 10 * time.Second

// start starts a client's server as the client does, with the environment that
// the client gives it, and has it say what it would connect to, which must be the
// daemon at one of these places. It starts no daemon, and so is of no use where none runs.
// Of the servers that a repository may have brought, it starts only plain ones.
func (c clientConfig) start(ctx context.Context, at []string, brought bool, e entry, say sayFunc) (connects string) {
	command := e.command()
	args := e.arguments()
	if command == "" || !slices.Contains(args, "mcp") { // another server, or an unknown wrapper
		return ""
	}
	if _, err := osexec.LookPath(command); err != nil {
		return "" // reported as a separate fault
	}
	if brought && !e.isPlain() {
		say(note, "was not started, since it may have come with the repository, and is more than leasehold mcp: it names another program, variables or a server elsewhere", "read it before its client starts it")
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	cmd := osexec.CommandContext(ctx, command, append(args, "--probe")...)
	cmd.Env = c.environment(e)
	cmd.WaitDelay = time.Second
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	err := cmd.Run()
	why := strings.TrimSpace(said.String())
	why, hint, _ := strings.Cut(why, "\n")
	var exit *osexec.ExitError
	switch {
	case ctx.Err() != nil:
		say(fault, fmt.Sprintf("starts a server that does not answer within %v", startTimeout), "run it by hand: "+strings.Join(cmd.Args, " "))
	case strings.Contains(why, "--probe"):
		say(note, "starts another version of leasehold, which cannot be checked", "install this version where the client finds it")
	case errors.As(err, &exit):
		if hint = strings.TrimPrefix(hint, "hint: "); hint == "" || hint == connection.AskDoctor {
			hint = "run it by hand: " + strings.Join(cmd.Args, " ")
		}
		say(fault, "starts a server that cannot connect: "+strings.TrimPrefix(why, "leasehold: "), hint)
	case err != nil:
		say(fault, fmt.Sprintf("cannot start its server: %v", err), "run it by hand: "+strings.Join(cmd.Args, " "))
	default:
		var p shim.Probe
		if err := json.Unmarshal(out.Bytes(), &p); err != nil {
			say(fault, "starts something that is not leasehold", "leasehold setup writes a configuration that is")
			return ""
		}
		if !slices.Contains(at, p.Socket) {
			say(fault, fmt.Sprintf("reaches the daemon at %s, and this command the one at %s", p.Socket, strings.Join(at, " or ")),
				"give both the same LEASEHOLD_SOCKET, XDG_RUNTIME_DIR and XDG_STATE_HOME; in Codex, env_vars passes them on, and leasehold setup codex writes it")
			return ""
		}
		return p.String()
	}
	return ""
}

// environment returns the environment that a client gives to the server of an
// entry.
func (c clientConfig) environment(e entry) (env []string) {
	for _, v := range os.Environ() {
		name, _, _ := strings.Cut(v, "=")
		if c.passes == nil || c.passes(name, e) {
			env = append(env, v)
		}
	}
	for _, field := range []string{"env", "environment"} { // opencode uses the second name
		own, _ := e[field].(map[string]any)
		for name, value := range own {
			if text, ok := value.(string); ok {
				env = append(env, name+"="+reference.ReplaceAllStringFunc(text, expand))
			}
		}
	}
	return env
}

// reference matches a reference to another variable in the syntax of any
// client.
var reference = regexp.MustCompile(`\$\{[A-Za-z_]\w*\}|\$[A-Za-z_]\w*|\{env:\w+\}`)

// expand returns the value of a reference, or the reference itself if the
// variable is not set.
func expand(ref string) string {
	name := strings.Trim(strings.TrimPrefix(strings.TrimPrefix(ref, "$"), "{env:"), "{}")
	if value, ok := os.LookupEnv(name); ok {
		return value
	}
	return ref
}

// codexPasses reports whether Codex passes a variable to a server: it passes
// these and those in env_vars.
func codexPasses(name string, e entry) bool {
	named, _ := e["env_vars"].([]any)
	return slices.Contains(named, any(name)) || slices.Contains([]string{
		"HOME", "LOGNAME", "PATH", "SHELL", "USER", "__CF_USER_TEXT_ENCODING", "LANG", "LC_ALL", "TERM", "TMPDIR", "TZ",
	}, name)
}

// geminiPasses reports whether Gemini CLI passes a variable to a server: it
// keeps back names that look like secrets.
func geminiPasses(name string, _ entry) bool { return !secret.MatchString(name) }

var secret = regexp.MustCompile(`(?i)TOKEN|SECRET|PASSWORD|PASSWD|KEY|AUTH|CREDENTIAL|CREDS|PRIVATE|CERT`)

// arguments returns the arguments of the program that the client starts.
func (e entry) arguments() (args []string) {
	list, _ := e["args"].([]any)
	if command, ok := e["command"].([]any); ok && len(command) > 0 {
		list = command[1:]
	}
	for _, one := range list {
		text, _ := one.(string)
		args = append(args, strings.ReplaceAll(text, "${workspaceFolder}", ".")) // of an editor: the folder that it has open
	}
	return args
}

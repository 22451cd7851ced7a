// Package call is leasehold call: one tool call from a script.
package call

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/mark3labs/mcp-go/mcp"
	"github.com/spf13/cobra"

	"github.com/leasehold/leasehold/cmd/leasehold/internal/connection"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/exit"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/place"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/terminal"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/view"
	"github.com/leasehold/leasehold/dispatch/client"
	"github.com/leasehold/leasehold/dispatch/server"
	"github.com/leasehold/leasehold/dispatch/server/tools"
	"github.com/leasehold/leasehold/dispatch/spelling"
	"github.com/leasehold/leasehold/engine/traceparent"
)

func NewCommand() *cobra.Command {
	var run, name, field string
	var list bool
	var reply connection.Reply
	cmd := place.WithServer(&cobra.Command{
		Use:   "call TOOL [NAME=VALUE ...]",
		Short: "Call one tool, from a script",
		Long: `Call one tool, from a script, and print its answer as text: one line, and below it as
JSON whatever that line leaves out. A refusal goes to stderr, with exit code 1; with
--json the object of either goes to stdout.

VALUE is read as JSON if the argument takes JSON, otherwise as text. A list may be
written as words separated by commas. If the argument takes any JSON, a VALUE that
begins like an object, a list or a string must be JSON; NAME:=VALUE is always text.
@FILE is replaced by the contents of the file, @- by standard input; @@ begins a text
with @. Pass a lease_id in this way, because every process can read the arguments of a
command.

--field prints only one field of the answer, named by its JSON pointer: a string as it
is, anything else as JSON.

It acts as the actor whose token is in LEASEHOLD_TOKEN. Without one it joins the
run of this directory's project as a new worker of the root layer.

Each call is a separate session: a lease that it takes is released when the call ends,
and a task that it claims goes back to its queue with one attempt less. In a process that
leasehold launched, and in a program of leasehold exec, LEASEHOLD_SESSION lets the call
share a session, so both stay. If the daemon goes away before it has answered, a call
with a session or a token is sent again once the daemon is back, for up to 30 s.`,
		Example: `  leasehold call --list
  leasehold call kv_set path=/shared/plan value='{"step": 2}'
  leasehold call kv_set path=/shared/log value=@build.log
  leasehold call kv_get path=/shared/plan --json | jq .entry.value

  # in an agent that leasehold launched, or a script that leasehold exec runs
  lease=$(leasehold call run_lease_acquire key=deploy wait_secs=50 --field /lease_id)
  printf %s "$lease" | leasehold call run_lease_release lease_id=@-

  # only wait until nobody holds it
  leasehold call run_lease_acquire key=deploy wait_secs=50`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			out := cmd.OutOrStdout()
			switch {
			case list && len(args) > 0:
				return exit.Usagef("--list lists all tools: leave out %s", args[0])
			case list && (reply.JSON || field != ""):
				return exit.Hint(exit.Usagef("--list prints a table only: leave out --json and --field"), "the book's tool reference has the schemas; so does the answer to tools/list of leasehold mcp")
			case list:
				_, err := io.WriteString(out, listTools(terminal.PaintFor(out)))
				return err
			case reply.JSON && field != "":
				return exit.Usagef("--json and --field: choose one")
			case len(args) == 0:
				return exit.Hint(exit.Usagef("say which tool to call"), "leasehold call --list shows them")
			}
			hello, err := whoCalls(cmd, run, name)
			if err != nil {
				return err
			}
			answer, err := callTool(cmd, hello, args[0], args[1:], field == "")
			if err != nil {
				var refusal *client.Refusal
				if errors.As(err, &refusal) && !reply.JSON { // printed in the tool's words only
					fmt.Fprintln(cmd.ErrOrStderr(), shown(cmd.ErrOrStderr(), refusal.Text))
					if advice, ok := errors.AsType[exit.Hinted](err); ok {
						fmt.Fprintln(cmd.ErrOrStderr(), "hint: "+advice.Hint)
					}
					return exit.ErrReported
				}
				return reply.Refused(cmd, err)
			}
			text := answer.Text
			if field != "" {
				if text, err = fieldOf(answer.Object, field); err != nil {
					return err
				}
			}
			if err := reply.Print(cmd, answer.Object, shown(out, text)); err != nil {
				return err
			}
			if hello.Handle == "" {
				if note := gaveBack(args[0], answer.Object); note != "" {
					fmt.Fprintln(cmd.ErrOrStderr(), "leasehold: "+note)
				}
			}
			return nil
		},
	})
	f := cmd.Flags()
	view.JoinFlag(cmd, &run)
	f.StringVar(&name, "name", "call", "the `name` to join the run under without a token")
	reply.Flag(cmd, "print the answer or the refusal as JSON")
	f.StringVar(&field, "field", "", "print the field of the answer at this JSON `pointer`, as /lease_id or /tasks/0/token")
	f.BoolVar(&list, "list", false, "list the tools")
	cmd.ValidArgsFunction = completeCall
	return cmd
}

// shown makes the lines of a reply safe for a terminal.
func shown(out io.Writer, text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = terminal.Line(out, line)
	}
	return strings.Join(lines, "\n")
}

// whoCalls decides how to connect. If LEASEHOLD_SESSION names a session that
// has ended, the call fails, because continuing as another actor would be
// surprising.
func whoCalls(cmd *cobra.Command, run, name string) (server.Hello, error) {
	if handle := os.Getenv("LEASEHOLD_SESSION"); handle != "" {
		return server.Hello{Handle: handle}, place.OtherRun(cmd)
	}
	if token, err := place.ActorToken(cmd); token != "" || err != nil {
		return server.Hello{Token: token, Directory: connection.Here()}, cmp.Or(err, place.OtherRun(cmd))
	}
	run, err := place.JoinedRun(cmd, run, "")
	return server.Hello{Run: run, Name: name, Directory: connection.Here()}, err
}

// callTool calls a tool. The answer contains notices only if it will be shown whole.
func callTool(cmd *cobra.Command, hello server.Hello, name string, given []string, whole bool) (client.Answer, error) {
	pairs, err := splitArguments(given)
	if err != nil {
		return client.Answer{}, err
	}
	d, err := connection.For(cmd)
	if err != nil {
		return client.Answer{}, err
	}
	c, err := reconnect(cmd, d, hello, hello.Handle != "") // if a session was passed on, its daemon exists and may only be restarting
	if err != nil {
		return client.Answer{}, err
	}
	defer func() { c.Close() }()
	ctx := inTrace(cmd.Context())
	if !whole {
		ctx = client.WithoutNotices(ctx)
	}
	id := uuid.NewString()
	var args map[string]any // nil: the tool's arguments are not known yet
	for again := false; ; again = args != nil {
		var answer client.Answer
		if args == nil {
			var tool mcp.Tool
			if tool, err = findTool(cmd.Context(), c, name); err == nil {
				args, err = terminal.Interruptible(cmd.Context(), func() (map[string]any, error) {
					return readArguments(tool, pairs, cmd.InOrStdin())
				})
				if err != nil {
					return client.Answer{}, err
				}
			}
		}
		if args != nil {
			answer, err = c.CallAs(ctx, id, again, name, d.Arguments(name, args))
		}
		if !connection.BrokeOff(err) || !hello.Lasts() || cmd.Context().Err() != nil {
			return answer, connection.OtherVersion(c, connection.InWords(cmd.Context(), name, err))
		}
		c.Close()
		next, err := reconnect(cmd, d, hello, true)
		if err != nil && args != nil {
			err = connection.Unanswered(name, err)
		}
		if err != nil {
			return client.Answer{}, err
		}
		c = next
	}
}

// gaveBack says what the end of a call's own session has given back, since the answer of the
// tool reads as if the script had it.
func gaveBack(tool string, answer json.RawMessage) string {
	const because = " again, because the session of this call has ended; "
	var claim struct{ Tasks []struct{} }
	switch tool {
	case "lease_acquire", "run_lease_acquire", "lease_acquire_many":
		return "what was leased is free" + because + "leasehold exec holds leases while a program runs"
	case "task_claim":
		if json.Unmarshal(answer, &claim) == nil && len(claim.Tasks) > 0 {
			return "what was claimed is in its queue" + because + "the attempt counts; leasehold exec gives a worker a session that lasts"
		}
	}
	return ""
}

// inTrace returns a context that belongs to the span in which the script runs,
// as tools like otel-cli name it.
func inTrace(ctx context.Context) context.Context {
	return traceparent.With(ctx, traceparent.Join(os.Getenv("TRACEPARENT"), os.Getenv("TRACESTATE")))
}

// daemonPatience is how long a call waits for a daemon that has gone away. The
// shim waits as long.
const daemonPatience = 30 * time.Second

// reconnect connects. If wait is set, it waits for a daemon that is away.
func reconnect(cmd *cobra.Command, d *connection.Dialer, hello server.Hello, wait bool) (*client.Client, error) {
	giveUp := time.Now().Add(daemonPatience)
	for {
		c, err := d.Open(cmd.Context(), hello, true)
		if !wait || !connection.IsAway(err) || time.Now().After(giveUp) {
			return c, err
		}
		if err := connection.Pause(cmd.Context(), redial); err != nil {
			return nil, err
		}
	}
}

// redial is the interval between attempts to reach a daemon that has gone away.
const redial = 50 * time.Millisecond

func findTool(ctx context.Context, c *client.Client, name string) (mcp.Tool, error) {
	known, err := c.Tools(ctx)
	if err != nil {
		return mcp.Tool{}, err
	}
	if i := slices.IndexFunc(known, func(t mcp.Tool) bool { return t.Name == name }); i >= 0 {
		return known[i], nil
	}
	// If a tool is hidden from the caller's role, the daemon's refusal explains
	// why.
	for _, t := range slices.Concat(tools.Agents(), tools.Programs()) {
		if t.Name == name {
			hidden := t.Definition(true)
			return hidden, json.Unmarshal(hidden.RawInputSchema, &hidden.InputSchema)
		}
	}
	list := "leasehold call --list shows them"
	var names []string
	for _, t := range known {
		names = append(names, t.Name)
	}
	if near := spelling.Nearest(name, names); near != "" {
		list = "did you mean " + near + "? " + list
	}
	return mcp.Tool{}, exit.Hint(exit.Usagef("unknown tool %q", name), "%s", cmp.Or(connection.VersionAdvice(c.Version), list))
}

func listTools(p terminal.Paint) string {
	t := terminal.Table{Columns: []terminal.Column{{Head: "TOOL"}, {Head: "DOES"}, {Head: "ARGUMENTS"}}}
	for _, tool := range tools.Agents() {
		var args []string
		input := tool.Input()
		for _, name := range input.PropertyOrder {
			if !slices.Contains(input.Required, name) {
				name += "?"
			}
			args = append(args, name)
		}
		t.AddTexts(tool.Name, tool.Title, strings.Join(args, " "))
	}
	p.Width = 0 // for scripts, all text must be shown
	return t.Render(p)
}

// completeCall suggests tools, and then the arguments that have not been given.
func completeCall(_ *cobra.Command, args []string, word string) (words []string, then cobra.ShellCompDirective) {
	then = cobra.ShellCompDirectiveNoFileComp
	if len(args) > 0 {
		then |= cobra.ShellCompDirectiveNoSpace
	}
	for _, tool := range tools.Agents() {
		if len(args) == 0 {
			words = append(words, cobra.CompletionWithDesc(tool.Name, tool.Title))
			continue
		}
		if tool.Name != args[0] {
			continue
		}
		input := tool.Input()
		for _, name := range input.PropertyOrder {
			given := slices.ContainsFunc(args[1:], func(a string) bool { return strings.HasPrefix(a, name+"=") })
			if !given && !strings.Contains(word, "=") {
				words = append(words, cobra.CompletionWithDesc(name+"=", input.Properties[name].Description))
			}
		}
	}
	return words, then
}

// Package hook implements leasehold hook, which the hooks of MCP clients run. It reads
// what a client is about to do and leases the files that this will change. If another
// agent holds one of them, it refuses in the client's format.
//
// Each client has a file in this package. It translates the client's input into an
// [event], and a [verdict] into the client's output. The rest is the same for all
// clients.
//
// # Which session holds the lease
//
// A hook is a short-lived process. The lease belongs to the session of its client. The
// daemon finds that session by the client's process: the shim that the client started
// has the same parent. A client without a session is a guest of the run: the daemon
// keeps a session open for it as long as its process lives. An agent that leasehold
// launched connects as its actor.
package hook

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/leasehold/leasehold/cmd/leasehold/internal/connection"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/exit"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/place"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/terminal"
	mcp "github.com/leasehold/leasehold/dispatch/client"
	"github.com/leasehold/leasehold/dispatch/process"
	"github.com/leasehold/leasehold/dispatch/project"
	"github.com/leasehold/leasehold/dispatch/server"
	"github.com/leasehold/leasehold/dispatch/server/wire"
)

// maxInput limits the input. The input of a write contains the file's content.
const maxInput = 64 << 20

// patience is how long a hook waits for a daemon that does not answer. The clients wait
// longer for the hook.
const patience = 5 * time.Second

var errLate = fmt.Errorf("the daemon did not answer within %v", patience)

func NewCommand() *cobra.Command {
	var names []string
	for _, c := range clients {
		names = append(names, c.name)
	}
	names = append(names, "git")
	return place.WithServer(&cobra.Command{
		Use:   "hook CLIENT",
		Short: "Guard the files that an MCP client writes, from its hooks",
		Long: `Guard the files that an MCP client writes. The client's hooks run this command;
leasehold setup writes them. It reads the client's JSON on stdin.

Before a write it takes the lease of each file for the agent that writes, or
refuses the write and says who holds the lease, until when, and what to do next.
The lease ends with the agent's session, or when the agent has been quiet for
five minutes. Sub-agents are told apart where the client says which of them
writes. A shell command cannot be checked before it runs: files of others that
have changed after it are reported to both sides, and recorded.

It also gives the model what it has not been told yet, before its next tool call or
when it is about to stop: leases it lost, messages of other agents, who waits for
what it holds, and that its actor was ended. When a client has compacted, cleared or
resumed a conversation, its model is told which leases and claims it still holds, if the
client can say so.

The file .leasehold.toml at the root of the project has the settings:

  [guard]
  policy = "refuse"         # or "report": never refuse, but record and say so
  paths = ["**"]            # what is guarded; "!docs/**" is not
  hold_secs = 300           # how long an agent may be quiet
  without_daemon = "allow"  # or "refuse": while no daemon answers

With LEASEHOLD_GUARD=report in the environment a client is never refused. What it
writes in spite of a lease is recorded. With --server, or where LEASEHOLD_SERVER is set
as it is for the client's leasehold mcp, the leases are those of a server elsewhere.

CLIENT is claude, codex, gemini, opencode, copilot, qwen, kimi or crush; or git, whose
hooks leasehold guard installs.`,
		Example:   `  echo '{"hook_event_name":"PreToolUse","tool_name":"Write","tool_input":{"file_path":"src/app.ts"}}' | leasehold hook claude`,
		Args:      cobra.ExactArgs(1),
		ValidArgs: names,
		RunE: func(cmd *cobra.Command, args []string) error {
			if args[0] == "git" {
				return runGit(cmd)
			}
			i := slices.IndexFunc(clients, func(c client) bool { return c.name == args[0] })
			if i < 0 {
				return exit.Usagef("no client is called %q; the hooks are for %s", args[0], strings.Join(names, ", "))
			}
			return run(cmd, clients[i])
		},
	})
}

func run(cmd *cobra.Command, c client) error {
	stdin, err := terminal.Interruptible(cmd.Context(), func() ([]byte, error) {
		return io.ReadAll(io.LimitReader(cmd.InOrStdin(), maxInput))
	})
	if err != nil {
		return err
	}
	e, err := c.read(stdin)
	if err != nil {
		return err
	}
	if !filepath.IsAbs(e.dir) {
		if e.dir, err = filepath.Abs(e.dir); err != nil {
			return err
		}
	}
	e.home = e.dir
	if home := os.Getenv(c.home); filepath.IsAbs(home) { // its agent may have gone to another directory since
		e.home = home
	}
	ctx, cancel := context.WithTimeoutCause(cmd.Context(), patience, errLate)
	defer cancel()
	cmd.SetContext(ctx)
	g := guard{cmd: cmd, client: c, event: e, pid: c.process()}
	defer g.close()
	if e.kind == partyEnd { // with news the sub-agent continues, and ends later
		if news, _ := g.news(ctx); news != "" {
			return c.answer(cmd.OutOrStdout(), e, verdict{note: news})
		}
	}
	v, err := g.judge(ctx)
	if err != nil {
		return err
	}
	if e.shell && v.refuse == "" {
		if v.note, err = g.watch(ctx, v.note); err != nil {
			return err
		}
	}
	if e.kind == partyEnd {
		return nil
	}
	news, known := g.news(ctx)
	if e.resumed && slices.Contains(c.tells, e.kind) {
		ended := "may not be yours; look with lease_list, and acquire again what you still need"
		if known {
			ended = "are not yours, except those named here; acquire again what you still need"
		}
		news = strings.TrimSpace(resumed + ended + "\n" + news)
	}
	if news != "" && v.refuse != "" {
		v.refuse += "\n" + news
	} else if news != "" {
		v.note = strings.TrimPrefix(v.note+"\n"+news, "\n")
	}
	if e.kind == stop && e.main && v.note == "" {
		if _, err := g.tell(ctx, "hook_present", map[string]any{"party": e.party, "main": true, "rests": "own"}); err != nil {
			return err
		}
	}
	return c.answer(cmd.OutOrStdout(), e, v)
}

// resumed tells a model that continues an earlier conversation not to rely on what it
// reads there.
const resumed = "Leasehold: this conversation was resumed. Leases and claims from before "

// A guard judges one event.
type guard struct {
	cmd    *cobra.Command
	client client
	event  event
	pid    int

	daemon *mcp.Client // nil until connected
	mark   string      // of the client's process, for a daemon that does not know its pid
}

func (g *guard) close() {
	if g.daemon != nil {
		g.daemon.Close()
	}
}

func (g *guard) judge(ctx context.Context) (verdict, error) {
	e := g.event
	switch {
	case e.kind == before && len(e.files) > 0:
		return g.write(ctx)
	case e.kind == before && e.ours && e.party != "" && e.use != "":
		return g.tell(ctx, "hook_tool_use", map[string]any{"party": e.party, "tool_use_id": e.use})
	case e.kind == before && e.delegates:
		return g.tell(ctx, "hook_present", map[string]any{"party": e.party, "main": e.main, "let_go": "own"})
	case e.kind == before, e.kind == after:
		return g.tell(ctx, "hook_present", map[string]any{"party": e.party, "main": e.main})
	case e.kind == begin && e.main && !e.compacted:
		return g.tell(ctx, "hook_present", map[string]any{"party": e.party, "main": true, "rests": "others"})
	case e.kind == partyEnd && e.party != "":
		return g.tell(ctx, "hook_party_end", map[string]any{"party": e.party})
	case e.kind == sessionEnd && e.main: // Codex ends a conversation a minute after its user has begun the next
		return g.tell(ctx, "hook_present", map[string]any{"party": e.party, "main": true, "let_go": "own"})
	case e.kind == sessionEnd:
		return g.tell(ctx, "hook_present", map[string]any{"let_go": "all"})
	}
	return verdict{}, nil
}

// watch compares the files that others have leased before a shell command and after it.
func (g *guard) watch(ctx context.Context, note string) (string, error) {
	if g.daemon == nil {
		return note, nil // no daemon, so there are no leases
	}
	switch g.event.kind {
	case before:
		return note, g.commandBegins(ctx)
	case after:
		changed, err := g.commandEnded(ctx)
		return strings.TrimSpace(note + "\n" + changed), err
	}
	return note, nil
}

// tell calls a tool of the daemon, if one runs. Without a daemon, or if the client is not
// known, it does nothing.
func (g *guard) tell(ctx context.Context, tool string, args map[string]any) (verdict, error) {
	if g.pid == 0 || g.connect(false) != nil {
		return verdict{}, nil
	}
	_, err := g.call(ctx, tool, args)
	return verdict{}, err
}

// news returns what the agent has not been told yet: leases that it lost, messages, and
// who waits for its leases. The daemon then counts this as told, so news asks only at
// events whose note reaches the model. Where a conversation begins, or goes on without
// most of what was said, news also says what the agent holds. At a call of a leasehold tool it does not ask,
// because the answer of that tool contains the news. known reports whether the daemon has answered.
func (g *guard) news(ctx context.Context) (text string, known bool) {
	if g.event.ours || g.event.unheard || !slices.Contains(g.client.tells, g.event.kind) {
		return "", false
	}
	if g.connect(false) != nil {
		return "", false // without a daemon there is no news
	}
	args := map[string]any{"party": g.event.party, "main": g.event.main}
	if g.event.kind == begin || g.event.resumed || g.event.compacted {
		args["holds"] = true
	}
	answer, err := g.call(ctx, "hook_notices", args)
	if err != nil {
		return "", false // the next answer contains it
	}
	news, err := connection.Decode[struct{ Text string }](answer.Object)
	return news.Text, err == nil
}

// connect opens a session with the daemon, unless there is one, with the credentials of
// reach. An operator speaks for the client's process.
func (g *guard) connect(start bool) (err error) {
	if g.daemon != nil {
		return nil
	}
	d, hello, err := reach(g.cmd)
	if err != nil {
		return err
	}
	hello.Directory = g.event.dir
	g.daemon, err = d.Open(g.cmd.Context(), hello, start)
	if d.Apart() {
		g.mark = process.Mark(g.pid)
	}
	return err
}

// reach finds the daemon and the hook's credentials. LEASEHOLD_SESSION is used if it is
// set, unless exec has set it: exec's program may start several clients, and each of them
// is a party of its own. For a server elsewhere reach uses the token that the client's shim uses, too. In
// all other cases the hook is the operator.
func reach(cmd *cobra.Command) (d *connection.Dialer, hello server.Hello, err error) {
	if d, err = connection.For(cmd); err != nil {
		return nil, hello, err
	}
	hello = server.Hello{Operator: true}
	launched := os.Getenv(process.ActorMark) != "" || os.Getenv(connection.ExecMark) == ""
	if handle := os.Getenv("LEASEHOLD_SESSION"); handle != "" && launched {
		return d, server.Hello{Handle: handle}, nil
	}
	if d.Elsewhere() {
		token, err := place.ActorToken(cmd)
		if err != nil {
			return nil, hello, err
		}
		hello = server.Hello{Token: token, Operator: token == ""}
	}
	return d, hello, nil
}

func (g *guard) call(ctx context.Context, tool string, args map[string]any) (mcp.Answer, error) {
	switch {
	case g.mark != "":
		args["mark"] = g.mark
	case g.pid != 0:
		args["pid"] = g.pid
	}
	answer, err := g.daemon.Call(ctx, tool, args)
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx) // which says it in the user's words
	}
	return answer, err
}

// write takes the leases for a write, or refuses it.
func (g *guard) write(ctx context.Context) (verdict, error) {
	home, err := project.Of(existing(g.event.home)) // an agent may have removed its directory, and write elsewhere
	if err != nil {
		return withoutDaemon(project.Guard{}, g.event.files, err), nil
	}
	settings, err := home.Settings()
	if err != nil {
		return withoutDaemon(project.Guard{}, g.event.files, err), nil
	}
	list, unknown, why := targets(home, g.event.dir, g.event.files)
	var v verdict
	if why != nil {
		v = withoutDaemon(settings.Guard, unknown, why)
	}
	if v.refuse != "" || len(list) == 0 {
		return v, nil
	}
	taken, err := g.take(ctx, settings, list)
	taken.note = strings.TrimSpace(v.note + "\n" + taken.note)
	return taken, err
}

// take takes the leases of the files.
func (g *guard) take(ctx context.Context, settings project.Settings, list []target) (verdict, error) {
	if err := g.connect(true); err != nil {
		return withoutDaemon(settings.Guard, g.event.files, err), nil
	}
	if g.mark != "" { // a server elsewhere knows the client in its own run only
		if list = slices.DeleteFunc(list, func(t target) bool { return !t.Home }); len(list) == 0 {
			return verdict{}, nil
		}
	}
	args := map[string]any{
		"writes": list, "party": g.event.party, "main": g.event.main, "hold_secs": settings.Guard.Hold().Seconds(),
		"overrule": reports(settings.Guard),
		"name":     guestName(g.client, g.event.dir), "directory": wire.Informative(g.event.dir),
	}
	answer, err := g.insist(ctx, args)
	refusal, refused := errors.AsType[*mcp.Refusal](err)
	switch {
	case refused && refusal.Code != "UNAVAILABLE" && refusal.Code != "NOT_FOUND": // NOT_FOUND: there is no session to hold the leases
		return verdict{refuse: refusalText(list, refusal)}, nil
	case err != nil:
		return withoutDaemon(settings.Guard, g.event.files, err), nil
	}
	taken, err := connection.Decode[struct{ Overruled []string }](answer.Object)
	if err != nil || len(taken.Overruled) == 0 {
		return verdict{}, err
	}
	return verdict{note: "leasehold does not refuse this write, as it is set to report only: " + listed(taken.Overruled, "; ")}, nil
}

// insist repeats the call while the daemon refuses it for the present: after a restart of the
// daemon, the session that holds the leases may not be back yet. A daemon that ended
// before it answered is asked again once it is back, because it keeps the leases of
// others.
func (g *guard) insist(ctx context.Context, args map[string]any) (answer mcp.Answer, err error) {
	var last error // with which the daemon refused it before
	for {
		answer, err = g.call(ctx, "hook_write", args)
		refusal, refused := errors.AsType[*mcp.Refusal](err)
		switch {
		case last != nil && errors.Is(err, errLate):
			return answer, last
		case connection.BrokeOff(err):
			g.daemon.Close()
			g.daemon = nil
			if err := g.connect(true); err != nil {
				return answer, err
			}
		case !refused || !refusal.Passing():
			return answer, err
		default:
			last = err
		}
		if connection.Pause(ctx, connection.RetryAfter(0)) != nil {
			return answer, err
		}
	}
}

// refusalText says who holds the lease, which files were not changed, and what to do
// next.
func refusalText(list []target, refusal *mcp.Refusal) string {
	if refusal.Code != "LEASE_HELD" {
		return "leasehold refused the write: " + refusal.Message
	}
	held, _ := connection.Decode[struct{ Key, Asked string }](refusal.Object)
	key := cmp.Or(held.Asked, held.Key) // Asked is that of the file, if somebody holds a directory above it
	name, ask := key, "do something else, and try again then"
	for _, t := range list {
		i := slices.Index(t.Keys, key)
		if i < 0 {
			continue
		}
		name = t.names[i]
		if t.Home {
			ask = fmt.Sprintf("do something else first, or call run_lease_acquire with key %q and wait_secs 50 to wait in line; then read the file again and repeat the change", key)
		}
	}
	what := name + " is not changed"
	if names := allNames(list); len(names) > 1 {
		what = "none of " + listed(names, ", ") + " is changed"
	}
	return fmt.Sprintf("%s; %s: %s", refusal.Message, what, ask)
}

// maxListed is how many files a text for a model names. A patch may have hundreds.
const maxListed = 10

func listed(names []string, separator string) string {
	if more := len(names) - maxListed; more > 1 {
		names = append(slices.Clone(names[:maxListed]), fmt.Sprintf("%d more", more))
	}
	return strings.Join(names, separator)
}

func allNames(list []target) (names []string) {
	for _, t := range list {
		for _, name := range t.names {
			if !slices.Contains(names, name) { // a file may be of two projects
				names = append(names, name)
			}
		}
	}
	return names
}

// reports tells whether the guard never refuses a write, and only reports it.
func reports(settings project.Guard) bool {
	return settings.Policy == project.Report || os.Getenv("LEASEHOLD_GUARD") == project.Report
}

// withoutDaemon is the verdict while no daemon answers.
func withoutDaemon(settings project.Guard, files []string, why error) verdict {
	names := listed(files, ", ")
	if settings.WithoutDaemon == project.Refuse && !reports(settings) {
		return verdict{refuse: fmt.Sprintf("leasehold cannot tell who may change %s: %v; %s is set to refuse then. Ask your user to run leasehold doctor, which says what to do", names, why, project.File)}
	}
	return verdict{note: fmt.Sprintf("leasehold did not check whether somebody else is changing %s, and lets it happen: %v", names, why)}
}

// guestName returns the name of a client without a session.
func guestName(c client, dir string) string {
	base := project.Word(filepath.Base(dir))
	return strings.TrimRight((c.guest + "-" + base)[:min(len(c.guest)+1+len(base), 64)], "-.")
}

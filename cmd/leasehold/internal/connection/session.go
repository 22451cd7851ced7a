// Package connection connects commands to the daemon: it finds the daemon, starts
// one on demand, opens a session and explains errors.
package connection

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/leasehold/leasehold/cmd/leasehold/internal/build"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/exit"
	"github.com/leasehold/leasehold/dispatch/client"
	"github.com/leasehold/leasehold/dispatch/server"
	"github.com/leasehold/leasehold/dispatch/server/tools"
)

// Open opens a session with the daemon that a command means. If none runs and
// start is set, it starts one.
func Open(cmd *cobra.Command, hello server.Hello, start bool) (*client.Client, error) {
	d, err := For(cmd)
	if err != nil {
		return nil, err
	}
	return d.Open(cmd.Context(), hello, start)
}

// moveTimeout is how long a session is asked for again while [mayOpenSoon] says so. A
// server that then leads its run lets it wait. Hooks take most connections, each for some
// milliseconds.
const moveTimeout = 2 * time.Second

// Open opens a session.
func (d *Dialer) Open(ctx context.Context, hello server.Hello, start bool) (*client.Client, error) {
	return d.OpenOver(ctx, hello, start, func(nc net.Conn) net.Conn { return nc })
}

// OpenOver opens a session over what tap returns for the connection of each attempt.
func (d *Dialer) OpenOver(ctx context.Context, hello server.Hello, start bool, tap func(net.Conn) net.Conn) (*client.Client, error) {
	var giveUp time.Time
	for failures := 0; ; failures++ {
		c, again, err := d.open(ctx, hello, start, tap)
		if !again {
			return c, err
		}
		if giveUp.IsZero() {
			giveUp = time.Now().Add(moveTimeout)
		}
		switch late := time.Now().After(giveUp); {
		case late && atLimit(err):
			return nil, err
		case late:
			return nil, exit.Hint(fmt.Errorf("the daemon at %s ended the connection before it answered: %w", d.Socket, err), "%s", AskDoctor)
		}
		if err := Pause(ctx, RetryAfter(failures)); err != nil {
			return nil, err
		}
	}
}

// mayOpenSoon reports whether a session that was not opened may be opened soon: its
// connection ended, as when its run moves to another server, or a server has as many
// connections as it may have.
func mayOpenSoon(err error) bool { return BrokeOff(err) || atLimit(err) }

// atLimit reports whether a server refused a session because there are too many of
// something, such as connections of one actor.
func atLimit(err error) bool {
	refused, ok := errors.AsType[*server.HelloError](err)
	return ok && refused.Code == "LIMIT"
}

// open makes one attempt, and reports whether another one may succeed soon.
func (d *Dialer) open(ctx context.Context, hello server.Hello, start bool, tap func(net.Conn) net.Conn) (c *client.Client, again bool, err error) {
	nc, err := d.Reach(ctx, start)
	if err != nil {
		return nil, false, serverHint(err)
	}
	ctx, cancel := d.UntilSilent(ctx)
	defer cancel()
	c, err = Handshake(ctx, tap(nc), d.Current(hello), "leasehold")
	return c, mayOpenSoon(err), whoWasRefused(err, hello)
}

// UntilSilent returns ctx with the time limit for opening a session.
func (d *Dialer) UntilSilent(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, HelloTimeout, exit.Hint(fmt.Errorf("the daemon at %s does not answer", d.Socket), "%s", AskDoctor))
}

// Handshake opens a session over nc. If ctx ends first, the error is its cause.
func Handshake(ctx context.Context, nc net.Conn, hello server.Hello, name string) (*client.Client, error) {
	return client.Connect(ctx, nc, hello, name, build.Version())
}

// whoWasRefused adds to a refusal where the refused credentials came from.
func whoWasRefused(err error, hello server.Hello) error {
	var refused *server.HelloError
	switch {
	case !errors.As(err, &refused) || refused.Code != "UNAUTHENTICATED":
		return err
	case hello.Handle != "" && hello.Handle == os.Getenv("LEASEHOLD_SESSION"): // exec comes back to its own session
		return exit.Hint(err, "LEASEHOLD_SESSION names a session that has ended: unset it, and the call opens its own")
	case hello.Token != "":
		return exit.Hint(err, "the token comes from LEASEHOLD_TOKEN or LEASEHOLD_TOKEN_FILE; leasehold actor token issues another for a living actor, and leasehold actor add makes a new actor")
	default:
		return err
	}
}

// Operator opens a session for the user of the daemon. A command that changes
// something sets start; one that only reads does not.
func Operator(cmd *cobra.Command, start bool) (*client.Client, error) {
	return Open(cmd, server.Hello{Operator: true}, start)
}

// Call calls a tool. If the connection ends, the error explains that. Runs are
// returned completely, however many pages they take. The answer has no notices,
// because the commands show only what they asked for.
func Call(ctx context.Context, c *client.Client, tool string, args any) (client.Answer, error) {
	ctx = client.WithoutNotices(ctx)
	answer, err := c.Call(ctx, tool, args)
	if err == nil && tool == toolOfRuns {
		answer, err = theRest(ctx, c, args, answer)
	}
	if named, ok := args.(map[string]any); ok && IsCode(err, "NOT_FOUND") && strings.HasPrefix(tool, "operator_") {
		if advice := meant(ctx, c, named); advice != "" {
			return answer, exit.Hint(err, "%s", advice)
		}
	}
	return answer, OtherVersion(c, InWords(ctx, tool, err))
}

// BrokeOff reports whether a call has no answer because its connection ended.
func BrokeOff(err error) bool {
	for _, end := range []error{net.ErrClosed, syscall.EPIPE, syscall.ECONNRESET, io.EOF} {
		if errors.Is(err, end) {
			return true
		}
	}
	return false
}

// IsAway reports whether a daemon or server cannot be reached now, as while it restarts.
func IsAway(err error) bool {
	return errors.Is(err, ErrNoDaemon) || errors.Is(err, ErrNoServer) || BrokeOff(err)
}

// Unanswered adds to the error of a call that was sent and got no answer that the call
// may have taken effect.
func Unanswered(tool string, err error) error {
	if refused, ok := errors.AsType[*server.HelloError](err); ok { // it may be printed as JSON
		refused.Message += tools.Unanswered(tool)
		return err
	}
	return fmt.Errorf("%w%s", err, tools.Unanswered(tool))
}

// InWords adds to the error of a call what to do about it.
func InWords(ctx context.Context, tool string, err error) error {
	switch {
	case ctx.Err() != nil:
	case BrokeOff(err):
		next := "once it can be reached again, see what came of it with leasehold leases, leasehold kv and leasehold queue"
		if tools.Unanswered(tool) == "" {
			next = "the call changed nothing: try again; leasehold status shows whether a daemon runs"
		}
		return exit.Hint(Unanswered(tool, brokenOff{tool, err}), "%s", next)
	case IsCode(err, "NOT_FOUND") && strings.HasPrefix(tool, "operator_token_"):
		return exit.Hint(err, "leasehold token list shows the tokens")
	case IsCode(err, "NOT_FOUND") && strings.HasPrefix(tool, "operator_"):
		return exit.Hint(err, "leasehold tree --all shows the runs and the paths of their actors")
	}
	return err
}

// A brokenOff is the error of a call for which [BrokeOff] is true, in words.
type brokenOff struct {
	tool string
	error
}

func (b brokenOff) Error() string {
	return "the connection ended before the daemon answered " + b.tool
}

func (b brokenOff) Unwrap() error { return b.error }

// Here returns the directory of this process, in which its session works, or ""
// if the directory no longer exists.
func Here() string {
	dir, _ := os.Getwd()
	return dir
}

func IsCode(err error, code string) bool {
	var refusal *client.Refusal
	return errors.As(err, &refusal) && refusal.Code == code
}

// AsOperator makes one call as the operator.
func AsOperator(cmd *cobra.Command, start bool, tool string, args map[string]any) (client.Answer, error) {
	c, err := Operator(cmd, start)
	if err != nil {
		return client.Answer{}, err
	}
	defer c.Close()
	return Call(cmd.Context(), c, tool, args)
}

// Decode decodes an answer. It ignores unknown fields, because the daemon may
// be newer.
func Decode[T any](object json.RawMessage) (v T, err error) {
	if err := json.Unmarshal(object, &v); err != nil {
		return v, fmt.Errorf("the daemon's answer cannot be read: %w", err)
	}
	return v, nil
}

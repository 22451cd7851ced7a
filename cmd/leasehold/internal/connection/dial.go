package connection

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/leasehold/leasehold/cmd/leasehold/internal/exit"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/place"
	"github.com/leasehold/leasehold/dispatch/process"
	"github.com/leasehold/leasehold/dispatch/server"
)

// HelloTimeout is how long the exchange that opens a connection may take.
const HelloTimeout = 10 * time.Second

// RetryAfter returns how long to wait before the next attempt to connect: longer after each
// failure.
func RetryAfter(failures int) time.Duration {
	return min(20*time.Millisecond<<min(failures, 10), time.Second)
}

// Pause waits. If ctx ends first, it returns the cause of that.
func Pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Final reports whether a server has refused a connection for good. With UNAVAILABLE and
// LIMIT it refuses one for the present.
func Final(err error) bool {
	refused, ok := errors.AsType[*server.HelloError](err)
	return ok && refused.Code != "UNAVAILABLE" && refused.Code != "LIMIT"
}

// ErrNoDaemon says that no daemon listens.
var ErrNoDaemon = errors.New("no daemon")

var errSocketGone = errors.New("its socket is gone")

// NoneRuns reports whether an attempt failed because no daemon runs, so that nobody has a
// lease. A daemon whose socket is gone does not listen, but runs.
func NoneRuns(err error) bool {
	return errors.Is(err, ErrNoDaemon) && !errors.Is(err, errSocketGone)
}

// A Dialer connects to the daemon for a command. A daemon belongs to a state,
// so the record in the state decides, and the socket is only a way to find the
// state: see find. A Dialer makes one attempt at a time.
type Dialer struct {
	target place.Target

	// Socket is where the daemon listened at the last connection; before that,
	// where it is expected. For a server elsewhere it is the URL.
	Socket string

	pid int // of the daemon of the last connection; 0 if it is not known

	// byHand says that a person or a supervisor started that daemon. They chose
	// its options and will start it again; a daemon started on demand would
	// take its place.
	byHand bool

	at    int         // which of the servers elsewhere to try first
	apart atomic.Bool // the daemon of the last connection runs in another container

	helloTimeout time.Duration // of the last of them; HelloTimeout but in tests
}

// NewDialer returns a dialer for a daemon.
func NewDialer(target place.Target) *Dialer {
	d := &Dialer{target: target, Socket: target.Socket, helloTimeout: HelloTimeout}
	if target.Servers != nil {
		d.Socket = target.Servers.URLs[0].String()
	}
	return d
}

// For returns the dialer for the daemon of a command.
func For(cmd *cobra.Command) (*Dialer, error) {
	target, err := place.TargetOf(cmd)
	if err != nil {
		return nil, err
	}
	if err := server.CheckSocketPath(target.Socket); err != nil {
		return nil, exit.Usage(exit.Hint(err, "a shorter path for it can be in --socket, in LEASEHOLD_SOCKET, or below a shorter XDG_RUNTIME_DIR"))
	}
	return NewDialer(target), nil
}

// Elsewhere reports whether the daemon is a server on another machine.
func (d *Dialer) Elsewhere() bool { return d.target.Servers != nil }

// Apart reports whether the daemon knows this process by another pid, and may see other
// files: it is a server elsewhere, or runs in another container than this process. Of the
// latter it is not known before the first connection.
func (d *Dialer) Apart() bool { return d.Elsewhere() || d.apart.Load() }

// Current returns hello with the token of the last connection. A server elsewhere refuses
// a hello with another.
func (d *Dialer) Current(hello server.Hello) server.Hello {
	if d.target.Servers != nil && hello.Token != "" {
		hello.Token = d.target.Servers.Token
	}
	return hello
}

// Servers are the URLs of the servers elsewhere.
func (d *Dialer) Servers() (urls []string) {
	if d.target.Servers != nil {
		for _, u := range d.target.Servers.URLs {
			urls = append(urls, u.String())
		}
	}
	return urls
}

// Address is where the agents of a dispatched run reach the daemon: its socket, or its
// servers elsewhere.
func (d *Dialer) Address() string {
	if d.Elsewhere() {
		return strings.Join(d.Servers(), ",")
	}
	return d.Socket
}

// Environ returns variables that lead other commands to the daemon and the run that the
// flags of a connected command name.
func (d *Dialer) Environ(cmd *cobra.Command) (env []string) {
	f := cmd.Flags()
	switch {
	case f.Changed("server"):
		env = append(env, "LEASEHOLD_SERVER="+d.Address())
	case f.Changed("socket"):
		env = append(env, "LEASEHOLD_SOCKET="+d.Address(), "LEASEHOLD_SERVER=")
	}
	if run := f.Lookup("run"); run.Changed {
		env = append(env, "LEASEHOLD_RUN="+run.Value.String())
	}
	return env
}

// Avoid lets the next attempt begin with another of the servers elsewhere than that of the
// last connection.
func (d *Dialer) Avoid() { d.at++ }

// Reach connects to the daemon. If none runs and start is set, it starts one.
func (d *Dialer) Reach(ctx context.Context, start bool) (net.Conn, error) {
	if d.target.Servers != nil {
		return d.reachServer(ctx)
	}
	nc, err := d.find(ctx)
	if errors.Is(err, ErrNoDaemon) {
		d.learn()
	}
	if errors.Is(err, ErrNoDaemon) && start && !d.byHand {
		d.target = d.target.Apart()
		if refusal := d.mayStart(); refusal != nil {
			return nil, refusal
		}
		nc, err = d.start(ctx)
	}
	if err != nil {
		return nil, withDoctor(ctx, err)
	}
	pid, err := server.PeerPID(nc)
	d.apart.Store(err == nil && !process.Sees(pid))
	if err != nil || pid != d.pid {
		d.pid, d.byHand = pid, false
	}
	d.learn()
	return nc, nil
}

// learn looks up who started the daemon of the last connection. It is called again when
// that is gone, because a daemon listens a moment before it has written it. What was
// learned stays, because the state may have been removed since.
func (d *Dialer) learn() {
	owner, ok := place.OwnerOf(d.Socket)
	d.byHand = d.byHand || ok && d.pid != 0 && owner.PID == d.pid && !owner.OnDemand
}

// AskDoctor is the hint of an error of which nothing better is known.
const AskDoctor = "leasehold doctor looks for the cause"

// withDoctor adds a hint to an error that has none, unless the user has interrupted.
func withDoctor(ctx context.Context, err error) error {
	_, hinted := errors.AsType[exit.Hinted](err)
	switch {
	case hinted || ctx.Err() != nil:
		return err
	case errors.Is(err, fs.ErrPermission):
		return exit.Hint(err, "that place is another user's, or protected: name one of yours with --socket, LEASEHOLD_SOCKET, XDG_RUNTIME_DIR, XDG_STATE_HOME or HOME; if it should be yours, leasehold doctor says what to change")
	case errors.As(err, new(*net.OpError)) && errors.Is(err, syscall.ENOTDIR):
		return exit.Hint(err, "a part of that path is a file: the path comes from --socket, LEASEHOLD_SOCKET, XDG_RUNTIME_DIR, XDG_STATE_HOME or HOME")
	}
	return exit.Hint(err, "%s", cmp.Or(exit.SystemHint(err), AskDoctor))
}

// find connects to the running daemon. A socket that the user named comes
// first, and then the daemon of the state that it belongs to, wherever that
// listens. Without a named socket the user's own state comes first, so that
// clients with different environments reach the same daemon.
func (d *Dialer) find(ctx context.Context) (net.Conn, error) {
	state := d.State()
	recorded, known := place.ReadRecord(state)
	alive := known && recorded.Alive()
	if owner, ok := place.OwnerOf(recorded.Socket); !alive { // or it runs outside of this container
		known = known && ok && owner.PID == recorded.PID && place.SameState(owner.State, state)
	}
	ways := []func() (net.Conn, error){
		func() (net.Conn, error) { return d.dial(ctx, d.target.Socket, 0) },
		func() (net.Conn, error) {
			if !known {
				return nil, fs.ErrNotExist
			}
			return d.dial(ctx, recorded.Socket, recorded.PID)
		},
	}
	if !d.target.Named {
		ways[0], ways[1] = ways[1], ways[0]
	}
	for _, way := range ways {
		nc, err := way()
		if err == nil || !absent(err) {
			return nc, err
		}
	}
	if alive {
		return nil, exit.Hint(fmt.Errorf("%w listens at %s: the one of this state, process %d, runs, but %w", ErrNoDaemon, recorded.Socket, recorded.PID, errSocketGone),
			"it listens again as soon as it can make %s, as after the next log-in; leasehold stop ends it", recorded.Socket)
	}
	return nil, exit.Hint(fmt.Errorf("%w listens at %s", ErrNoDaemon, d.target.Socket),
		"start one with leasehold serve, or name its socket with --socket or LEASEHOLD_SOCKET")
}

// State returns the state of the command: the one to which the socket belongs,
// or otherwise the user's own.
func (d *Dialer) State() string {
	if owner, ok := place.OwnerOf(d.target.Socket); ok && (d.target.Named || place.SameState(owner.State, d.target.State)) {
		return owner.State
	}
	return d.target.State
}

// dial connects to a socket on which the process with that pid listens, or one that
// cannot be seen from here; 0 means any.
func (d *Dialer) dial(ctx context.Context, socket string, pid int) (net.Conn, error) {
	var dialer net.Dialer
	nc, err := dialer.DialContext(ctx, "unix", socket)
	if err != nil {
		return nil, err
	}
	if err := server.CheckListener(nc); err != nil {
		nc.Close()
		return nil, exit.Hint(fmt.Errorf("socket %s: %w", socket, err),
			"nothing was sent to it: name a socket in a directory of yours with --socket or LEASEHOLD_SOCKET, or run this as that user")
	}
	if listener, err := server.PeerPID(nc); pid != 0 && err == nil && listener != pid && process.Sees(listener) {
		nc.Close()
		return nil, fs.ErrNotExist // another daemon has that socket now
	}
	d.Socket = socket
	return nc, nil
}

// absent reports whether nobody listened.
func absent(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED)
}

// mayStart refuses to start a daemon that would take the place of another.
func (d *Dialer) mayStart() error {
	if os.Getenv("LEASEHOLD_LIFE") != "" { // of a launcher
		return exit.Hint(fmt.Errorf("%w listens at %s, and an agent of a run starts none: its dispatcher does", ErrNoDaemon, d.target.Socket),
			"wait for the dispatcher to start it; if the dispatcher has ended, so does this process")
	}
	owner, owned := place.OwnerOf(d.target.Socket)
	if owned && !place.SameState(owner.State, d.target.State) && !owner.OnDemand {
		return exit.Hint(fmt.Errorf("%w listens at %s, which belongs to the state %s", ErrNoDaemon, d.target.Socket, owner.State),
			"start that daemon again: leasehold serve --state %s --socket %s; or remove %s.owner to give the socket to another state",
			owner.State, d.target.Socket, d.target.Socket)
	}
	if d.State() == "" {
		return fmt.Errorf("%w listens at %s, and there is no place for the state of another: set HOME or XDG_STATE_HOME", ErrNoDaemon, d.target.Socket)
	}
	return nil
}

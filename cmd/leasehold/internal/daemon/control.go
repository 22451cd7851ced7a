package daemon

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/leasehold/leasehold/cmd/leasehold/internal/connection"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/database"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/exit"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/place"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/terminal"
	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/dispatch/process"
	"github.com/leasehold/leasehold/dispatch/server"
	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/pebble"
	"github.com/leasehold/leasehold/engine/postgres"
)

// A status is what is known about the daemon of a command.
type status struct {
	Running  bool `json:"running"`
	Replaced bool `json:"binary_replaced,omitempty"`
	*place.Record
}

// NewStatusCommand shows the daemon.
func NewStatusCommand() *cobra.Command {
	var asObject bool
	cmd := place.WithSocket(&cobra.Command{
		Use:   "status",
		Short: "Show the daemon that serves this state",
		Long: `Show the daemon that serves this state: its process, where it listens and whether
its binary has been replaced or removed since it started. No daemon is started. It is
the daemon of this machine, also where LEASEHOLD_SERVER is set; see doctor for a server
elsewhere.

Exit codes: 0 a daemon runs; 1 none does, or it does not answer.`,
		Example: `  leasehold status
  leasehold status --json | jq -r .socket`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			out := cmd.OutOrStdout()
			st, err := look(cmd)
			if err != nil && !errors.Is(err, connection.ErrNoDaemon) {
				return err
			}
			if asObject {
				if err := json.NewEncoder(out).Encode(st); err != nil {
					return err
				}
				if !st.Running {
					return exit.ErrReported
				}
				return answers(cmd)
			}
			if err != nil {
				return err
			}
			if err := draw(out, st); err != nil {
				return err
			}
			return answers(cmd)
		},
	})
	cmd.Flags().BoolVar(&asObject, "json", false, "print JSON, one object per line")
	return cmd
}

// NewStopCommand stops the daemon.
func NewStopCommand() *cobra.Command {
	return place.WithSocket(&cobra.Command{
		Use:   "stop",
		Short: "Stop the daemon",
		Long: `Stop the daemon and wait until it has ended. This ends no session: agents keep their
leases if a daemon runs again before these expire. A client that is connected starts one
at once, else the next client does. The agents of leasehold dispatch are refused.`,
		Example: `  leasehold stop`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := forOperators("stop"); err != nil {
				return err
			}
			st, err := look(cmd)
			if errors.Is(err, connection.ErrNoDaemon) {
				fmt.Fprintln(cmd.OutOrStdout(), "no daemon runs")
				return nil
			}
			if err != nil {
				return err
			}
			if err := stop(cmd.Context(), st); err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "stopped the daemon (pid %d)\n", st.PID)
			return err
		},
	})
}

// NewRestartCommand replaces the daemon by one of this binary.
func NewRestartCommand() *cobra.Command {
	return place.WithSocket(&cobra.Command{
		Use:   "restart",
		Short: "Restart the daemon, as after an update",
		Long: `Stop the daemon and start the one of this binary, with the same arguments. Sessions
continue: clients reconnect by themselves. A daemon that was started in a terminal
runs in the background afterwards. If a supervisor such as systemd started it, restart
it with that instead. The agents of leasehold dispatch are refused.

Once the daemon is being stopped, only a second Ctrl-C keeps this command from starting
it again.`,
		Example: `  leasehold restart`,
		Args:    cobra.NoArgs,
		RunE: exit.Tidily(func(cmd *cobra.Command, _ []string) error {
			if err := forOperators("restart"); err != nil {
				return err
			}
			st, err := look(cmd)
			switch {
			case err == nil:
				if st.PID == 0 {
					return errUnseen
				}
				if st.Args == nil {
					return exit.Hint(fmt.Errorf("the daemon with pid %d did not record how it was started", st.PID),
						"stop it with leasehold stop, and start it again")
				}
				if err := startable(cmd.Context(), st.Record); err != nil {
					return fmt.Errorf("the daemon runs on, because it could not start again: %w", err)
				}
				defer finish(cmd)()
				if err := stop(cmd.Context(), st); err != nil {
					return err
				}
			case !errors.Is(err, connection.ErrNoDaemon):
				return err
			}
			now, err := startAgain(cmd, st)
			if err != nil {
				return err
			}
			return draw(cmd.OutOrStdout(), now)
		}),
	})
}

// forOperators refuses a process of a dispatched agent. The daemon refuses it all other
// commands of the operator, but is not asked before it gets a signal, since it may be stuck.
func forOperators(what string) error {
	if os.Getenv("LEASEHOLD_LIFE") == "" {
		return nil
	}
	return exit.Hint(fmt.Errorf("forbidden: this process is one of actor %s of run %q, and no agent may %s a daemon, because it serves others too",
		os.Getenv("LEASEHOLD_PATH"), os.Getenv("LEASEHOLD_RUN"), what), "ask the operator to do it; a daemon that you have started with leasehold serve ends if you end that process")
}

// finish lets a restart that stops the daemon go on after the first signal. Nobody else
// would start it with its arguments.
func finish(cmd *cobra.Command) (stop func() bool) {
	stop = context.AfterFunc(cmd.Context(), func() {
		fmt.Fprintln(cmd.ErrOrStderr(), "leasehold: the daemon is being stopped, and is started again first; Ctrl-C again leaves it stopped")
	})
	cmd.SetContext(context.WithoutCancel(cmd.Context()))
	return stop
}

// look finds the daemon, also if its socket was removed. If none runs, the error is
// connection.ErrNoDaemon, and the status has the record that the last one left, if it was
// killed.
func look(cmd *cobra.Command) (status, error) {
	place.NoteLocal(cmd)
	d, err := connection.For(cmd)
	if err != nil {
		return status{}, err
	}
	nc, err := d.Reach(cmd.Context(), false)
	if err != nil {
		if r, ok := place.ReadRecord(d.State()); ok {
			if errors.Is(err, connection.ErrNoDaemon) && r.Alive() {
				return status{Running: true, Replaced: r.Replaced() != "", Record: &r}, nil
			}
			return status{Record: &r}, err
		}
		return status{}, err
	}
	defer nc.Close()
	return statusOf(d, nc)
}

// answers returns an error if the daemon does not answer: it may be stopped, or stuck.
func answers(cmd *cobra.Command) error {
	c, err := connection.Operator(cmd, false)
	if err == nil {
		_ = c.Close()
	}
	if _, refused := errors.AsType[*server.HelloError](err); refused { // which is an answer
		return nil
	}
	return err
}

func statusOf(d *connection.Dialer, nc net.Conn) (status, error) {
	pid, err := server.PeerPID(nc)
	if err != nil {
		return status{}, err
	}
	// A daemon listens an instant before it has recorded that.
	for began := time.Now(); pid != 0 && time.Since(began) < recordTimeout; time.Sleep(10 * time.Millisecond) {
		owner, ok := place.OwnerOf(d.Socket)
		if ok && owner.PID == pid {
			if r, ok := place.ReadRecord(owner.State); ok && r.PID == pid {
				return status{Running: true, Replaced: r.Replaced() != "", Record: &r}, nil
			}
		}
	}
	return status{Running: true, Record: &place.Record{Socket: d.Socket, PID: pid, Start: process.Find(pid).Start}}, nil
}

// recordTimeout is how long a listening daemon may take to write its record. A
// daemon that has not done so by then is of a version that writes none.
const recordTimeout = 2 * time.Second

// stopTimeout bounds the wait for a daemon that was asked to end.
const stopTimeout = 30 * time.Second

// errUnseen is why a daemon cannot be sent a signal. The pid 0, which the kernel names it
// by, would mean this process and its group.
var errUnseen = exit.Hint(errors.New("the daemon has no pid here: it runs outside of this container, or of this pid namespace"),
	"run this command where the daemon was started")

// stop asks the daemon to end and waits until its process is gone.
func stop(ctx context.Context, st status) error {
	if st.PID == 0 {
		return errUnseen
	}
	gone := goneOf(process.Peer{PID: st.PID, Start: st.Start})
	if gone() {
		return nil
	}
	if err := syscall.Kill(st.PID, syscall.SIGTERM); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("stop the daemon, process %d: %w", st.PID, err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, stopTimeout, exit.Hint(
		fmt.Errorf("the daemon, process %d, has not ended in %v", st.PID, stopTimeout),
		"if it is stuck, kill -9 %d ends it; nothing that was acknowledged is lost", st.PID))
	defer cancel()
	for !gone() {
		if err := connection.Pause(ctx, 10*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

// goneOf returns a function that reports whether the process of a daemon that
// was just reached is gone. The kernel named the process, so it runs even if it
// cannot be inspected, as without /proc. Then it is gone when no process has
// its pid.
func goneOf(daemon process.Peer) func() bool {
	visible := daemon.Alive()
	return func() bool {
		return errors.Is(syscall.Kill(daemon.PID, 0), syscall.ESRCH) || visible && !daemon.Alive()
	}
}

// startAgain starts a daemon with the options of the last one. If these are
// unknown, it starts one as a client would.
func startAgain(cmd *cobra.Command, last status) (status, error) {
	d, err := connection.For(cmd)
	if err != nil {
		return status{}, err
	}
	var nc net.Conn
	if last.Record == nil {
		nc, err = d.Reach(cmd.Context(), true)
	} else {
		// Use this state and this socket, whatever the environment says now.
		args, place := last.Args, []string{"--state", last.State, "--socket", last.Socket}
		if n := len(args) - len(place); n < 0 || !slices.Equal(args[n:], place) {
			args = slices.Concat(args, place)
		}
		nc, err = d.Launch(cmd.Context(), last.State, cmp.Or(last.Dir, last.State), args)
	}
	if err != nil {
		return status{}, err
	}
	defer nc.Close()
	return statusOf(d, nc)
}

// startable returns why this version could not start a daemon as it was started: it cannot
// read the state, it does not have one of the options, or a certificate has been replaced
// and its key has not.
func startable(ctx context.Context, r *place.Record) error {
	if r.Format > dispatch.Format || r.Files > pebble.Format {
		return explain(engine.ErrNewer)
	}
	serve := NewCommand()
	if err := serve.ParseFlags(r.Args); err != nil {
		return err
	}
	file := func(flag string) string {
		path := serve.Flag(flag).Value.String()
		if path != "" && !filepath.IsAbs(path) {
			path = filepath.Join(r.Dir, path)
		}
		return path
	}
	if r.Database {
		db := database.Database{Name: serve.Flag("postgres").Value.String(), File: file("postgres-file")}
		if err := db.Check(false); err != nil {
			return err
		}
		if !db.Given() {
			return exit.Hint(errors.New("its database was named by LEASEHOLD_POSTGRES, which is not set here"), "set it to the same DSN, and restart again")
		}
		o, err := db.Options()
		if err != nil {
			return err
		}
		// A database that does not answer says nothing of its schema.
		if report, err := postgres.Inspect(ctx, o); err == nil && report.Schema > report.Known {
			return explain(engine.ErrNewer)
		}
	}
	if _, err := (certificate{file("tls-cert"), file("tls-key")}).load(); err != nil {
		return err
	}
	if peers := (identity{file("cluster-cert"), file("cluster-key"), file("cluster-ca")}); peers.given() {
		_, err := peers.load()
		return err
	}
	return nil
}

// draw shows a daemon that runs.
func draw(out io.Writer, st status) error {
	p := terminal.PaintFor(out)
	where := "outside of this container or pid namespace"
	if st.PID != 0 {
		where = fmt.Sprintf("pid %d", st.PID)
	}
	fmt.Fprintf(out, "%s (%s)\n", p.Bold("a daemon runs"), where)
	line := func(what, value string) {
		if value != "" {
			fmt.Fprintf(out, "  %-8s %s\n", what, terminal.Printable(value))
		}
	}
	line("socket", st.Socket)
	line("http", st.HTTP)
	line("state", st.State)
	line("version", st.Version)
	if !st.StartedAt.IsZero() {
		how := "by hand"
		if st.OnDemand {
			how = "by a client"
		}
		line("started", fmt.Sprintf("%s, %s ago", how, terminal.Brief(time.Since(st.StartedAt))))
	}
	for _, c := range st.Certificates {
		if what, _ := c.Expiring(time.Now()); what != "" {
			line("tls", what+": "+place.RenewCertificate)
		}
	}
	if st.Replaced {
		line("binary", st.Binary+" "+st.Record.Replaced()+" since: leasehold restart starts the daemon from the binary that you call")
	}
	return nil
}

// NewDetachCommand is the command with which a client starts a daemon; users do
// not call it.
func NewDetachCommand() *cobra.Command {
	return &cobra.Command{
		Use:                "detach ARG...",
		Short:              "Start leasehold with these arguments as nobody's child",
		Hidden:             true,
		DisableFlagParsing: true,
		RunE:               func(_ *cobra.Command, args []string) error { return process.RunDetach(args) },
	}
}

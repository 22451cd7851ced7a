// Package place knows where the state, the logs and the socket are.
package place

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/leasehold/leasehold/cmd/leasehold/internal/exit"
)

// Where things are:
//
//	<state>/db             what the daemon stores (--state names another <state>)
//	<state>/daemon.json    which daemon serves it and where: see Record
//	<state>/daemon.log     the log of a daemon that a client started
//	<state>/daemon.start   a lock: one client at a time starts a daemon
//	<runtime>/leasehold/leasehold.sock, else <state>/leasehold.sock
//	<socket>.owner         which state the socket belongs to: see Owner
//
// <state> is $XDG_STATE_HOME/leasehold, <runtime> is $XDG_RUNTIME_DIR.

// A Target is the daemon that a command means.
type Target struct {
	Socket  string
	Named   bool     // the user named the socket
	State   string   // the user's own
	Servers *Servers // nil: it is on this machine
}

// Log is where a daemon writes that a client started.
func Log(state string) string { return filepath.Join(state, "daemon.log") }

// StartLock is the file that is locked while a client starts a daemon.
func StartLock(state string) string { return filepath.Join(state, "daemon.start") }

// State is the default <state>.
func State() (string, error) {
	base := xdg("XDG_STATE_HOME")
	if base == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", exit.Hint(fmt.Errorf("no place for the state: %w", err), "set HOME or XDG_STATE_HOME")
		}
		base = filepath.Join(home, ".local", "state")
	}
	return filepath.Join(base, "leasehold"), nil
}

// xdg is a directory by XDG's rules, which ignore one that is not absolute.
func xdg(name string) string {
	if dir := os.Getenv(name); filepath.IsAbs(dir) {
		return dir
	}
	return ""
}

// defaultSocket is where the daemon listens unless told otherwise.
func defaultSocket() (string, error) {
	if dir := xdg("XDG_RUNTIME_DIR"); dir != "" {
		return filepath.Join(dir, "leasehold", "leasehold.sock"), nil
	}
	dir, err := State()
	return filepath.Join(dir, "leasehold.sock"), err
}

// WithSocket gives a command --socket.
func WithSocket(cmd *cobra.Command) *cobra.Command {
	cmd.Flags().String("socket", "", "the daemon's socket (default $LEASEHOLD_SOCKET, else the user's own)")
	return cmd
}

// TargetOf is the daemon that a command means, by --socket, LEASEHOLD_SOCKET or
// the user's directories.
// With --server or LEASEHOLD_SERVER it is elsewhere.
func TargetOf(cmd *cobra.Command) (t Target, err error) {
	if t.Servers, err = serversOf(cmd); err != nil {
		return Target{}, err
	}
	flag, err := cmd.Flags().GetString("socket")
	if err != nil {
		return Target{}, err
	}
	named := cmp.Or(flag, os.Getenv("LEASEHOLD_SOCKET"))
	if named == "" {
		if t.Socket, err = defaultSocket(); err != nil {
			return Target{}, err
		}
		t.State, err = State()
		return t, err
	}
	t.Named = true
	if t.Socket, err = filepath.Abs(named); err != nil {
		return Target{}, err
	}
	t.State, _ = State() // without it the socket has to do
	return t, nil
}

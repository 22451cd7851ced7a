// Package place knows where the state, the logs and the socket are, and which
// daemon or server a command uses.
package place

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/leasehold/leasehold/cmd/leasehold/internal/exit"
)

// The files of a daemon:
//
//	<state>/db             what the daemon stores (--state names another <state>)
//	<state>/daemon.json    which daemon serves the state and where: see Record
//	<state>/daemon.log     the log of a daemon that a client started
//	<state>/daemon.start   a lock: only one client at a time starts a daemon
//	<runtime>/leasehold/leasehold.sock, or <state>/leasehold.sock without a <runtime>, or if
//	                       that socket belongs to another state
//	<socket>.owner         the state that the socket belongs to: see Owner
//
// <state> is $XDG_STATE_HOME/leasehold, <runtime> is $XDG_RUNTIME_DIR.

// A Target is the daemon that a command uses.
type Target struct {
	Socket  string
	Named   bool     // the user chose the socket
	State   string   // the user's default state
	Servers *Servers // nil: the daemon is on this machine
}

// Log is the log file of a daemon that a client started.
func Log(state string) string { return filepath.Join(state, "daemon.log") }

// StartLock is the file that a client locks while it starts a daemon.
func StartLock(state string) string { return filepath.Join(state, "daemon.start") }

// State returns the default <state>.
func State() (string, error) {
	base := xdg("XDG_STATE_HOME")
	if base == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", exit.Hint(fmt.Errorf("no place for the state: %w", err), "set HOME or XDG_STATE_HOME")
		}
		if !filepath.IsAbs(home) { // the daemon and its clients work in different directories
			return "", exit.Hint(fmt.Errorf("no place for the state: HOME is %q, which is not an absolute path", home), "set HOME or XDG_STATE_HOME")
		}
		base = filepath.Join(home, ".local", "state")
	}
	return filepath.Join(base, "leasehold"), nil
}

// Runs returns the directory of the run directories, unless the user names another.
func Runs() (string, error) {
	state, err := State()
	return filepath.Join(state, "runs"), err
}

// xdg returns a directory from an XDG variable. As XDG requires, it ignores one
// that is not absolute.
func xdg(name string) string {
	if dir := os.Getenv(name); filepath.IsAbs(dir) {
		return dir
	}
	return ""
}

// defaultSocket returns the socket of the daemon if none is chosen.
func defaultSocket() (string, error) {
	if dir := xdg("XDG_RUNTIME_DIR"); dir != "" {
		return filepath.Join(dir, "leasehold", "leasehold.sock"), nil
	}
	dir, err := State()
	return ownSocket(dir), err
}

func ownSocket(state string) string { return filepath.Join(state, "leasehold.sock") }

// Apart returns the target with a socket that belongs to no other state whose
// daemon clients start: if theirs took its place, they would not find their state.
// The user's own choice stays.
func (t Target) Apart() Target {
	if owner, owned := OwnerOf(t.Socket); owned && owner.OnDemand && !t.Named && t.State != "" && !SameState(owner.State, t.State) {
		t.Socket = ownSocket(t.State)
	}
	return t
}

// WithSocket adds the flag --socket to a command.
func WithSocket(cmd *cobra.Command) *cobra.Command {
	cmd.Flags().String("socket", "", "`path` of the daemon's socket (default $LEASEHOLD_SOCKET, else the user's own)")
	return cmd
}

// TargetOf returns the daemon that a command uses, by --socket,
// LEASEHOLD_SOCKET or the user's directories, or on another machine by --server
// or LEASEHOLD_SERVER.
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
		if t.State, err = State(); xdg("XDG_STATE_HOME") != "" {
			t = t.Apart() // otherwise a daemon of another state may be the one that is meant
		}
		return t, err
	}
	t.Named = true
	if t.Socket, err = filepath.Abs(named); err != nil {
		return Target{}, err
	}
	t.State, _ = State() // if it is unknown, the socket alone is enough
	return t, nil
}

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
//	<state>/daemon.log     what a daemon says that mcp started
//	<runtime>/leasehold/leasehold.sock, else <state>/leasehold.sock
//
// <state> is $XDG_STATE_HOME/leasehold, <runtime> is $XDG_RUNTIME_DIR. The
// socket does not follow --state: clients would not find it.

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

// Socket is the socket that a command is to use, an absolute path.
func Socket(cmd *cobra.Command) (string, error) {
	flag, err := cmd.Flags().GetString("socket")
	if err != nil {
		return "", err
	}
	path := cmp.Or(flag, os.Getenv("LEASEHOLD_SOCKET"))
	if path == "" {
		return defaultSocket()
	}
	return filepath.Abs(path)
}

// SocketAndLog is where a shim finds the daemon, and where one that it starts
// writes its log.
func SocketAndLog(cmd *cobra.Command) (socket, log string, err error) {
	if socket, err = Socket(cmd); err != nil {
		return "", "", err
	}
	dir, err := State()
	return socket, filepath.Join(dir, "daemon.log"), err
}

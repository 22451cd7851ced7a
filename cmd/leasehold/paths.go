package main

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
)

// Where things are:
//
//	<state>/db             what the daemon stores (--state names another <state>)
//	<state>/daemon.log     what a daemon says that mcp started
//	<runtime>/leasehold/leasehold.sock, else <state>/leasehold.sock
//
// <state> is $XDG_STATE_HOME/leasehold, <runtime> is $XDG_RUNTIME_DIR. The
// socket does not follow --state: clients would not find it.

// stateDir is the default <state>.
func stateDir() (string, error) {
	base := xdg("XDG_STATE_HOME")
	if base == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", hint(fmt.Errorf("no place for the state: %w", err), "set HOME or XDG_STATE_HOME")
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
	dir, err := stateDir()
	return filepath.Join(dir, "leasehold.sock"), err
}

// withSocket gives a command --socket.
func withSocket(cmd *cobra.Command) *cobra.Command {
	cmd.Flags().String("socket", "", "the daemon's socket (default $LEASEHOLD_SOCKET, else the user's own)")
	return cmd
}

// socketOf is the socket that a command is to use, an absolute path.
func socketOf(cmd *cobra.Command) (string, error) {
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

// shimPaths is where a shim finds the daemon, and where one that it starts
// writes its log.
func shimPaths(cmd *cobra.Command) (socket, log string, err error) {
	if socket, err = socketOf(cmd); err != nil {
		return "", "", err
	}
	dir, err := stateDir()
	return socket, filepath.Join(dir, "daemon.log"), err
}

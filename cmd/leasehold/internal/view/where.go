package view

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// A shownOrigin is where an actor works, or how it came from another machine, in the daemon's format.
type shownOrigin struct {
	Directory string
	Branch    string
	PID       int
	Access    string
}

// String returns the directory, with ~ for the home directory, the branch and the pid; of
// a client on another machine the name of the token with which it came.
func (o shownOrigin) String() string {
	dir := o.Directory
	if dir == "" && o.Access != "" {
		return "token " + o.Access
	}
	if home, err := os.UserHomeDir(); err == nil {
		if below, err := filepath.Rel(home, dir); err == nil && filepath.IsLocal(below) {
			dir = strings.TrimSuffix(filepath.Join("~", below), "/.")
		}
	}
	if o.Branch != "" {
		dir += " (" + o.Branch + ")"
	}
	if dir != "" && o.PID != 0 {
		dir += fmt.Sprintf(" pid %d", o.PID)
	}
	return dir
}

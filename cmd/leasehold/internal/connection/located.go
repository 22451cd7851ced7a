package connection

import (
	"encoding/json"

	"github.com/leasehold/leasehold/dispatch/project"
	"github.com/leasehold/leasehold/dispatch/server/wire"
)

// Located returns the arguments of a tool call for a daemon that is [Dialer.Apart]. It does
// not see the files that this process sees, and takes each path of a lease from the top of the project. So
// the paths, which are relative to dir or absolute, become keys here. A path that has no
// key stays, and the server refuses it or takes it as it is.
func Located(dir, tool string, arguments json.RawMessage) json.RawMessage {
	var args map[string]json.RawMessage
	if dir == "" || json.Unmarshal(arguments, &args) != nil {
		return arguments
	}
	changed := pathsOfLeases[tool] && locate(dir, args)
	for _, name := range []string{"leases", "require_leases"} {
		var list []map[string]json.RawMessage
		if json.Unmarshal(args[name], &list) != nil {
			continue
		}
		found := false
		for _, lease := range list {
			found = locate(dir, lease) || found
		}
		if found {
			args[name], _ = json.Marshal(list) // of what was JSON
			changed = true
		}
	}
	if !changed {
		return arguments
	}
	located, _ := json.Marshal(args)
	return located
}

// Arguments returns what to send as the arguments of a tool call: those for a daemon
// that is [Dialer.Apart] are [Located].
func (d *Dialer) Arguments(tool string, args any) any {
	if !d.Apart() {
		return args
	}
	raw, err := wire.Marshal(args)
	if err != nil {
		return args
	}
	return Located(Here(), tool, raw)
}

// pathsOfLeases are the tools whose argument path is that of a lease. Others have a path
// in a store, or that of an actor.
var pathsOfLeases = map[string]bool{"run_lease_acquire": true, "lease_check": true, "lease_revoke": true}

// locate replaces the path of a lease, and reports whether there is one.
func locate(dir string, lease map[string]json.RawMessage) bool {
	var path string
	if json.Unmarshal(lease["path"], &path) != nil || path == "" || project.CheckOne(path) != nil {
		return false
	}
	key, err := project.Path(dir, path)
	if err != nil {
		return false
	}
	lease["path"], _ = json.Marshal(key)
	return true
}

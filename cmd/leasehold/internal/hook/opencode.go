package hook

import "io"

// opencode loads a plugin, which runs this command; see OpenCodePlugin in
// package agent. All its sessions share one process, so each session is a party.
var opencode = client{
	name: "opencode", guest: "opencode", pid: "LEASEHOLD_CLIENT_PID", tells: []kind{after},
	read: func(stdin []byte) (event, error) {
		var in struct {
			Event   string
			Dir     string
			Session string
			Main    bool // not a sub-agent
			Call    string
			Tool    string
			Args    any

			Resumed, Compacted bool
		}
		if err := readJSON(stdin, &in); err != nil {
			return event{}, err
		}
		e := event{name: in.Event, dir: in.Dir, use: in.Call, party: in.Session, main: in.Main, resumed: in.Resumed, compacted: in.Compacted}
		switch in.Event {
		case "before":
			e.kind = before
		case "after":
			e.kind = after
		case "session.idle":
			e.kind = stop
		case "session.deleted", "session.done":
			e.kind = partyEnd
		case "end":
			e.kind = sessionEnd
		}
		switch in.Tool {
		case "edit", "write", "multiedit":
			e.files = named(textOf(in.Args, "filePath"))
		case "patch", "apply_patch":
			e.files = patched(textOf(in.Args, "patchText"))
		case "bash":
			e.shell = true
		case "task":
			e.delegates = true
		}
		return e, nil
	},
	answer: func(out io.Writer, _ event, v verdict) error {
		if v == (verdict{}) {
			return nil
		}
		return writeJSON(out, struct {
			Refuse string `json:"refuse,omitempty"`
			Note   string `json:"note,omitempty"`
		}{v.refuse, v.note})
	},
}

package setup

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"github.com/leasehold/leasehold/dispatch/agent"
)

// hookLists are the hooks of a client, as Claude Code, Codex and Gemini CLI have
// them: below hooks, a list for each event. unit is what a second is in its words.
func (m machine) hookLists(client string, unit int, project bool) (list []listed) {
	for _, h := range agent.Hooks(client) {
		var group object
		if h.Matcher != "" {
			group = append(group, setting{name: "matcher", value: h.Matcher})
		}
		group = append(group, setting{name: "hooks", value: []any{object{
			{name: "type", value: "command"},
			{name: "command", value: m.hookCommand(client, project)},
			{name: "timeout", value: agent.HookTimeout * unit},
		}}})
		list = append(list, listed{path: []string{"hooks", h.Event}, value: group, mark: " hook " + client})
	}
	slices.Reverse(list) // each is written before those that are there
	return list
}

// hookCommand is what a shell runs for a hook. Who shares a project need not have
// leasehold.
func (m machine) hookCommand(client string, project bool) string {
	command := agent.HookCommand(m.command, client)
	if project {
		return fmt.Sprintf("! command -v %s >/dev/null || exec %s", m.command, command)
	}
	return command
}

// pluginText is a file that is all ours, as a plugin of opencode's.
type pluginText struct{}

// pluginMark is in the first line of such a file.
const pluginMark = "// leasehold:plugin"

func (pluginText) check(text []byte) error {
	if !blank(text) && !bytes.HasPrefix(text, []byte(pluginMark)) {
		return errors.New("it is not the file that leasehold setup writes under this name; move it away")
	}
	return nil
}

func (l pluginText) ensure(text []byte, want config) ([]edit, error) {
	if err := l.check(text); err != nil || string(text) == want.block {
		return nil, err
	}
	return []edit{{Kind: block, Del: string(text), Ins: want.block}}, nil
}

func (l pluginText) undo(text []byte, e edit) ([]byte, bool) { return []byte(e.Del), true }

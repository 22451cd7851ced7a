package setup

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"github.com/leasehold/leasehold/dispatch/agent"
)

// hookLists returns the hooks of a client in the format of Claude Code, Codex and Gemini
// CLI: below "hooks", a list for each event. unit is a second in the client's unit of
// time.
func (m machine) hookLists(client string, unit int, project bool) (list []listed) {
	for _, h := range agent.Hooks(client) {
		var group object
		if h.Matcher != "" {
			group = append(group, setting{name: "matcher", value: h.Matcher})
		}
		group = append(group, setting{name: "hooks", value: []any{object{
			{name: "type", value: "command"},
			{name: "command", value: m.hookCommand(client, project)},
			{name: "timeout", value: h.Timeout(client) * unit},
		}}})
		list = append(list, listed{path: []string{"hooks", h.Event}, value: group, mark: " hook " + client})
	}
	slices.Reverse(list) // each is inserted before the existing elements
	return list
}

// hookCommand returns the shell command of a hook. In a project's files it does nothing
// on machines without leasehold.
func (m machine) hookCommand(client string, project bool) string {
	command := agent.HookCommand(m.command, client)
	if project {
		return fmt.Sprintf("! command -v %s >/dev/null || exec %s", m.command, command)
	}
	return command
}

// pluginText writes a file that contains nothing but ours: the plugin for opencode.
type pluginText struct{}

// pluginMark begins such a file.
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

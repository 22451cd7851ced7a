package setup

import (
	"context"
	"os"
	"path/filepath"

	"github.com/leasehold/leasehold/cmd/leasehold/internal/guard"
)

// git has hooks in the repository that setup runs in. They refuse to commit files that
// others have leased. They belong to this clone and cannot be committed.
var git = client{
	name: "git", title: "git",
	found: func(m machine) bool {
		if _, err := os.Stat(filepath.Join(m.top, ".git")); err != nil || !m.has("git") {
			return false
		}
		_, err := guard.Find(context.Background(), m.top, guard.Hooks[0])
		return err == nil
	},
	files: func(m machine, _ bool) (hooks []file) {
		for _, name := range guard.Hooks {
			hooks = append(hooks, file{path: m.top, hook: name})
		}
		return hooks
	},
	note: func(bool) string { return "" },
}

// planHook plans to install a hook of the repository at top.
func planHook(top, name string) plan {
	p := plan{clients: []string{git.name}, shown: top, state: refused, hook: true}
	hook, err := guard.Find(context.Background(), top, name)
	if err != nil {
		p.problem = err
		return p
	}
	p.shown, p.file = hook, snapshot{path: realPath(hook), mode: 0o755}
	is, text, err := guard.Look(hook)
	if err == nil && is == guard.Other {
		err = guard.Movable(hook)
	}
	if err != nil {
		p.problem = err
		return p
	}
	p.file.exists = is != guard.None
	install := edit{Kind: block, Ins: guard.Script()}
	switch is {
	case guard.Current:
		p.state = same
		return p
	case guard.Old:
		install.Del = string(text)
		p.file.text, p.state = text, change
	case guard.Other:
		p.state, p.note = create, "the hook that is there is moved to "+filepath.Base(guard.Aside(hook))+", and called first"
	default:
		p.state = create
	}
	p.edits = []edit{install}
	return p
}

// planHookBack plans to uninstall a hook, if setup installed it.
func planHookBack(hook string, installed bool) plan {
	p := plan{clients: []string{git.name}, shown: hook, file: snapshot{path: hook}, state: same, hook: true}
	switch is, text, err := guard.Look(hook); {
	case err != nil:
		p.state, p.problem = refused, err
	case installed && (is == guard.Current || is == guard.Old):
		p.state, p.file.text, p.file.exists = remove, text, true
		p.edits = []edit{{Kind: block, Del: string(text)}}
	}
	return p
}

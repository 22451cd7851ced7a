package setup

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/leasehold/leasehold/cmd/leasehold/internal/guard"
)

// git has hooks in the repository that setup runs in. They refuse to commit files that
// others have leased. They belong to this clone and cannot be committed.
var git = client{
	name: "git", title: "git",
	found: func(m machine) bool {
		_, err := guard.Find(context.Background(), m.top)
		return err == nil
	},
	files: func(m machine, _ bool) (files []file) {
		hooks, err := guard.Find(context.Background(), m.top)
		if err != nil {
			return []file{{path: m.top, hook: true, problem: err}}
		}
		_, none := os.Stat(filepath.Join(m.top, ".husky"))
		scope, _ := exec.Command("git", "-C", m.top, "config", "--show-scope", "core.hooksPath").Output() // fails if it is not set
		for _, hook := range hooks {
			f := file{path: hook, hook: true}
			if _, out := leadsOut(m.top, hook); out && (bytes.HasPrefix(scope, []byte("global")) || bytes.HasPrefix(scope, []byte("system"))) {
				f.note = "git runs this file in all your repositories, because core.hooksPath names its directory"
			} else if husky, is := guard.Husky(hook); is {
				f = file{path: husky, text: huskyText{}, note: "husky runs this file; commit it, so that the clones of others have it too"}
			} else if none == nil && filepath.Base(filepath.Dir(hook)) != ".husky" { // where husky 8 has them
				f.note = "once husky is installed here, git no longer reads this file: then run leasehold setup git again"
			}
			files = append(files, f)
		}
		return files
	},
	note: func(bool) string { return "" },
}

// planHook plans to install a hook.
func planHook(f file) plan {
	hook := f.path
	p := plan{clients: []string{git.name}, shown: hook, state: refused, problem: f.problem, hook: true}
	if p.problem != nil {
		return p
	}
	p.file = snapshot{path: realPath(hook)}
	is, text, err := guard.Look(hook)
	if is == guard.Other {
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
	p.note = strings.Trim(p.note+"; "+f.note, "; ")
	return p
}

// huskyText is a hook of husky, which belongs to the user and is committed. It gets a line.
type huskyText struct{}

func (huskyText) check([]byte) error { return nil }

// ensure adds the line before those of the user, because the last of them may be an exec.
func (huskyText) ensure(text []byte, _ config) ([]edit, error) {
	if bytes.Contains(text, []byte(guard.HuskyCall)) {
		return nil, nil
	}
	at := 0
	if bytes.HasPrefix(text, []byte("#!")) {
		at = bytes.IndexByte(text, '\n') + 1
	}
	return []edit{{Kind: block, At: at, Ins: guard.HuskyLine + "\n"}}, nil
}

func (huskyText) undo([]byte, edit) ([]byte, bool) { return nil, false }

// planHookBack plans to uninstall a hook, if setup installed it.
func planHookBack(hook string, installed bool) plan {
	p := plan{clients: []string{git.name}, shown: hook, file: snapshot{path: hook}, state: same, hook: true}
	switch is, text, err := guard.Look(hook); {
	case err != nil:
		p.state, p.problem = refused, err
	case installed && (is == guard.Current || is == guard.Old):
		p.state, p.file.text = remove, text
		p.edits = []edit{{Kind: block, Del: string(text)}}
	}
	return p
}

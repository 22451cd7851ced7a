package setup

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/leasehold/leasehold/cmd/leasehold/internal/guard"
)

// A plan says what setup will do with one file.
type plan struct {
	clients []string
	file    snapshot
	shown   string // the file's name as shown, links not resolved
	state   state
	edits   []edit // applied in order
	after   []byte
	problem error  // why the file is refused
	note    string // shown with the file
	hook    bool   // it is a hook of git, which package guard installs and uninstalls
	key     string // of the file in the record, to undo what setup wrote
}

// A state says what setup will do with a file.
type state string

const (
	same    state = "same"
	create  state = "create"
	change  state = "change"
	remove  state = "remove"
	refused state = "refused" // the file cannot be read or written, and stays as it is
	skipped state = "skipped" // another file of its client is refused
)

// writes reports whether the plan changes the file.
func (p plan) writes() bool { return p.state == create || p.state == change || p.state == remove }

// planSetup plans what the clients need. If one file of a client is refused, the client's
// other files are skipped, so that it is not half set up.
func planSetup(m machine, chosen []client, project bool) (plans []plan) {
	for _, c := range chosen {
		var own []plan
		for _, f := range c.files(m, project) {
			p := f.plan(c.name)
			if to, out := leadsOut(m.top, f.path); project && !f.hook && out {
				p.state, p.problem = refused, fmt.Errorf("a link leads to %s, which is no file of the project", to)
			}
			if project && !p.file.exists {
				p.file.mode = 0o644 // it is shared with all who have the project
			}
			own = append(own, p)
		}
		if slices.ContainsFunc(own, func(p plan) bool { return p.state == refused }) {
			for i := range own {
				if own[i].state != refused {
					own[i].state = skipped
				}
			}
		}
		for _, p := range own { // several clients may share a file, such as AGENTS.md
			i := slices.IndexFunc(plans, func(other plan) bool { return other.file.path == p.file.path && other.state == p.state })
			if i < 0 {
				plans = append(plans, p)
				continue
			}
			if !slices.Contains(plans[i].clients, c.name) { // both hooks of git may be one file
				plans[i].clients = append(plans[i].clients, c.name)
			}
		}
	}
	return plans
}

// leadsOut reports whether a file of a project, or a directory above it, is a link to something
// outside of the project, or in git's own directory. A repository of others may have such a link to
// one of the user's own files.
func leadsOut(top, path string) (to string, out bool) {
	for at := path; at != filepath.Dir(at); at = filepath.Dir(at) { // the file itself may not exist yet
		to, err := filepath.EvalSymlinks(at)
		if err != nil {
			continue
		}
		rel, err := filepath.Rel(top, to)
		return to, err != nil || !filepath.IsLocal(rel) || rel == ".git" || strings.HasPrefix(rel, ".git/")
	}
	return "", false
}

func (f file) plan(client string) plan {
	if f.hook {
		return planHook(f)
	}
	p := plan{clients: []string{client}, shown: f.path, state: same}
	refuse := func(err error) plan {
		p.state, p.problem = refused, err
		return p
	}
	var err error
	if p.file, err = read(f.path); err != nil {
		return refuse(err)
	}
	want := f.want
	if f.alternative != nil {
		want = f.alternative(p.file.text)
	}
	if p.edits, err = f.text.ensure(p.file.text, want); err != nil {
		return refuse(err)
	}
	p.after = p.file.text
	for _, e := range p.edits {
		p.after = e.apply(p.after)
	}
	switch {
	case len(p.edits) == 0:
	case p.file.exists && p.file.mode&0o200 == 0:
		return refuse(errors.New("it is read-only"))
	case p.file.exists:
		p.state = change
	default:
		p.state = create
	}
	if p.writes() {
		p.note = f.note
	}
	return p
}

// planUninstall plans to undo what setup wrote for the clients.
func planUninstall(r *record, chosen []string, scope string) (plans []plan) {
	for path, w := range r.Files {
		var own []string
		for _, c := range w.Clients {
			if slices.Contains(chosen, c) {
				own = append(own, c)
			}
		}
		if w.Scope == scope && len(own) > 0 {
			p := w.planBack(path, own)
			p.key = path
			plans = append(plans, p)
		}
	}
	slices.SortFunc(plans, func(a, b plan) int { return slices.Compare([]string{a.shown}, []string{b.shown}) })
	return plans
}

func (w *written) planBack(path string, own []string) plan {
	if w.Hook {
		return planHookBack(path, w.Created)
	}
	p := plan{clients: own, shown: path, state: same}
	refuse := func(err error) plan {
		p.state, p.problem = refused, err
		return p
	}
	var err error
	if p.file, err = read(path); err != nil {
		return refuse(err)
	}
	l := languageOf(cmp.Or(w.Name, path)) // a record of an earlier version has no name
	switch {
	case len(own) < len(w.Clients) || !p.file.exists: // others still need it, or it is gone
		return p
	case l.check(p.file.text) != nil:
		return refuse(l.check(p.file.text))
	}
	left := 0
	p.after, p.edits, left = w.takeBack(l, p.file.text)
	switch {
	case left > 0 && len(p.edits) == 0 && mentions(p.file.text):
		return refuse(errors.New("it names leasehold, but not as setup wrote it; remove that by hand"))
	case w.Created && blank(p.after):
		p.state = remove
	case len(p.edits) == 0:
	case p.file.mode&0o200 == 0:
		return refuse(errors.New("it is read-only"))
	default:
		p.state = change
		if left > 0 && mentions(p.after) {
			p.note = "it still names leasehold, but not as setup wrote it; remove that by hand"
		}
	}
	return p
}

// languageOf returns the format of a client's file.
func languageOf(path string) language {
	switch filepath.Ext(path) {
	case ".toml":
		return tomlText{}
	case ".md":
		return markedText{}
	case ".js":
		return pluginText{}
	case "":
		return huskyText{}
	default:
		return jsonText{}
	}
}

// carryOut records the plans and writes their files. If a file cannot be written, it
// continues with the next one.
func carryOut(r *record, plans []plan, scope string) (failed error) {
	for _, p := range plans {
		if p.state == same || p.writes() {
			r.add(p, scope)
		}
	}
	if err := r.save(); err != nil {
		return err
	}
	for _, p := range plans {
		if !p.writes() {
			continue
		}
		write := func() ([]string, error) { return p.file.replace(p.after) }
		if p.hook {
			write = func() ([]string, error) {
				made, err := makeDirs(filepath.Dir(p.file.path), 0o755)
				return made, errors.Join(err, guard.Install(p.file.path))
			}
		}
		made, err := write()
		w := r.Files[p.file.path]
		w.Dirs = append(w.Dirs, made...)
		if err != nil {
			failed = errors.Join(failed, err)
		}
	}
	return errors.Join(failed, r.save())
}

// takeBack undoes what setup wrote, and then removes the files from the record.
func takeBack(r *record, plans []plan) (failed error) {
	var dirs []string
	for _, p := range plans {
		w := r.Files[p.key]
		if w == nil {
			continue // another uninstall was faster
		}
		var err error
		switch {
		case p.state == change:
			_, err = p.file.replace(p.after)
		case p.state == remove:
			remove := p.file.remove
			if p.hook {
				remove = func() error { return guard.Uninstall(p.file.path) }
			}
			if err = remove(); err == nil {
				dirs = append(dirs, w.Dirs...)
			}
		case p.state == refused:
			continue
		}
		if err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		w.Clients = slices.DeleteFunc(w.Clients, func(c string) bool { return slices.Contains(p.clients, c) })
		if len(w.Clients) == 0 {
			delete(r.Files, p.key)
		}
	}
	r.removeEmpty(dirs)
	return errors.Join(failed, r.save())
}

// removeEmpty removes directories that setup made, if they are empty. Each is longer than
// the one that it is in, so the deepest come first. If another file of the record is in a
// directory, that file's uninstall removes it.
func (r *record) removeEmpty(dirs []string) {
	slices.SortFunc(dirs, func(a, b string) int { return cmp.Compare(len(b), len(a)) })
	for _, dir := range dirs {
		err := os.Remove(dir)
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			continue
		}
		for path, w := range r.Files {
			if strings.HasPrefix(path, dir+string(filepath.Separator)) {
				w.Dirs = append(w.Dirs, dir)
				break
			}
		}
	}
}

// problemAt returns the problem with the file's name, and with the position if it has
// one.
func (p plan) problemAt() string {
	if p.problem == nil {
		return ""
	}
	if _, broken := p.problem.(*brokenError); broken { //nolint:errorlint // only if it begins with the position
		return fmt.Sprintf("%s:%v", p.shown, p.problem)
	}
	return fmt.Sprintf("%s: %v", p.shown, p.problem)
}

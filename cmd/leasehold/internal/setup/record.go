package setup

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/leasehold/leasehold/cmd/leasehold/internal/place"
	"github.com/leasehold/leasehold/dispatch/process"
)

// A record lists what setup wrote on this machine, so that --uninstall can undo it. Its
// keys are paths with links resolved. It is in setup.json in the state's directory. Only
// the user may read it, because the replaced text may hold secrets.
type record struct {
	Files map[string]*written `json:"files"`

	path string
	lock *os.File
}

// written is what setup wrote into one file.
type written struct {
	Clients []string `json:"clients"` // that need it
	Name    string   `json:"name"`    // by which a client knows it: what its key is may be a link to
	Scope   string   `json:"scope"`   // "user", or the top of a project
	Edits   []edit   `json:"edits"`   // oldest first
	After   string   `json:"after"`   // hash of the text after the edits
	Created bool     `json:"created,omitempty"`
	Dirs    []string `json:"dirs,omitempty"` // directories made for the file, the deepest first
	Hook    bool     `json:"hook,omitempty"` // it is a hook of git, and Created says that setup installed it
}

// openRecord reads the record, and locks out other setups until the record is closed.
func openRecord(state string) (*record, error) {
	if err := place.CheckPrivate(state); err != nil { // root would leave files that the user cannot read
		return nil, err
	}
	if err := os.MkdirAll(state, 0o700); err != nil {
		return nil, err
	}
	lock, err := os.OpenFile(filepath.Join(state, "setup.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	locked, err := process.TryLock(lock)
	if err == nil && !locked {
		err = errors.New("another leasehold setup is running")
	}
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	r, err := readRecord(state)
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	r.lock = lock
	return r, nil
}

func readRecord(state string) (*record, error) {
	r := &record{Files: map[string]*written{}, path: filepath.Join(state, "setup.json")}
	text, err := os.ReadFile(r.path)
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err == nil {
		err = json.Unmarshal(text, r)
	}
	if err != nil {
		return nil, fmt.Errorf("%s, which says what setup wrote, cannot be read: %w", r.path, err)
	}
	for path, w := range r.Files {
		moved := realPath(path) // if a link is where its directory was
		if _, known := r.Files[moved]; !known && w.Scope == "user" {
			delete(r.Files, path)
			r.Files[moved] = w
		}
	}
	return r, nil
}

func (r *record) close() { r.lock.Close() } // also releases the lock

// save writes the record. It is called before the files are written, so that the record
// never lacks an edit that was made.
func (r *record) save() error {
	if len(r.Files) == 0 {
		err := os.Remove(r.path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(r.path), ".setup-*") // mode 0600
	if err != nil {
		return err
	}
	_, err = f.Write(append(text, '\n'))
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), r.path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// add records the edits of a plan.
func (r *record) add(p plan, scope string) {
	w := r.Files[p.file.path]
	if w == nil || !p.file.exists {
		w = &written{Name: p.shown, Scope: scope, Created: !p.file.exists}
		r.Files[p.file.path] = w
	}
	for _, client := range p.clients {
		if !slices.Contains(w.Clients, client) {
			w.Clients = append(w.Clients, client)
		}
	}
	if p.hook {
		w.Hook, w.Created = true, w.Created || p.writes()
		return
	}
	if len(p.edits) == 0 {
		return
	}
	if w.After != "" && w.After != sum(p.file.text) { // the file has been changed since
		for i := range w.Edits {
			w.Edits[i].At = -1
		}
	}
	w.Edits = append(w.Edits, p.edits...)
	w.After = sum(p.after)
}

// takeBack returns a file's text without what setup wrote, and the changes that lead to
// it. left counts the edits that can no longer be found.
func (w *written) takeBack(l language, text []byte) (before []byte, changes []edit, left int) {
	exact := sum(text) == w.After
	for _, e := range slices.Backward(w.Edits) {
		without, ok := []byte(nil), false
		if exact {
			without, ok = e.revert(text)
		}
		if !ok {
			without, ok = e.revertAnywhere(text)
			ok = ok && l.check(without) == nil
			if _, more := l.undo(without, e); more && e.Kind == member {
				ok = false // something below it is elsewhere in the file, as tables of TOML may be
			}
		}
		if !ok {
			without, ok = l.undo(text, e)
		}
		if !ok {
			left++
			continue
		}
		changes = append(changes, changeOf(text, without))
		text = without
	}
	return text, changes, left
}

// changeOf returns the single edit that turns one text into another.
func changeOf(before, after []byte) edit {
	at := 0
	for at < min(len(before), len(after)) && before[at] == after[at] {
		at++
	}
	same := 0
	for same < min(len(before), len(after))-at && before[len(before)-1-same] == after[len(after)-1-same] {
		same++
	}
	return edit{At: at, Del: string(before[at : len(before)-same]), Ins: string(after[at : len(after)-same])}
}

package launcher

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/leasehold/leasehold/dispatch/manifest"
	"github.com/leasehold/leasehold/dispatch/process"
)

// The files of a run directory.
const (
	manifestFile = "manifest.toml"
	runFile      = "run.json"
	eventsFile   = "events.jsonl"
	summaryFile  = "summary.json"
	actorsDir    = "actors"
)

// A RunFile says which run a directory belongs to, and who dispatches it.
type RunFile struct {
	Run        string       `json:"run"`
	RunID      string       `json:"run_id,omitempty"` // "" until the daemon has created the run
	Life       int          `json:"life,omitempty"`
	Socket     string       `json:"socket"`
	Manifest   string       `json:"manifest"`   // where it was read from
	Dispatcher process.Peer `json:"dispatcher"` // the dispatcher's process
	Instance   string       `json:"instance,omitempty"`
	StartedAt  time.Time    `json:"started_at"`

	Machine string `json:"machine,omitempty"` // of a launcher that only serves the run
}

// mark is in the environment of every process that was started.
func (f RunFile) mark() string {
	if f.Machine != "" {
		return launcherMark(f.Instance)
	}
	return runMark(f.RunID)
}

// A Directory is the run directory of one run.
type Directory struct {
	Path string

	locked *os.File // see lock

	mu         sync.Mutex
	events     *os.File
	unrecorded []byte // lines that the file could not take, which come before later ones
}

// maxUnrecorded bounds the events that are kept while the disk takes none. Later ones are
// not recorded.
const maxUnrecorded = 4 << 20

// NewDirectory creates the directory of a new run in base, the directory of all
// runs: base/<run>/<time>.
func NewDirectory(base, run string, now time.Time) (*Directory, error) {
	base, err := filepath.Abs(base) // agents get the path and work in other directories
	if err != nil {
		return nil, err
	}
	runs := filepath.Join(base, run)
	if err := os.MkdirAll(runs, 0o700); err != nil {
		return nil, err
	}
	name := now.UTC().Format("20060102T150405")
	for n := 1; ; n++ {
		path := filepath.Join(runs, name)
		if n > 1 {
			path += fmt.Sprintf("-%02d", n) // so that it sorts after the first
		}
		err := os.Mkdir(path, 0o700)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		return &Directory{Path: path}, err
	}
}

// FindDirectory finds the directory of a run to resume: run itself, or the last
// directory in base in which the run of that name was dispatched.
func FindDirectory(base, run string) (*Directory, error) {
	list, err := directoriesOf(base, run)
	if err != nil {
		return nil, err
	}
	for _, d := range list {
		if f, err := d.RunFile(); err != nil || f.Machine == "" {
			return d, nil
		}
	}
	return nil, fmt.Errorf("run %q was dispatched elsewhere: %s is of a launcher of this machine", run, list[0].Path)
}

// FindStarted finds the directory of a run in which the actor at path was started. It
// looks in run itself, or in those of the latest run of that name: launchers of that run
// may have theirs in the same base. If the actor was started in none, it returns the
// last one.
func FindStarted(base, run, path string) (*Directory, error) {
	list, err := directoriesOf(base, run)
	if err != nil {
		return nil, err
	}
	last, _ := list[0].RunFile() // without one, it is the only one looked at
	for _, d := range list {
		if f, err := d.RunFile(); err != nil || f.RunID != last.RunID {
			continue
		}
		logs, _ := d.Logs() // an error means that nothing was started
		if slices.ContainsFunc(logs, func(l Logs) bool { return l.Path == path }) {
			return d, nil
		}
	}
	return list[0], nil
}

// directoriesOf returns run itself if that is a run directory, and otherwise the
// directories in base of runs of that name, the last one first.
func directoriesOf(base, run string) (list []*Directory, err error) {
	if _, err := os.Stat(filepath.Join(run, runFile)); err == nil {
		path, err := filepath.Abs(run)
		return []*Directory{{Path: path}}, err
	}
	whole, err := filepath.Abs(base)
	list = runDirectories(whole, filepath.Base(run))
	if err == nil && len(list) == 0 {
		err = fmt.Errorf("no run %q: neither a run directory nor below %s", run, base)
	}
	slices.Reverse(list)
	return list, err
}

// lock makes this process the only one that dispatches the run of the directory, until
// close or the end of the process. [RunFile] alone cannot: two processes that resume a
// run at the same time both read that its dispatcher is gone.
func (d *Directory) lock() error {
	f, err := os.Open(d.Path)
	if err != nil {
		return err
	}
	// An error means that the file system has no such locks.
	if locked, err := process.TryLock(f); !locked && err == nil {
		f.Close()
		return d.dispatchedBy("another process")
	}
	d.locked = f
	return nil
}

// dispatchedBy returns the error for a run that somebody else dispatches.
func (d *Directory) dispatchedBy(who string) error {
	f, err := d.RunFile()
	if err == nil && f.Dispatcher.Alive() {
		who = fmt.Sprintf("process %d", f.Dispatcher.PID)
	}
	return fmt.Errorf("run %s is dispatched by %s: wait for it, or end it", d.run(), who)
}

// runDirectories returns the directories in base of the runs whose name matches a
// pattern, sorted. Only the name is a pattern: base may contain any character.
func runDirectories(base, run string) (list []*Directory) {
	found, _ := fs.Glob(os.DirFS(base), path.Join(run, "*", runFile)) // a bad pattern is no run's name
	for _, file := range found {
		list = append(list, &Directory{Path: filepath.Join(base, filepath.Dir(file))})
	}
	return list
}

// run returns the name in the path of the directory.
func (d *Directory) run() string { return filepath.Base(filepath.Dir(d.Path)) }

// RunNames returns the names of the runs that have directories in base.
func RunNames(base string) (names []string) {
	for _, d := range runDirectories(base, "*") {
		names = append(names, d.run())
	}
	return slices.Compact(names)
}

// Finished reports whether the run is over.
func (d *Directory) Finished() bool {
	_, err := os.Stat(filepath.Join(d.Path, summaryFile))
	return err == nil
}

// RunFile reads run.json.
func (d *Directory) RunFile() (f RunFile, err error) {
	text, err := os.ReadFile(filepath.Join(d.Path, runFile))
	if err != nil {
		return f, err
	}
	if err := json.Unmarshal(text, &f); err != nil {
		return f, fmt.Errorf("%s: %w", filepath.Join(d.Path, runFile), err)
	}
	return f, nil
}

// LoadManifest parses the copy of the manifest as if it were at its original
// place.
func (d *Directory) LoadManifest() (*manifest.Manifest, error) {
	file, err := d.RunFile()
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(filepath.Join(d.Path, manifestFile))
	if err != nil {
		return nil, err
	}
	m, err := manifest.Parse(file.Manifest, text, filepath.Dir(file.Manifest))
	if err != nil {
		return nil, err
	}
	m.Run.Name = file.Run
	return m, nil
}

// write writes a file completely or not at all.
func (d *Directory) write(name string, text []byte) error {
	path := filepath.Join(d.Path, name)
	temp, err := os.CreateTemp(d.Path, "."+name+"-*") // 0600
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(temp.Name()) }() // after the rename there is nothing to remove
	_, err = temp.Write(text)
	if err := errors.Join(err, temp.Sync(), temp.Close()); err != nil {
		return err
	}
	return os.Rename(temp.Name(), path)
}

func (d *Directory) writeJSON(name string, v any) error {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	return d.write(name, append(text, '\n'))
}

// record appends an event to the file. If the file cannot take it, as on a full disk,
// the event waits for the next one or for close.
func (d *Directory) record(e Event) error {
	line, err := json.Marshal(e)
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	kept := len(d.unrecorded)
	d.unrecorded = append(append(d.unrecorded, line...), '\n')
	err = d.flushLocked()
	if err != nil && len(d.unrecorded) > maxUnrecorded {
		d.unrecorded = d.unrecorded[:kept]
	}
	return err
}

// flushLocked writes the unrecorded events. The file ends with a whole line afterwards,
// whatever happens, because a program reads it line by line.
func (d *Directory) flushLocked() (err error) {
	if d.events == nil {
		d.events, err = os.OpenFile(filepath.Join(d.Path, eventsFile), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
		if err != nil {
			d.events = nil
			return err
		}
	}
	info, err := d.events.Stat()
	if err != nil {
		return err
	}
	if _, err := d.events.Write(d.unrecorded); err != nil {
		return errors.Join(err, d.events.Truncate(info.Size()))
	}
	d.unrecorded = nil
	return nil
}

// lastRevision returns the revision of the last recorded event of the run
// itself. It removes an incomplete last line, as after a power cut; that event
// is recorded again.
func (d *Directory) lastRevision() (last uint64, err error) {
	whole, err := d.recorded(func(e Event) { last = max(last, e.Revision) })
	if err != nil {
		return 0, err
	}
	err = os.Truncate(filepath.Join(d.Path, eventsFile), whole)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return last, err
}

// recorded passes on the recorded events, and returns the size of the whole lines. A last line
// that is incomplete is still being written, or never will be.
func (d *Directory) recorded(give func(Event)) (whole int64, err error) {
	f, err := os.Open(filepath.Join(d.Path, eventsFile))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil // nothing has happened yet
	}
	if err != nil {
		return 0, err
	}
	defer f.Close()
	for lines := bufio.NewReader(f); ; {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return whole, nil
		}
		if err != nil {
			return whole, err
		}
		whole += int64(len(line))
		var e Event
		if json.Unmarshal(line, &e) == nil {
			give(e)
		}
	}
}

func (d *Directory) close() error {
	if d.locked != nil {
		d.locked.Close()
		d.locked = nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.unrecorded) > 0 {
		_ = d.flushLocked() // each event has told that it is not recorded
	}
	if d.events == nil {
		return nil
	}
	err := d.events.Close()
	d.events = nil
	return err
}

// remove removes the directory. If something of an agent's cannot be removed, the other
// files stay, so that the directory is still found.
func (d *Directory) remove() error {
	for _, path := range []string{filepath.Join(d.Path, actorsDir), d.Path} {
		if err := os.RemoveAll(path); err != nil {
			return err
		}
	}
	_ = syscall.Rmdir(filepath.Dir(d.Path)) // fails if another run of that name has a directory, and for a link
	return nil
}

// A place is the directory of an actor, and the files to which its process
// writes.
type place struct {
	path           string
	stdout, stderr *output
}

// actor returns the directory of an actor. A path contains no slash and is not
// "." or "..", so it can be the name of a directory, up to the 255 bytes that
// file systems allow.
func (d *Directory) actor(path, id string) string {
	if len(path) > 200 {
		path = id
	}
	return filepath.Join(d.Path, actorsDir, path)
}

// place creates the directory of an actor, and its logs for this life.
func (d *Directory) place(path, id string, life int) (p place, err error) {
	p.path = d.actor(path, id)
	if err := os.MkdirAll(p.files(), 0o700); err != nil {
		return p, err
	}
	suffix := ".log"
	if life > 1 {
		suffix = fmt.Sprintf("-%d.log", life)
	}
	if p.stdout, err = openOutput(filepath.Join(p.path, "stdout"+suffix)); err != nil {
		return p, err
	}
	if p.stderr, err = openOutput(filepath.Join(p.path, "stderr"+suffix)); err != nil {
		p.stdout.Close()
	}
	return p, err
}

// files returns the directory of the configuration of an actor's client.
func (p place) files() string { return filepath.Join(p.path, "files") }

// worktree returns the directory of an actor's git worktree, if it has one.
func (p place) worktree() string { return filepath.Join(p.path, "worktree") }

// keptWorktree returns that directory if it is there, otherwise "".
func (p place) keptWorktree() string {
	if _, err := os.Lstat(p.worktree()); errors.Is(err, fs.ErrNotExist) {
		return ""
	}
	return p.worktree()
}

func (p place) close() {
	p.stdout.Close()
	p.stderr.Close()
}

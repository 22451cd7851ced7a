// Package project knows which project a directory belongs to. Agents of one
// project work on the same files, so they join the same run.
//
// A project is a git repository: its main checkout and all its worktrees are one.
// A directory outside of any repository is a project of its own. The file
// .leasehold.toml at the root of a project can name its run; see [Settings].
//
// Leases on files are named after the project, too: [Path] gives every spelling of
// a file the same key, in whatever checkout it is.
//
// Git itself is not asked. It refuses repositories of other owners, follows
// GIT_DIR, which hooks set, and need not be there.
package project

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"unicode"

	"github.com/pelletier/go-toml/v2"

	"github.com/leasehold/leasehold/dispatch"
)

// File is the name of the file with a project's [Settings], at its root.
const File = ".leasehold.toml"

// A Project is what a directory belongs to.
type Project struct {
	Root string // the top of the main checkout; without git, the directory
	Top  string // of the checkout that the directory is in

	Repository bool // git has it

	identity string // a path that is the same for every checkout
}

// Settings are what the file of a project says.
type Settings struct {
	Run   string `toml:"run"`   // the name of its run; "": after the project
	Guard Guard  `toml:"guard"` // of what its agents write
}

// Of finds the project of a directory.
func Of(dir string) (Project, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return Project{}, err
	}
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return Project{}, err
	}
	if top, gitDir, ok := checkout(dir); ok {
		return projectAt(top, gitDir), nil
	}
	return Project{Root: dir, Top: dir, identity: dir}, nil
}

// projectAt is the project of a checkout.
func projectAt(top, gitDir string) Project {
	common := commonDir(gitDir)
	if filepath.Base(common) != ".git" { // a bare repository, a submodule, a git directory kept elsewhere
		return Project{Root: top, Top: top, Repository: true, identity: common}
	}
	root := filepath.Dir(common) // the main checkout is known from any worktree
	return Project{Root: root, Top: top, Repository: true, identity: root}
}

// Run is the name of the project's run: what its file says, or else the name of
// its directory and a hash of the path, so that two projects of one name have two
// runs.
func (p Project) Run() (string, error) {
	s, err := p.Settings()
	if err != nil {
		return "", err
	}
	return cmp.Or(s.Run, p.runName()), nil
}

// Settings reads the project's file. Without one there are none.
func (p Project) Settings() (s Settings, err error) {
	file := filepath.Join(p.Root, File)
	text, err := readSmall(file)
	if errors.Is(err, fs.ErrNotExist) {
		return Settings{}, nil
	}
	if err != nil {
		return Settings{}, fmt.Errorf("the project's settings: %w", err)
	}
	dec := toml.NewDecoder(strings.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&s); err != nil {
		return Settings{}, tomlError(file, err)
	}
	if s.Run != "" {
		if err := dispatch.CheckRun(s.Run); err != nil {
			return Settings{}, fmt.Errorf("%s: %w", file, err)
		}
	}
	if err := s.Guard.check(); err != nil {
		return Settings{}, fmt.Errorf("%s: %w", file, err)
	}
	return s, nil
}

// tomlError says where a file is wrong.
func tomlError(file string, err error) error {
	if strict, ok := errors.AsType[*toml.StrictMissingError](err); ok && len(strict.Errors) > 0 {
		first := strict.Errors[0]
		line, column := first.Position()
		return fmt.Errorf("%s:%d:%d: unknown key %q; the keys are: run, guard.policy, guard.paths, guard.hold_secs, guard.without_daemon", file, line, column, strings.Join(first.Key(), "."))
	}
	if wrong, ok := errors.AsType[*toml.DecodeError](err); ok {
		line, column := wrong.Position()
		return fmt.Errorf("%s:%d:%d: %s", file, line, column, strings.TrimPrefix(wrong.Error(), "toml: "))
	}
	return fmt.Errorf("%s: %w", file, err)
}

// maxBase is how many bytes of a directory's name are in a run's.
const maxBase = 48

func (p Project) runName() string {
	sum := sha256.Sum256([]byte(p.identity))
	dir := p.identity
	base := strings.TrimSuffix(filepath.Base(dir), ".git")
	for strings.HasPrefix(base, ".") && dir != filepath.Dir(dir) { // shop/.bare is shop's
		dir = filepath.Dir(dir)
		base = filepath.Base(dir)
	}
	base = Word(base)
	return fmt.Sprintf("%s-%x", cmp.Or(strings.TrimRight(base[:min(len(base), maxBase)], "-."), "project"), sum[:4])
}

// Word makes a part of a name of any text: letters, digits, dots, dashes.
func Word(text string) string {
	return strings.Trim(foreign.ReplaceAllString(text, "-"), "-.")
}

var foreign = regexp.MustCompile(`[^A-Za-z0-9._-]+`)

// Branch is the branch that is checked out where a directory is; of a detached
// HEAD, the first digits of the commit; "" if there is none.
func Branch(dir string) string {
	if !filepath.IsAbs(dir) {
		return ""
	}
	_, gitDir, ok := checkout(dir)
	if !ok {
		return ""
	}
	head, err := readSmall(filepath.Join(gitDir, "HEAD"))
	if err != nil {
		return ""
	}
	head = strings.TrimSpace(head)
	branch, named := strings.CutPrefix(head, "ref: refs/heads/")
	if !named {
		branch = head[:min(len(head), 10)]
	}
	printable := strings.IndexFunc(branch, func(r rune) bool { return !unicode.IsPrint(r) || r == ' ' }) < 0
	if !printable || len(branch) > maxBranch {
		return ""
	}
	return branch
}

const maxBranch = 200

// checkout finds the work tree that a directory is in, and its git directory.
func checkout(dir string) (top, gitDir string, ok bool) {
	for {
		if gitDir, ok := gitDirOf(dir); ok {
			return dir, gitDir, true
		}
		if dir == filepath.Dir(dir) {
			return "", "", false
		}
		dir = filepath.Dir(dir)
	}
}

// gitDirOf is the git directory of the work tree whose top a directory is.
func gitDirOf(dir string) (gitDir string, ok bool) {
	gitDir = filepath.Join(dir, ".git")
	if text, err := readSmall(gitDir); err == nil { // of a worktree or a submodule
		if to, named := strings.CutPrefix(strings.TrimSpace(text), "gitdir: "); named {
			gitDir = within(dir, to)
		}
	}
	info, err := os.Stat(filepath.Join(gitDir, "HEAD"))
	return gitDir, err == nil && info.Mode().IsRegular()
}

// commonDir is what all worktrees of a git directory's repository share.
func commonDir(gitDir string) string {
	common := gitDir
	if text, err := readSmall(filepath.Join(gitDir, "commondir")); err == nil {
		common = within(gitDir, strings.TrimSpace(text))
	}
	if real, err := filepath.EvalSymlinks(common); err == nil {
		return real
	}
	return filepath.Clean(common)
}

func within(dir, path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(dir, path)
}

// maxFile is more than any of the files has.
const maxFile = 64 << 10

// readSmall reads a regular file. Anything else could block whoever opens it.
func readSmall(path string) (string, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return "", err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() || info.Size() > maxFile {
		return "", fmt.Errorf("%s is not a file of at most %d KiB", path, maxFile>>10)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxFile))
	return string(text), err
}

// Package project finds the project that a directory belongs to. Agents of one
// project work on the same files, so they join the same run.
//
// A project is a git repository: its main checkout and all its worktrees are
// one project. Outside of any repository, the nearest directory with a file
// .leasehold.toml, at the directory or above it, is the project. Without one,
// each directory is its own project. That file at the root of a project can
// name its run; see [Settings].
//
// Keys of leases on files depend on the project, too: [Path] gives every
// spelling of a file the same key, in whatever checkout it is.
//
// The package does not run git. Git refuses repositories of other owners,
// follows GIT_DIR, which hooks set, and may not be installed.
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

// File is the name of the file, at the root of a project, that has its
// [Settings].
const File = ".leasehold.toml"

// A Project is the project of a directory.
type Project struct {
	Root string // the top of the main checkout; without git, the directory with the settings, or the directory itself
	Top  string // of the checkout that the directory is in

	Repository bool // whether it is a git repository

	identity string // a path that is the same for every checkout
}

// Settings are the contents of a project's settings file.
type Settings struct {
	Run   string `toml:"run"`   // the name of its run; "": derived from the project
	Guard Guard  `toml:"guard"` // settings for guarded writes
}

// Of returns the project of a directory. Where the file system ignores case,
// every spelling of a directory leads to the same project.
func Of(dir string) (Project, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return Project{}, err
	}
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return Project{}, err
	}
	dir = spelled(dir)
	if top, gitDir, ok := checkout(dir); ok {
		return projectAt(top, gitDir), nil
	}
	root := marked(dir)
	return Project{Root: root, Top: root, identity: root}, nil
}

// marked returns the nearest directory that has a settings file, at dir or above it, and
// dir if there is none. A file of another user does not count: in /tmp it would decide
// for everybody.
func marked(dir string) string {
	for root := dir; ; root = filepath.Dir(root) {
		if info, err := os.Stat(filepath.Join(root, File)); err == nil && info.Mode().IsRegular() {
			if stat, ok := info.Sys().(*syscall.Stat_t); ok && (stat.Uid == 0 || int(stat.Uid) == os.Getuid()) {
				return root
			}
		}
		if root == filepath.Dir(root) {
			return dir
		}
	}
}

// projectAt returns the project of a checkout.
func projectAt(top, gitDir string) Project {
	common := commonDir(gitDir)
	if filepath.Base(common) != ".git" { // a bare repository, a submodule, or a git directory in another place
		return Project{Root: top, Top: top, Repository: true, identity: common}
	}
	root := filepath.Dir(common) // any worktree leads to the main checkout
	return Project{Root: root, Top: top, Repository: true, identity: root}
}

// Around returns the project that has p as a submodule, if there is one. Its agents may
// lease the files of the submodule, too.
func (p Project) Around() (around Project, ok bool) {
	top, gitDir, ok := checkout(filepath.Dir(p.Top))
	if !ok {
		return Project{}, false
	}
	if real, err := filepath.EvalSymlinks(gitDir); err == nil {
		gitDir = spelled(real)
	}
	modules := filepath.Join(gitDir, "modules") + string(filepath.Separator)
	if !strings.HasPrefix(p.identity, modules) {
		return Project{}, false // another repository, which only happens to be there
	}
	return projectAt(top, gitDir), true
}

// Run returns the name of the project's run: the one in its settings or, by
// default, the name of its directory with a hash of the path. The hash gives
// two projects with the same name different runs.
func (p Project) Run() (string, error) {
	s, err := p.Settings()
	if err != nil {
		return "", err
	}
	return cmp.Or(s.Run, p.runName()), nil
}

// Settings reads the project's settings file. If there is none, all settings
// are zero.
func (p Project) Settings() (s Settings, err error) {
	file := filepath.Join(p.Root, File)
	text, err := readSmall(file)
	if errors.Is(err, fs.ErrNotExist) {
		return Settings{}, nil
	}
	if err != nil {
		return Settings{}, fmt.Errorf("the project's settings: %w", err)
	}
	dec := toml.NewDecoder(strings.NewReader(strings.TrimPrefix(text, "\uFEFF"))) // some editors begin with a byte order mark
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

// tomlError adds the position of the error in the file.
func tomlError(file string, err error) error {
	if strict, ok := errors.AsType[*toml.StrictMissingError](err); ok && len(strict.Errors) > 0 {
		first := strict.Errors[0]
		line, column := first.Position()
		return fmt.Errorf("%s:%d:%d: unknown key %q; the keys are: run, guard.policy, guard.paths, guard.hold_secs, guard.without_daemon", file, line, column, strings.Join(first.Key(), "."))
	}
	if wrong, ok := errors.AsType[*toml.DecodeError](err); ok {
		line, column := wrong.Position()
		what := strings.TrimPrefix(wrong.Error(), "toml: ")
		if strings.HasPrefix(what, "cannot ") { // which names types of Go
			what = "a value of another type belongs here: run, policy and without_daemon are texts, paths is a list of texts, hold_secs is a number, and guard is a table"
		}
		return fmt.Errorf("%s:%d:%d: %s", file, line, column, what)
	}
	return fmt.Errorf("%s: %w", file, err)
}

// maxBase is how many bytes of a directory's name are used in the name of its
// run.
const maxBase = 48

func (p Project) runName() string {
	sum := sha256.Sum256([]byte(p.identity))
	dir := p.identity
	base := strings.TrimSuffix(filepath.Base(dir), ".git")
	for strings.HasPrefix(base, ".") && dir != filepath.Dir(dir) { // shop/.bare is named shop
		dir = filepath.Dir(dir)
		base = filepath.Base(dir)
	}
	base = Word(base)
	return fmt.Sprintf("%s-%x", cmp.Or(strings.TrimRight(base[:min(len(base), maxBase)], "-."), "project"), sum[:4])
}

// Word turns any text into a part of a name: letters, digits, dots, underscores
// and dashes.
func Word(text string) string {
	return strings.Trim(foreign.ReplaceAllString(text, "-"), "-.")
}

var foreign = regexp.MustCompile(`[^A-Za-z0-9._-]+`)

// Branch returns the branch that is checked out in a directory. For a detached
// HEAD it returns the first digits of the commit, and "" if there is neither.
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

// gitDirOf returns the git directory of the work tree whose top is dir.
func gitDirOf(dir string) (gitDir string, ok bool) {
	gitDir = filepath.Join(dir, ".git")
	if text, err := readSmall(gitDir); err == nil { // a worktree or a submodule
		if to, named := strings.CutPrefix(strings.TrimSpace(text), "gitdir: "); named {
			gitDir = within(dir, to)
		}
	}
	info, err := os.Stat(filepath.Join(gitDir, "HEAD"))
	return gitDir, err == nil && info.Mode().IsRegular()
}

// commonDir returns the directory that all worktrees of a repository share.
func commonDir(gitDir string) string {
	common := gitDir
	if text, err := readSmall(filepath.Join(gitDir, "commondir")); err == nil {
		common = within(gitDir, strings.TrimSpace(text))
	}
	if real, err := filepath.EvalSymlinks(common); err == nil {
		return spelled(real)
	}
	return filepath.Clean(common)
}

func within(dir, path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(dir, path)
}

// maxFile is the greatest size of a file that is read; all of them are smaller.
const maxFile = 64 << 10

// readSmall reads a regular file. Opening or reading anything else could block.
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

package project

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"github.com/leasehold/leasehold/registry"
	"github.com/leasehold/leasehold/registry/filekey"
)

// Path returns the key of the lease on a file or directory. Every spelling of a
// path has the same key: "file:" and the path from the top of the checkout, or
// the absolute path if the file is in no checkout of the project. With /** at
// its end it is the key of a directory and everything below it.
//
// A relative path starts at dir, which also determines the project. In every
// worktree src/app.ts is src/app.ts of the project, because two agents that
// change it in two worktrees conflict when their branches are merged. So a
// lease keeps agents from changing the same file wherever their copies are.
//
// Symbolic links are followed, even if the file does not exist yet. On a file
// system that ignores case, the key is in lower case. If dir is "", as for a
// client on another machine, only the text is used, and the path must be
// relative to the top of the project. If dir is gone, so is what it belongs to: then the
// path must begin with "file:", and only its text is used.
//
// The key itself is a valid spelling of the path. An error is a
// [registry.ArgumentError].
func Path(dir, name string) (key string, err error) {
	s := parse(name)
	if err := s.check(); err != nil {
		return "", err
	}
	var canonical string
	if dir == "" {
		canonical, err = s.lexical()
	} else {
		canonical, err = s.located(dir)
	}
	if err != nil {
		return "", err
	}
	key = filekey.Of(norm.NFC.String(canonical), s.tree)
	if len(key) > registry.MaxKey {
		return "", wrong("must be at most %d bytes in its canonical form", registry.MaxKey-len(filekey.Prefix))
	}
	return key, nil
}

// CheckOne refuses a path that is meant as one of several files: a lease would guard none
// of them. Brackets are no sign of that, because frameworks name files such as [id].tsx.
// What begins with "file:" is a key, or is written so on purpose. [Path] refuses a *.
func CheckOne(name string) error {
	if strings.HasPrefix(name, filekey.Prefix) || !pattern.MatchString(name) {
		return nil
	}
	return wrong(oneOnly + "; for a file that really has such a name write file: and its path from the top of the project")
}

var pattern = regexp.MustCompile(`\?|\{[^{}]*,[^{}]*\}`)

const oneOnly = "must name one file or directory, or with /** at its end a directory and all below it; take several with lease_acquire_many"

// Home replaces a ~ at the beginning of a path by the user's home directory, as shells
// and the clients' tools do.
func Home(name string) string {
	if rest, ok := inHome(name); ok {
		if home, err := os.UserHomeDir(); err == nil {
			return filepath.Join(home, rest)
		}
	}
	return name
}

// inHome returns what follows a ~ at the beginning of a path.
func inHome(name string) (rest string, ok bool) {
	return strings.CutPrefix(name+"/", "~/")
}

func wrong(format string, args ...any) error {
	return &registry.ArgumentError{Argument: "path", Problem: fmt.Sprintf(format, args...)}
}

// A spelling is a path as a caller wrote it.
type spelling struct {
	text string // with slashes, without /**
	top  bool   // it starts at the top of the project
	tree bool   // it includes everything below the directory
}

func parse(name string) (s spelling) {
	text := strings.ReplaceAll(name, `\`, "/")
	if rest, ok := strings.CutPrefix(text, filekey.Prefix); ok {
		text, s.top = rest, !path.IsAbs(rest) // an absolute one is a URL such as file:///etc/hosts
	}
	s.text = strings.TrimRight(text, "/")
	if dir, ok := strings.CutSuffix(s.text, "**"); ok && (dir == "" || strings.HasSuffix(dir, "/")) {
		s.text, s.tree = dir, true
	}
	if s.text == "" && path.IsAbs(text) {
		s.text = "/"
	}
	return s
}

// check returns an error if the spelling is not that of a path.
func (s spelling) check() error {
	switch {
	case s.text == "" && !s.tree:
		return wrong("must not be empty")
	case !utf8.ValidString(s.text):
		return wrong("must be valid UTF-8")
	case strings.Contains(s.text, "*"):
		return wrong(oneOnly)
	}
	if problem := registry.Unseen(s.text); problem != "" {
		return wrong("%s", problem)
	}
	return nil
}

// lexical returns the canonical path from the text alone.
func (s spelling) lexical() (string, error) {
	clean := path.Clean(s.text)
	_, home := inHome(clean)
	if path.IsAbs(clean) || strings.HasPrefix(clean+"/", "../") || home && !s.top {
		return "", wrong("must be relative to the top of the project, and in it: it is not known where you work")
	}
	return clean, nil
}

// located returns the canonical path from the files on disk, for a caller that
// works in dir.
func (s spelling) located(dir string) (string, error) {
	p, err := Of(dir)
	switch gone := errors.Is(err, fs.ErrNotExist); { // removed with its worktree, or renamed
	case gone && s.top:
		return s.lexical()
	case gone:
		why := "your directory is gone: " + err.Error()
		if strings.ContainsRune(dir, utf8.RuneError) { // as it comes in JSON
			why = fmt.Sprintf("the name of your directory is not valid UTF-8: %s", dir)
		}
		return "", wrong("must begin with file: and go on from the top of the project, such as file:src/app.ts, because %s", why)
	case err != nil:
		return "", wrong("is unknown, because your directory cannot be read; make it readable, or work in another one: %v", err)
	}
	from := dir
	if s.top {
		from = p.Top
	}
	text := s.text
	if !s.top {
		text = Home(text)
	}
	if !path.IsAbs(text) {
		text = from + "/" + text
	}
	real, err := Resolve(text)
	if err != nil {
		return "", err
	}
	if s.tree && above(real, p.Root) {
		return "", wrong("must not be a directory above the project, %s: it would cover every file of it", p.Root)
	}
	if top, ok := p.checkoutOf(real); ok {
		rel := strings.Trim(strings.TrimPrefix(real, top), "/")
		return path.Clean(fold(top, rel)), nil
	}
	return "/" + fold("/", real[1:]), nil
}

// checkoutOf finds the top of the project's checkout that a path is in. If one
// checkout is inside another, as git worktrees often are, it returns the inner
// one.
func (p Project) checkoutOf(real string) (top string, ok bool) {
	for dir := real; ; dir = filepath.Dir(dir) {
		gitDir, ok := gitDirOf(dir)
		if same(dir, p.Root) || ok && same(projectAt(dir, gitDir).identity, p.identity) {
			return dir, true
		}
		if dir == "/" {
			return "", false
		}
	}
}

// above reports whether dir is an ancestor of name.
func above(dir, name string) bool {
	for name != "/" {
		if name = filepath.Dir(name); same(dir, name) {
			return true
		}
	}
	return false
}

// same reports whether two paths name the same directory.
func same(a, b string) bool {
	if a == b {
		return true
	}
	ia, err := os.Stat(a)
	if err != nil {
		return false
	}
	ib, err := os.Stat(b)
	return err == nil && os.SameFile(ia, ib)
}

const (
	maxLinks = 40      // symbolic links in a path
	maxPath  = 4 << 10 // bytes that no file's path has more of
)

// Resolve follows the symbolic links of an absolute path and spells it as the
// directories do. A part that does not exist or cannot be read counts as no
// link.
func Resolve(name string) (string, error) {
	if len(name) > maxPath {
		return "", wrong("must be at most %d bytes", maxPath)
	}
	real, links := "/", 0
	for todo := strings.Split(name, "/"); len(todo) > 0; {
		part := todo[0]
		todo = todo[1:]
		next := filepath.Join(real, part) // for .. the parent directory
		to, err := os.Readlink(next)
		if err != nil || part == ".." {
			real = next
			continue
		}
		if links++; links > maxLinks {
			return "", wrong("must not lead through more than %d symbolic links", maxLinks)
		}
		if path.IsAbs(to) {
			real = "/"
		}
		todo = append(strings.Split(to, "/"), todo...)
	}
	return spelled(real), nil
}

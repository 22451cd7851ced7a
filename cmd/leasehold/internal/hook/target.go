package hook

import (
	"cmp"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/text/unicode/norm"

	"github.com/leasehold/leasehold/cmd/leasehold/internal/place"
	"github.com/leasehold/leasehold/dispatch/project"
	"github.com/leasehold/leasehold/registry"
	"github.com/leasehold/leasehold/registry/filekey"
)

// A target is the part of a write that changes one project.
type target struct {
	Run  string   `json:"run"`
	Home bool     `json:"home"` // the project that the client works in
	Keys []string `json:"keys"`

	names []string // as the client named the files of the keys
}

// targets returns the projects that files belong to, with their lease keys there. The
// place of a file decides, and not the directory in which the client works: the lease
// belongs to the run of the file's project, because the agents of that run may write to
// the file. Files that their project does not guard are left out.
//
// A file of another project, such as a submodule, has a lease in the run of the client's
// project, too: the other agents of that run lease it there, with the tools.
//
// unknown are the files of which that cannot be told, and why says so for one of them.
// The list is of the other files.
func targets(home project.Project, dir string, files []string) (list []target, unknown []string, why error) {
	for _, name := range files {
		var err error
		if list, err = addTargets(list, home, dir, name); err != nil {
			unknown, why = append(unknown, name), err
		}
	}
	return list, unknown, why
}

// addTargets adds the keys of a file in its projects.
func addTargets(list []target, home project.Project, dir, name string) ([]target, error) {
	path, err := absolute(dir, name)
	if err != nil {
		return list, err
	}
	of, err := projectOf(home, path)
	if err != nil {
		return list, err
	}
	both := []project.Project{of}
	if of.Root != home.Root {
		both = []project.Project{home, of} // for its own lease the client can wait
	}
	for _, p := range both {
		if list, err = addTarget(list, home, p, path, name); err != nil {
			return list, err
		}
	}
	return list, nil
}

// addTarget adds the key of a file in one of its projects, if that guards the file.
func addTarget(list []target, home, of project.Project, path, name string) ([]target, error) {
	key, err := keyOf(of.Top, path)
	if err != nil {
		return list, err
	}
	settings, err := of.Settings()
	if err != nil {
		return list, err
	}
	if !settings.Guard.Guards(strings.TrimPrefix(key, filekey.Prefix)) {
		return list, nil
	}
	t := target{Home: of.Root == home.Root}
	if t.Run, err = of.Run(); err != nil {
		return list, err
	}
	if t.Home {
		t.Run = cmp.Or(place.NamedRun(""), t.Run)
	}
	i := slices.IndexFunc(list, func(other target) bool { return other.Run == t.Run })
	if i < 0 {
		i, list = len(list), append(list, t)
	}
	list[i].Keys, list[i].names = append(list[i].Keys, key), append(list[i].names, name)
	return list, nil
}

// keyOf returns the key of the lease for a change of a file, which need not exist. Some
// files have names that no key can have, such as one with a line break in it, or are so
// deep that their path is too long for a key. The key of such a file is that of a
// directory above it: whoever has leased all that is in the directory has leased the
// file, too.
func keyOf(top, path string) (string, error) {
	for strings.HasPrefix(path, top) && len(norm.NFC.String(path[len(top):])) > registry.MaxKey {
		path = filepath.Dir(path) // without a look at each directory
	}
	key, err := project.Path(top, path)
	if _, nameless := errors.AsType[*registry.ArgumentError](err); nameless && path != filepath.Dir(path) {
		return keyOf(top, filepath.Dir(path))
	}
	return key, err
}

// projectOf returns the project of a file. A file below the top of the client's project
// that is in no repository belongs to the client's project.
func projectOf(home project.Project, path string) (project.Project, error) {
	of, err := project.Of(existing(filepath.Dir(path)))
	if err == nil && !of.Repository && within(home.Top, path) {
		of = home
	}
	return of, err
}

// existing returns dir, or the nearest directory above it that exists.
func existing(dir string) string {
	for {
		info, err := os.Stat(dir)
		if err == nil && info.IsDir() || dir == filepath.Dir(dir) {
			return dir
		}
		dir = filepath.Dir(dir)
	}
}

// absolute returns the path of a file with its links resolved. The file need not exist
// yet.
func absolute(dir, name string) (string, error) {
	if name = project.Home(name); !filepath.IsAbs(name) {
		name = filepath.Join(dir, name)
	}
	return project.Resolve(name)
}

func within(dir, path string) bool {
	return strings.HasPrefix(path, strings.TrimSuffix(dir, string(filepath.Separator))+string(filepath.Separator))
}

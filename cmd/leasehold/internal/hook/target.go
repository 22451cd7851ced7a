package hook

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/leasehold/leasehold/cmd/leasehold/internal/place"
	"github.com/leasehold/leasehold/dispatch/project"
	"github.com/leasehold/leasehold/registry"
)

// A target is what a write changes in one project.
type target struct {
	Run  string   `json:"run"`
	Home bool     `json:"home"` // the project that the client works in
	Keys []string `json:"keys"`

	names []string // as the client named the files of the keys
}

// targets are the projects that files belong to, and their leases there. What
// counts is where a file is, and not where the client works: the run of the project
// that it is in is the one whose agents may write to it.
func targets(home project.Project, settings project.Settings, dir string, files []string) (list []target, err error) {
	for _, name := range files {
		path, err := absolute(dir, name)
		if err != nil {
			return nil, err
		}
		of, err := projectOf(home, path)
		if err != nil {
			return nil, err
		}
		key, err := project.Path(of.Top, path)
		if err != nil {
			return nil, err
		}
		guard := settings.Guard
		t := target{Home: of.Root == home.Root}
		if !t.Home {
			other, err := of.Settings()
			if err != nil {
				return nil, err
			}
			guard = other.Guard
		}
		if !guard.Guards(strings.TrimPrefix(key, registry.PathPrefix)) {
			continue
		}
		if t.Run, err = of.Run(); err != nil {
			return nil, err
		}
		if t.Home {
			t.Run = cmp.Or(place.NamedRun(""), t.Run)
		}
		i := slices.IndexFunc(list, func(other target) bool { return other.Run == t.Run && other.Home == t.Home })
		if i < 0 {
			i, list = len(list), append(list, t)
		}
		list[i].Keys, list[i].names = append(list[i].Keys, key), append(list[i].names, name)
	}
	return list, nil
}

// projectOf is the project of a file. A directory that is in no repository and
// below the one that the client works in is of the client's project.
func projectOf(home project.Project, path string) (project.Project, error) {
	dir := filepath.Dir(path)
	for {
		info, err := os.Stat(dir)
		if err == nil && info.IsDir() || dir == filepath.Dir(dir) {
			break
		}
		dir = filepath.Dir(dir)
	}
	of, err := project.Of(dir)
	if err == nil && !of.Repository && within(home.Top, path) {
		of = home
	}
	return of, err
}

// absolute is where a file is that may not be there yet, links followed.
func absolute(dir, name string) (string, error) {
	if rest, ok := strings.CutPrefix(name, "~/"); ok {
		if home, err := os.UserHomeDir(); err == nil {
			name = filepath.Join(home, rest)
		}
	}
	if !filepath.IsAbs(name) {
		name = filepath.Join(dir, name)
	}
	return project.Resolve(name)
}

func within(dir, path string) bool {
	return strings.HasPrefix(path, strings.TrimSuffix(dir, string(filepath.Separator))+string(filepath.Separator))
}

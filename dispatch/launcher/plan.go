package launcher

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/leasehold/leasehold/dispatch/agent"
	"github.com/leasehold/leasehold/dispatch/manifest"
)

// A plan is the part of the manifest that a launcher needs. The dispatcher sends it to
// the launchers of other machines, through the daemon.
type plan struct {
	Agents    map[string]agent.Profile `json:"agents"`
	Notes     string                   `json:"notes,omitempty"`
	GraceSecs float64                  `json:"grace_secs"`
	Directory string                   `json:"directory"` // the root actor's, on the dispatcher's machine
	Manifest  string                   `json:"manifest"`  // the manifest's directory, on the dispatcher's machine

	base string // the directory on this machine that corresponds to Directory
}

func planOf(m *manifest.Manifest) plan {
	return plan{
		Agents: m.Agents, Notes: m.Notes(), GraceSecs: m.Run.DrainGraceSecs,
		Directory: m.Root.Directory, Manifest: m.Dir, base: m.Root.Directory,
	}
}

// here returns the path on this machine of a directory that an order names. A relative
// path, and one below the root actor's directory, is moved below base. Any other
// absolute path stays as it is.
func (p plan) here(dir string) string {
	if dir == "" {
		return p.base
	}
	if !filepath.IsAbs(dir) {
		return filepath.Join(p.base, dir)
	}
	if rest, ok := below(p.Directory, dir); ok {
		return filepath.Join(p.base, rest)
	}
	return dir
}

// below returns the path from dir to path, if path is dir or below it.
func below(dir, path string) (rest string, ok bool) {
	rest, err := filepath.Rel(dir, path)
	return rest, err == nil && rest != ".." && !strings.HasPrefix(rest, "../")
}

// agent returns the profile of that name. A program in the manifest's directory, or
// below it, is looked for below base if base is another directory than the root actor's.
func (p plan) agent(name string) (agent.Profile, bool) {
	profile, ok := p.Agents[name]
	if ok && p.base != p.Directory && len(profile.Command) > 0 && filepath.IsAbs(profile.Command[0]) {
		if rest, inside := below(p.Manifest, profile.Command[0]); inside {
			profile.Command = slices.Clone(profile.Command)
			profile.Command[0] = filepath.Join(p.base, rest)
		}
	}
	return profile, ok
}

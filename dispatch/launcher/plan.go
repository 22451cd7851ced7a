package launcher

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/leasehold/leasehold/dispatch/agent"
	"github.com/leasehold/leasehold/dispatch/manifest"
)

// A plan is what a launcher needs to know of the manifest. The dispatcher gives it to
// the launchers of other machines, through the daemon.
type plan struct {
	Agents    map[string]agent.Profile `json:"agents"`
	Notes     string                   `json:"notes,omitempty"`
	GraceSecs float64                  `json:"grace_secs"`
	Directory string                   `json:"directory"` // the root's, on the dispatcher's machine
	Manifest  string                   `json:"manifest"`  // directory of the manifest, there

	base string // what stands for Directory here
}

func planOf(m *manifest.Manifest) plan {
	return plan{
		Agents: m.Agents, Notes: m.Notes(), GraceSecs: m.Run.DrainGraceSecs,
		Directory: m.Root.Directory, Manifest: m.Dir, base: m.Root.Directory,
	}
}

// here is where a directory of an order is on this machine. One below the root's is
// below what stands for that; any other is where its path says.
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

// below is the path from dir to path, if that is dir or below it.
func below(dir, path string) (rest string, ok bool) {
	rest, err := filepath.Rel(dir, path)
	return rest, err == nil && rest != ".." && !strings.HasPrefix(rest, "../")
}

// agent is the profile of that name. A program that is named from the manifest's
// directory is looked for below what stands for that here.
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

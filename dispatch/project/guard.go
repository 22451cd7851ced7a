package project

import (
	"fmt"
	"path"
	"strings"
	"time"
)

// A Guard has the settings for guarded writes to files of the project: see
// leasehold hook.
type Guard struct {
	Policy        string   `toml:"policy"`         // Refuse or Report; "": Refuse
	Paths         []string `toml:"paths"`          // patterns of guarded files; none: all files
	HoldSecs      *float64 `toml:"hold_secs"`      // nil: 300
	WithoutDaemon string   `toml:"without_daemon"` // Allow or Refuse; "": Allow
}

// Values of Policy and WithoutDaemon.
const (
	Refuse = "refuse"
	Report = "report" // a write to a file that another party has leased is allowed and recorded
	Allow  = "allow"
)

// Hold is how long an agent that is quiet keeps the files that it has written
// to.
func (g Guard) Hold() time.Duration {
	if g.HoldSecs == nil {
		return 5 * time.Minute
	}
	return time.Duration(*g.HoldSecs * float64(time.Second))
}

func (g Guard) check() error {
	word := func(name, value string, words ...string) error {
		for _, w := range words {
			if value == w || value == "" {
				return nil
			}
		}
		return fmt.Errorf("guard.%s = %q must be %s", name, value, strings.Join(words, " or "))
	}
	if err := word("policy", g.Policy, Refuse, Report); err != nil {
		return err
	}
	if err := word("without_daemon", g.WithoutDaemon, Allow, Refuse); err != nil {
		return err
	}
	if secs := g.HoldSecs; secs != nil && !(*secs >= 1 && *secs <= 86400) { // also if it is no number
		return fmt.Errorf("guard.hold_secs = %v must be from 1 to 86400", *g.HoldSecs)
	}
	for _, pattern := range g.Paths {
		if _, err := path.Match(strings.TrimPrefix(pattern, "!"), ""); err != nil || strings.TrimPrefix(pattern, "!") == "" {
			return fmt.Errorf("guard.paths: %q must be a pattern such as src/**, *.go or !docs/**", pattern)
		}
	}
	return nil
}

// Guards reports whether a file is guarded. file is its path from the top of
// its checkout. The last pattern that matches decides. A pattern without a
// slash matches at any depth, ** matches any number of directories, and a
// leading ! excludes what matches.
func (g Guard) Guards(file string) bool {
	guarded := len(g.Paths) == 0 || strings.HasPrefix(g.Paths[0], "!")
	for _, pattern := range g.Paths {
		pattern, without := strings.CutPrefix(pattern, "!")
		if !strings.Contains(pattern, "/") {
			pattern = "**/" + pattern
		}
		if fits(strings.Split(pattern, "/"), strings.Split(file, "/")) {
			guarded = !without
		}
	}
	return guarded
}

// fits reports whether a pattern matches a path, name by name. Only the last ** needs to
// be tried with more names: if the rest fits after a longer match of an earlier one, the
// last one can take up the difference. Trying all of them would take exponential time,
// and the pattern may be from a repository of others.
func fits(pattern, names []string) bool {
	last, mark := -1, 0 // index of the last **, and the first name after its match
	i, j := 0, 0
	for j < len(names) {
		switch {
		case i < len(pattern) && pattern[i] == "**":
			last, mark = i, j
			i++
		case i < len(pattern) && fitsName(pattern[i], names[j]):
			i++
			j++
		case last >= 0:
			mark++
			i, j = last+1, mark
		default:
			return false
		}
	}
	for i < len(pattern) && pattern[i] == "**" {
		i++
	}
	return i == len(pattern)
}

func fitsName(pattern, name string) bool {
	ok, err := path.Match(pattern, name)
	return err == nil && ok
}

package kvstore

import (
	"fmt"
	"slices"
	"strings"

	"github.com/bmatcuk/doublestar/v4"

	"github.com/leasehold/leasehold/registry"
)

// maxAlternatives is the greatest number of patterns that the braces of a glob
// may expand to.
const maxAlternatives = 64

// A Glob is a pattern of paths: * and ? within a segment, ** for any number of
// segments, [a-z] and [!a-z], {a,b}. A Glob comes from [ParseGlob].
type Glob struct {
	patterns []string // the glob with its braces expanded; each is canonical
}

// ParseGlob parses a glob. Like a path, a glob must be canonical, and it must
// begin with one of the four roots or a pattern for them. A glob that can match
// no path is refused, because it would silently list nothing.
func ParseGlob(s string) (Glob, error) {
	patterns, problem := parseGlob(s)
	if problem != "" {
		return Glob{}, &registry.ArgumentError{Argument: "glob", Problem: problem}
	}
	return Glob{patterns}, nil
}

// Match reports whether g matches p.
func (g Glob) Match(p Path) bool {
	ok, _ := g.match(p)
	return ok
}

// WithPeers returns g with the segment after /peer/ replaced by name(segment),
// where that segment has no wildcard. Segments with wildcards are not replaced:
// they match the names in canonical paths.
func (g Glob) WithPeers(name func(segment string) (string, error)) (Glob, error) {
	patterns := slices.Clone(g.patterns)
	for i, pattern := range patterns {
		segments := strings.Split(pattern, "/") // the first is empty
		if segments[1] != Peer || strings.ContainsAny(segments[2], meta) {
			continue
		}
		var err error
		if segments[2], err = name(segments[2]); err != nil {
			return Glob{}, err
		}
		patterns[i] = strings.Join(segments, "/")
	}
	return Glob{patterns}, nil
}

// prefix returns the longest known prefix of all paths that g matches.
func (g Glob) prefix() string {
	if len(g.patterns) == 0 {
		return ""
	}
	prefix := literal(g.patterns[0])
	for _, pattern := range g.patterns[1:] {
		other := literal(pattern)
		n := 0
		for n < min(len(prefix), len(other)) && prefix[n] == other[n] {
			n++
		}
		prefix = prefix[:n]
	}
	return prefix
}

// literal returns the part of a pattern before the first wildcard. A slash at
// its end is removed, because /shared/a/** also matches /shared/a.
func literal(pattern string) string {
	if i := strings.IndexAny(pattern, meta); i >= 0 {
		return strings.TrimSuffix(pattern[:i], "/")
	}
	return pattern
}

func parseGlob(s string) (patterns []string, problem string) {
	if problem := textProblem(s); problem != "" {
		return nil, problem
	}
	if strings.Contains(s, `\`) {
		return nil, `must not hold '\': no path has a character that needs it`
	}
	if !doublestar.ValidatePattern(s) {
		return nil, "must have every [ and { closed, and no empty []"
	}
	patterns, ok := expand(nil, s)
	if !ok {
		return nil, fmt.Sprintf("must not expand to more than %d patterns by its braces", maxAlternatives)
	}
	for _, pattern := range patterns {
		if problem := patternProblem(pattern); problem != "" {
			if len(patterns) > 1 {
				problem += fmt.Sprintf(" (in %q)", pattern)
			}
			return nil, problem
		}
	}
	return patterns, ""
}

// expand appends the patterns without braces that s expands to. It returns
// false if there are too many.
func expand(list []string, s string) (_ []string, ok bool) {
	open, commas, end := braces(s)
	if open < 0 {
		return append(list, s), len(list) < maxAlternatives
	}
	from := open + 1
	for _, to := range append(commas, end) {
		if list, ok = expand(list, s[:open]+s[from:to]+s[end+1:]); !ok {
			return nil, false
		}
		from = to + 1
	}
	return list, true
}

// braces finds the first pair of braces in a valid pattern, and the commas
// between its alternatives. Braces and commas in a character class do not
// count.
func braces(s string) (open int, commas []int, end int) {
	open = -1
	for i, depth := 0, 0; i < len(s); i++ {
		switch s[i] {
		case '[':
			i = classEnd(s, i)
		case '{':
			if depth++; depth == 1 {
				open = i
			}
		case ',':
			if depth == 1 {
				commas = append(commas, i)
			}
		case '}':
			if depth--; depth == 0 {
				return open, commas, i
			}
		}
	}
	return -1, nil, 0
}

// classEnd returns the index at which the class that opens at i closes.
func classEnd(s string, i int) int {
	if i++; i < len(s) && (s[i] == '!' || s[i] == '^') {
		i++
	}
	n := strings.IndexByte(s[min(i, len(s)):], ']')
	if n < 0 {
		return len(s) // invalid, but parseGlob has excluded that
	}
	return i + n
}

// patternProblem returns what is wrong with a pattern without braces; "" if it
// is a valid pattern of paths.
func patternProblem(pattern string) string {
	if c := canonical(pattern); c != pattern {
		return "must be canonical: " + c
	}
	segments := strings.Split(pattern[1:], "/")
	for _, segment := range segments {
		if !doublestar.ValidatePattern(segment) {
			return "must not have a / inside []"
		}
	}
	if root := segments[0]; root != "**" && !slices.ContainsFunc([]string{Ref, Peer, Shared, Leases}, func(r string) bool {
		return doublestar.MatchUnvalidated(root, r)
	}) {
		return fourRoots
	}
	need := 2
	if segments[0] == Peer {
		need = 3 // entries of a peer are below its name
	}
	if len(segments) < need && !slices.Contains(segments, "**") {
		return "matches no path; to list all below, use " + strings.TrimSuffix(pattern, "/*") + "/**"
	}
	return ""
}

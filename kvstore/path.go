package kvstore

import (
	"cmp"
	"fmt"
	"path"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"github.com/leasehold/leasehold/registry"
)

// The first segments that a path can have.
const (
	Ref    = "ref"
	Peer   = "peer"
	Shared = "shared"
	Leases = "leases"
)

// MaxPath is how many bytes a path or a glob can have.
const MaxPath = 512

const (
	meta      = `*?[]{}\`
	escape    = `\` // in a glob, before a meta character that stands for itself
	fourRoots = "must be under /ref/, /peer/, /shared/ or /leases/"
)

// A Path names one entry. Only [ParsePath] makes one, so two Paths are equal
// if and only if they name the same entry.
type Path struct{ s string }

// ParsePath reads the one spelling a path has: absolute, under one of the four
// roots, no empty, "." or ".." segment, no trailing slash, NFC, printable, no
// character that a glob gives a meaning to. Under /leases/ only the backslash is
// refused of those: a lease is often named after a file, such as app/[id].tsx.
// Any other spelling is refused with a
// [registry.ArgumentError] that gives the canonical form, if it has one.
func ParsePath(s string) (Path, error) {
	if problem := pathProblem(s); problem != "" {
		return Path{}, &registry.ArgumentError{Argument: "path", Problem: problem}
	}
	return Path{s}, nil
}

// LeaseName gives the registry's key for the name of a layer's lease. The name
// is the path below /leases/ or that path itself: output-file and
// /leases/output-file are the same lease, whose key is output-file.
func LeaseName(name string) (string, error) {
	const root = "/" + Leases + "/"
	full, absolute := name, strings.HasPrefix(name, "/")
	if !absolute {
		full = root + name
	}
	problem := pathProblem(full)
	key, below := strings.CutPrefix(full, root)
	// leases/x would be taken for /leases/x by whoever reads it.
	if problem == "" && below && !strings.HasPrefix(key, Leases+"/") {
		return key, nil
	}

	key, below = strings.CutPrefix(canonical(full), root)
	for strings.HasPrefix(key, Leases+"/") {
		key = strings.TrimPrefix(key, Leases+"/")
	}
	switch {
	case name == "":
		problem = "must not be empty"
	case !below && absolute:
		problem = "must be a name such as output-file, or its path " + root + "output-file"
	case pathProblem(root+key) == "" && absolute:
		problem = "must be canonical: " + root + key
	case pathProblem(root+key) == "":
		problem = "must be canonical: " + key
	}
	return "", &registry.ArgumentError{Argument: "name", Problem: problem}
}

// String is the canonical path.
func (p Path) String() string { return p.s }

// Root is the first segment: [Ref], [Peer], [Shared] or [Leases].
func (p Path) Root() string {
	root, _, _ := strings.Cut(strings.TrimPrefix(p.s, "/"), "/")
	return root
}

// Peer is the second segment of a path under /peer/, else "".
func (p Path) Peer() string {
	rest, ok := strings.CutPrefix(p.s, "/"+Peer+"/")
	if !ok {
		return ""
	}
	name, _, _ := strings.Cut(rest, "/")
	return name
}

// WithPeer returns the path under /peer/ with name for its second segment.
func (p Path) WithPeer(name string) (Path, error) {
	rest := strings.TrimPrefix(p.s, "/"+Peer+"/"+p.Peer())
	return ParsePath("/" + Peer + "/" + name + rest)
}

// space is what a path shares its counter of versions with.
func (p Path) space() string {
	if name := p.Peer(); name != "" {
		return "/" + Peer + "/" + name
	}
	return "/" + p.Root()
}

// pathProblem says what keeps s from being a path; "" if it is one.
func pathProblem(s string) string {
	if problem := spellingProblem(s); problem != "" {
		return problem
	}
	c := canonical(s)
	if problem := cmp.Or(spellingProblem(c), placeProblem(c)); problem != "" {
		return problem
	}
	if c != s {
		return "must be canonical: " + c
	}
	return ""
}

// spellingProblem says what keeps s from being the text of a path.
func spellingProblem(s string) string {
	if problem := textProblem(s); problem != "" {
		return problem
	}
	refused := meta
	if strings.HasPrefix(s, "/"+Leases+"/") {
		refused = escape
	}
	if i := strings.IndexAny(s, refused); i >= 0 {
		return fmt.Sprintf("must not hold %q, which has a meaning in globs", s[i])
	}
	return ""
}

// placeProblem says where a canonical path leads that leads to no entry.
func placeProblem(s string) string {
	switch segments := strings.Split(s[1:], "/"); {
	case !isRoot(segments[0]):
		return fourRoots
	case len(segments) < 2:
		return "must go on below /" + segments[0] + "/"
	case segments[0] == Peer && len(segments) < 3:
		return "must go on below " + s + "/"
	}
	return ""
}

// textProblem says what keeps s from being the text of a path or a glob.
func textProblem(s string) string {
	switch {
	case s == "":
		return "must not be empty"
	case len(s) > MaxPath:
		return fmt.Sprintf("must be at most %d bytes", MaxPath)
	case !utf8.ValidString(s):
		return "must be valid UTF-8"
	}
	for _, c := range s {
		if !unicode.IsPrint(c) {
			return fmt.Sprintf("must be printable, and holds %U", c)
		}
	}
	return ""
}

// canonical is the one spelling of what s seems to mean. Spaces around a
// segment are not part of it: nobody sees them.
func canonical(s string) string {
	segments := strings.Split(norm.NFC.String(s), "/")
	for i, segment := range segments {
		segments[i] = strings.Trim(segment, " ")
	}
	return path.Clean("/" + strings.Join(segments, "/"))
}

func isRoot(segment string) bool {
	switch segment {
	case Ref, Peer, Shared, Leases:
		return true
	}
	return false
}

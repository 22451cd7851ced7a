package kvstore

import (
	"cmp"
	"fmt"
	"path"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"github.com/leasehold/leasehold/registry"
)

// First segments of a path.
const (
	Ref    = "ref"
	Peer   = "peer"
	Shared = "shared"
	Leases = "leases"
)

// MaxPath is the greatest length of a path or a glob in bytes.
const MaxPath = 512

const (
	meta      = `*?[]{}\`
	escape    = `\` // in a glob, before a meta character that is meant literally
	fourRoots = "must be under /ref/, /peer/, /shared/ or /leases/"
)

// A Path names one entry. It comes from [ParsePath], so two Paths are equal if
// and only if they name the same entry.
type Path struct{ s string }

// ParsePath parses a canonical path: absolute, under one of the four roots,
// without empty, "." or ".." segments or a trailing slash, in NFC, printable,
// and without characters that have a meaning in globs. Under /leases/ only the
// backslash is refused of these, because leases are often named after files
// such as app/[id].tsx. For any other spelling it returns a
// [registry.ArgumentError] with the canonical form, if there is one.
func ParsePath(s string) (Path, error) {
	if problem := pathProblem(s); problem != "" {
		return Path{}, &registry.ArgumentError{Argument: "path", Problem: problem}
	}
	return Path{s}, nil
}

// LeaseName returns the registry key for the name of a layer's lease. The name
// is given with or without /leases/: output-file and /leases/output-file are
// the same lease, whose key is output-file.
func LeaseName(name string) (string, error) {
	const root = "/" + Leases + "/"
	full, absolute := name, strings.HasPrefix(name, "/")
	if !absolute {
		full = root + name
	}
	problem := pathProblem(full)
	key, below := strings.CutPrefix(full, root)
	// A key such as leases/x could be mistaken for /leases/x.
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
	case len(full) > MaxPath:
		problem = fmt.Sprintf("must be at most %d bytes", MaxPath-(len(full)-len(name)))
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

// space returns the part of the store with which the path shares its version
// counter.
func (p Path) space() string {
	if name := p.Peer(); name != "" {
		return "/" + Peer + "/" + name
	}
	return "/" + p.Root()
}

// pathProblem returns what is wrong with s as a path; "" if it is valid.
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

// spellingProblem returns what is wrong with the characters of s as a path.
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

// placeProblem returns why a canonical path can have no entry.
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

// textProblem returns what is wrong with s as the text of a path or a glob.
func textProblem(s string) string {
	switch {
	case s == "":
		return "must not be empty"
	case len(s) > MaxPath:
		return fmt.Sprintf("must be at most %d bytes", MaxPath)
	case !utf8.ValidString(s):
		return "must be valid UTF-8"
	}
	return registry.Unseen(s)
}

// canonical returns the canonical spelling of s. Spaces around a segment are
// removed, because people cannot see them.
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

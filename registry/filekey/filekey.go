// Package filekey has the keys of files and directories: file:src/app.ts,
// file:/etc/hosts, and file:. for the top of the project. A key that ends in /**
// covers a directory and everything below it: file:src/**, and file:** for the
// project. Package client shares these rules with the registry.
package filekey

import (
	"path"
	"strings"
)

// Prefix begins them.
const Prefix = "file:"

const tree = "/**"

// Is reports whether key is one of them.
func Is(key string) bool { return strings.HasPrefix(key, Prefix) }

// Of returns the key of a canonical path; with all, of the path and everything
// below it.
func Of(canonical string, all bool) string {
	switch {
	case !all:
		return Prefix + canonical
	case canonical == ".":
		return Prefix + strings.TrimPrefix(tree, "/")
	default:
		return Prefix + strings.TrimSuffix(canonical, "/") + tree
	}
}

// Split is the inverse of Of. It reports false for a key of another kind.
func Split(key string) (canonical string, all, ok bool) {
	canonical, ok = strings.CutPrefix(key, Prefix)
	switch canonical {
	case "**":
		return ".", true, true
	case tree:
		return "/", true, true
	}
	canonical, all = strings.CutSuffix(canonical, tree)
	return canonical, all, ok
}

// Covers reports whether the holder of key also has other: they are the same,
// or other is below key, as src/app.ts is below src/**. Keys of another kind
// cover only themselves.
func Covers(key, other string) bool {
	if key == other {
		return true
	}
	dir, all, ok := Split(key)
	name, _, below := Split(other)
	switch {
	case !ok || !all || !below:
		return false
	case dir == "." || dir == "/":
		return path.IsAbs(name) == (dir == "/")
	default:
		return name == dir || strings.HasPrefix(name, dir+"/")
	}
}

// Overlap reports whether one of two keys covers the other.
func Overlap(a, b string) bool { return Covers(a, b) || Covers(b, a) }

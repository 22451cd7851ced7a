package registry

import (
	"path"
	"strings"

	"golang.org/x/text/unicode/norm"
)

// PathPrefix begins the keys of files and directories: file:src/app.ts, file:/etc/hosts,
// and file:. for the top of the project. With /** at its end a key covers a directory
// and all below it: file:src/**, and file:** for the project.
const PathPrefix = "file:"

const tree = "/**"

// PathKey is the key of a canonical path, or of it and all below it.
func PathKey(canonical string, all bool) string {
	switch {
	case !all:
		return PathPrefix + canonical
	case canonical == ".":
		return PathPrefix + strings.TrimPrefix(tree, "/")
	default:
		return PathPrefix + strings.TrimSuffix(canonical, "/") + tree
	}
}

// splitPath is a path's key in its parts: what PathKey makes it of.
func splitPath(key string) (canonical string, all, ok bool) {
	canonical, ok = strings.CutPrefix(key, PathPrefix)
	switch canonical {
	case "**":
		return ".", true, true
	case tree:
		return "/", true, true
	}
	canonical, all = strings.CutSuffix(canonical, tree)
	return canonical, all, ok
}

// checkPath reports what is wrong with a key that claims to be a path's.
func checkPath(key string) error {
	canonical, all, ok := splitPath(key)
	if !ok {
		return nil
	}
	clean := path.Clean(norm.NFC.String(canonical))
	if PathKey(clean, all) != key || canonical == "" || strings.HasPrefix(clean+"/", "../") || strings.Contains(clean, "*") {
		return &ArgumentError{"key", "must be canonical if it starts with file: (file:src/app.ts, file:src/**); the argument path takes any spelling"}
	}
	return nil
}

package project

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"
)

// fold writes those names of a path below base in lower case whose case the
// file system ignores. Each name is tested once, and what cannot be tested is as
// the directory above it: a path of files to come may be long.
func fold(base, rel string) string {
	parts := strings.Split(rel, "/")
	ignored := caseless(filepath.Split(base))
	for i, name := range parts {
		if any, known := test(base, name); known {
			ignored = any
		}
		if ignored {
			parts[i] = strings.ToLower(strings.ToUpper(name)) // upper case first, because some letters have two lower-case forms
		}
		base = filepath.Join(base, name)
	}
	return strings.Join(parts, "/")
}

// caseless reports whether a directory ignores the case of a name. If that cannot
// be tested there, it tests the directory's own name.
func caseless(dir, name string) bool {
	dir = filepath.Clean(dir)
	if any, known := test(dir, name); known || dir == "/" {
		return any
	}
	return caseless(filepath.Split(dir))
}

// test reports whether a directory ignores the case of a name. If there is no
// file of that name, it tests other names in the directory. known is false if
// there is none to test.
func test(dir, name string) (any, known bool) {
	if any, known := anyCase(dir, name); known {
		return any, true
	}
	for _, other := range someNames(dir) {
		if any, known := anyCase(dir, other); known {
			return any, true
		}
	}
	return false, false
}

// anyCase reports whether name with its case swapped is the same file. known is
// false if there is no such file, or the name has no letters.
func anyCase(dir, name string) (any, known bool) {
	other := strings.Map(func(r rune) rune {
		if unicode.IsUpper(r) {
			return unicode.ToLower(r)
		}
		return unicode.ToUpper(r)
	}, name)
	info, err := os.Lstat(filepath.Join(dir, name))
	if err != nil || other == name {
		return false, false
	}
	twin, err := os.Lstat(filepath.Join(dir, other))
	if err != nil || os.SameFile(info, twin) {
		return err == nil, true
	}
	// FUSE may number every spelling of a file apart, as it does for exFAT.
	names, err := namesIn(dir, -1)
	return err == nil && !(slices.Contains(names, name) && slices.Contains(names, other)), true
}

// spelled returns an absolute path as the directories have it on disk. Where the
// file system ignores case, a caller may write SHOP for Shop.
func spelled(name string) string {
	parts := strings.Split(name, "/")
	base := "/"
	for i, part := range parts {
		if any, _ := anyCase(base, part); any {
			parts[i] = entry(base, part)
		}
		base = filepath.Join(base, parts[i])
	}
	return strings.Join(parts, "/")
}

// entry returns a directory's own spelling of a name.
func entry(dir, name string) string {
	names, _ := namesIn(dir, -1)
	if slices.Contains(names, name) {
		return name
	}
	for _, own := range names {
		if strings.EqualFold(norm.NFC.String(own), norm.NFC.String(name)) {
			return own
		}
	}
	return name
}

// someNames returns a few names in a directory.
func someNames(dir string) []string {
	names, _ := namesIn(dir, 16)
	return names
}

// namesIn returns at most n names in a directory; -1 means all.
func namesIn(dir string, n int) ([]string, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return f.Readdirnames(n)
}

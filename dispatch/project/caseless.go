package project

import (
	"os"
	"path/filepath"
	"strings"
	"unicode"
)

// fold writes those parts of a path below base in lower case that may be written in
// any.
func fold(base, rel string) string {
	parts := strings.Split(rel, "/")
	for i, name := range parts {
		if caseless(base, name) {
			parts[i] = strings.ToLower(strings.ToUpper(name)) // by way of upper case, as some letters have two lower ones
		}
		base = filepath.Join(base, name)
	}
	return strings.Join(parts, "/")
}

// caseless reports whether a directory takes a name in any case for the same. Where
// there is nothing of the name, other names there tell, or the directory's own.
func caseless(dir, name string) bool {
	if any, known := anyCase(dir, name); known {
		return any
	}
	for _, other := range someNames(dir) {
		if any, known := anyCase(dir, other); known {
			return any
		}
	}
	return dir != "/" && caseless(filepath.Dir(dir), filepath.Base(dir))
}

// anyCase reports whether a name in the other case is the same file. It is not known
// of what is not there, or has no letters.
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
	return err == nil && os.SameFile(info, twin), true
}

// someNames are a few names in a directory.
func someNames(dir string) []string {
	f, err := os.Open(dir)
	if err != nil {
		return nil
	}
	defer f.Close()
	names, _ := f.Readdirnames(16)
	return names
}

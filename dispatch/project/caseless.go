package project

import (
	"os"
	"path/filepath"
	"strings"
	"unicode"
)

// fold writes those names of a path below base in lower case whose case the
// file system ignores.
func fold(base, rel string) string {
	parts := strings.Split(rel, "/")
	for i, name := range parts {
		if caseless(base, name) {
			parts[i] = strings.ToLower(strings.ToUpper(name)) // upper case first, because some letters have two lower-case forms
		}
		base = filepath.Join(base, name)
	}
	return strings.Join(parts, "/")
}

// caseless reports whether a directory ignores the case of a name. If there is
// no file of that name, it tests other names in the directory, or the
// directory's own name.
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
	return err == nil && os.SameFile(info, twin), true
}

// someNames returns a few names in a directory.
func someNames(dir string) []string {
	f, err := os.Open(dir)
	if err != nil {
		return nil
	}
	defer f.Close()
	names, _ := f.Readdirnames(16)
	return names
}

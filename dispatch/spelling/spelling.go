// Package spelling finds the name that a user probably meant.
package spelling

import "strings"

// Nearest returns the name that was probably meant by one that is not among
// names, or "" if none is similar. A name of which every letter would change
// is not similar.
func Nearest(name string, names []string) (near string) {
	length := len([]rune(name))
	least := max(1, length/3) + 1
	for _, n := range names {
		d := Distance(strings.ToLower(name), strings.ToLower(n))
		begins := strings.HasPrefix(strings.ToLower(n), strings.ToLower(name)) && name != ""
		if begins {
			d = min(d, 1)
		}
		if d < least && (d < length || begins) {
			near, least = n, d
		}
	}
	return near
}

// Path asks whether the user meant one of paths, which begin below the root, by a path that
// is not among them. It returns "" if none is similar.
func Path(path string, paths []string) (question string) {
	for _, p := range paths {
		if strings.HasSuffix(p, "/"+path) {
			return "did you mean " + p + "? A path begins below the root"
		}
	}
	if near := Nearest(path, paths); near != "" {
		return "did you mean " + near + "?"
	}
	return ""
}

// Distance returns how many runes must be inserted, removed, changed or swapped
// with the next to turn one text into another.
func Distance(from, to string) int {
	a, b := []rune(from), []rune(to)
	before, last, now := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := range a {
		now[0] = i + 1
		for j := range b {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			now[j+1] = min(last[j]+cost, last[j+1]+1, now[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				now[j+1] = min(now[j+1], before[j-1]+1)
			}
		}
		before, last, now = last, now, before
	}
	return last[len(b)]
}

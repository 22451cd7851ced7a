package kvstore

import (
	"strings"
	"unicode/utf8"
)

// match reports whether g matches p, and how many steps that took.
//
// Only the last wildcard needs to be tried at other positions: if the rest of
// the pattern fits after a longer match of an earlier wildcard, the last
// wildcard can take up the difference. So the number of steps is at most the
// length of the pattern times that of the path.
func (g Glob) match(p Path) (ok bool, steps int) {
	segments := strings.Split(p.s, "/")
	for _, pattern := range g.patterns {
		if matchSegments(strings.Split(pattern, "/"), segments, &steps) {
			return true, steps
		}
	}
	return false, steps
}

// matchSegments matches a path segment by segment. ** matches any number of
// segments.
func matchSegments(pattern, path []string, steps *int) bool {
	star, mark := -1, 0 // index of the last **, and the first segment after its match
	i, j := 0, 0
	for j < len(path) {
		*steps++
		switch {
		case i < len(pattern) && pattern[i] == "**":
			star, mark = i, j
			i++
		case i < len(pattern) && matchSegment(pattern[i], path[j], steps):
			i++
			j++
		case star >= 0:
			mark++
			i, j = star+1, mark
		default:
			return false
		}
	}
	for i < len(pattern) && pattern[i] == "**" {
		i++
	}
	return i == len(pattern)
}

// matchSegment matches one segment: * is any text, ? any character, [a-z] a
// character of a class, and [!a-z] a character not in it.
func matchSegment(pattern, text string, steps *int) bool {
	star, mark := -1, 0
	i, j := 0, 0
	for j < len(text) {
		*steps++
		r, size := utf8.DecodeRuneInString(text[j:])
		if i < len(pattern) && pattern[i] == '*' {
			star, mark = i, j
			i++
			continue
		}
		if n, ok := matchOne(pattern[i:], r); ok {
			i += n
			j += size
			continue
		}
		if star < 0 {
			return false
		}
		_, size = utf8.DecodeRuneInString(text[mark:])
		mark += size
		i, j = star+1, mark
	}
	return strings.Trim(pattern[i:], "*") == ""
}

// matchOne matches a character with the first element of a pattern. n is the
// length of that element.
func matchOne(pattern string, r rune) (n int, ok bool) {
	if pattern == "" {
		return 0, false
	}
	switch pattern[0] {
	case '?':
		return 1, true
	case '[':
		end := classEnd(pattern, 0)
		return end + 1, inClass(pattern[1:end], r)
	}
	p, n := utf8.DecodeRuneInString(pattern)
	return n, p == r
}

// inClass reports whether a character is in a class, which is given without
// brackets.
func inClass(class string, r rune) bool {
	none := class[0] == '!' || class[0] == '^'
	if none {
		class = class[1:]
	}
	in := false
	for class != "" {
		low, n := utf8.DecodeRuneInString(class)
		class = class[n:]
		high := low
		if len(class) > 1 && class[0] == '-' {
			high, n = utf8.DecodeRuneInString(class[1:])
			class = class[1+n:]
		}
		in = in || low <= r && r <= high
	}
	return in != none
}

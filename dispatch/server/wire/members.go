package wire

import (
	"bytes"
	"encoding/json"
	"iter"
	"unicode/utf8"
)

// Members yields the names and values of a JSON object, in order. For any other
// value it yields nothing. The yielded slices refer to object, which must be
// valid JSON: then splitting it only requires a search for quotes and brackets,
// and nothing is checked or copied again at each level.
func Members(object []byte) iter.Seq2[[]byte, json.RawMessage] {
	return func(yield func(name []byte, value json.RawMessage) bool) {
		rest := skipBetween(object)
		if len(rest) == 0 || rest[0] != '{' {
			return
		}
		for rest = skipBetween(rest[1:]); rest[0] != '}'; rest = skipBetween(rest) {
			var name, value []byte
			name, rest = cutValue(rest)
			value, rest = cutValue(skipBetween(rest))
			if !yield(unquote(name), value) {
				return
			}
		}
	}
}

// Elements yields the elements of a JSON list, in order, as Members yields the
// members of an object. For any other value it yields nothing.
func Elements(list []byte) iter.Seq[json.RawMessage] {
	return func(yield func(json.RawMessage) bool) {
		rest := skipBetween(list)
		if len(rest) == 0 || rest[0] != '[' {
			return
		}
		for rest = skipBetween(rest[1:]); rest[0] != ']'; rest = skipBetween(rest) {
			var value []byte
			value, rest = cutValue(rest)
			if !yield(value) {
				return
			}
		}
	}
}

// TextOf decodes a JSON string. ok is false if value is not a string.
func TextOf(value json.RawMessage) (text string, ok bool) {
	if len(value) == 0 || value[0] != '"' {
		return "", false
	}
	return string(unquote(value)), true
}

// unquote decodes a string. Without escapes the result refers to s.
func unquote(s []byte) []byte {
	if text := s[1 : len(s)-1]; bytes.IndexByte(text, '\\') < 0 && utf8.Valid(text) {
		return text
	}
	var text string
	_ = json.Unmarshal(s, &text) // cannot fail: s is a string
	return []byte(text)
}

// skipBetween skips to the next value or closing bracket.
func skipBetween(b []byte) []byte {
	for i, c := range b {
		switch c {
		case ' ', '\t', '\r', '\n', ':', ',':
		default:
			return b[i:]
		}
	}
	return nil
}

// cutValue splits b after the value at its start.
func cutValue(b []byte) (value, rest []byte) {
	var end int
	switch b[0] {
	case '"':
		end = stringLen(b)
	case '{', '[':
		end = nestedLen(b)
	default:
		end = bytes.IndexAny(b, " \t\r\n,]}")
	}
	return b[:end:end], b[end:]
}

// nestedLen returns the length of the object or list at the start of b.
func nestedLen(b []byte) int {
	for end, depth := 0, 0; ; {
		switch b[end] {
		case '"':
			end += stringLen(b[end:])
			continue
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		}
		if end++; depth == 0 {
			return end
		}
	}
}

// stringLen returns the length of the string at the start of b, with its
// quotes. The closing quote is preceded by an even number of backslashes.
func stringLen(b []byte) int {
	for end := 1; ; end++ {
		end += bytes.IndexByte(b[end:], '"')
		slashes := 0
		for b[end-1-slashes] == '\\' {
			slashes++
		}
		if slashes%2 == 0 {
			return end + 1
		}
	}
}

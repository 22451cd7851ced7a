package wire

import (
	"bytes"
	"encoding/json"
	"iter"
	"unicode/utf8"
)

// Members are the names and values of a JSON object, in order; of any other
// value there are none. What is yielded lies in object, which must be valid:
// so to take a message apart is to look for quotes and brackets, and not to
// check and copy it once more at each level.
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

// TextOf is what a JSON string says, and false if value is none.
func TextOf(value json.RawMessage) (text string, ok bool) {
	if len(value) == 0 || value[0] != '"' {
		return "", false
	}
	return string(unquote(value)), true
}

// unquote is what a string says, where it lies if that is how it is written.
func unquote(s []byte) []byte {
	if text := s[1 : len(s)-1]; bytes.IndexByte(text, '\\') < 0 && utf8.Valid(text) {
		return text
	}
	var text string
	_ = json.Unmarshal(s, &text) // cannot fail: s is a string
	return []byte(text)
}

// skipBetween goes on to the next value, or to the bracket that closes.
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

// cutValue cuts the value that b begins with from what follows it.
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

// nestedLen is the length of the object or list that b begins with.
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

// stringLen is the length of the string that b begins with, with its quotes.
// The one that closes it has no backslash before it, or pairs of them.
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

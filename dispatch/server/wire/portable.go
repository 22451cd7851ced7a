package wire

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// MaxDepth is the greatest nesting depth of objects and lists.
const MaxDepth = 64

// Portable returns an error if some clients could not read a JSON value, or read
// another one. Many parsers refuse deep nesting, numbers beyond float64, or text
// that is not valid Unicode. A client that finds such a value in an answer may drop
// its connection, and with it its session. Of two members of an object with one name,
// some parsers keep the first, and others the last. The value must be valid JSON.
func Portable(value []byte) error {
	if !utf8.Valid(value) {
		return errors.New("must be valid UTF-8")
	}
	var names [][]byte // of the objects around i
	var around []int   // where the names of each object or list around i begin
	for i := 0; i < len(value); {
		switch c := value[i]; {
		case c == '{' || c == '[':
			if around = append(around, len(names)); len(around) > MaxDepth {
				return fmt.Errorf("must not be nested deeper than %d levels", MaxDepth)
			}
			i++
		case c == '}' || c == ']':
			last := len(around) - 1
			own := names[around[last]:]
			slices.SortFunc(own, bytes.Compare)
			for n := 1; n < len(own); n++ {
				if bytes.Equal(own[n-1], own[n]) {
					return fmt.Errorf("must not have the name %q twice in one object", clip(own[n]))
				}
			}
			names, around = names[:around[last]], around[:last]
			i++
		case c == '"':
			end := i + stringLen(value[i:])
			if !pairedSurrogates(value[i:end]) {
				return errors.New(`must not contain half of a surrogate pair, such as "\ud800"`)
			}
			if rest := bytes.TrimLeft(value[end:], " \t\r\n"); len(rest) > 0 && rest[0] == ':' {
				names = append(names, unquote(value[i:end]))
			}
			i = end
		case c == '-' || '0' <= c && c <= '9':
			end := i + 1
			for end < len(value) && bytes.IndexByte([]byte("0123456789+-.eE"), value[end]) >= 0 {
				end++
			}
			if number := value[i:end]; !finite(number) {
				return fmt.Errorf("must not contain the number %s, which is beyond what a float64 can hold", clip(number))
			}
			i = end
		default:
			i++
		}
	}
	return nil
}

// finite reports whether a number fits into a float64. A number with few digits
// and no exponent always does.
func finite(number []byte) bool {
	if len(number) < 300 && bytes.IndexByte(number, 'e') < 0 && bytes.IndexByte(number, 'E') < 0 {
		return true
	}
	f, err := strconv.ParseFloat(string(number), 64)
	return err == nil && !math.IsInf(f, 0)
}

// clip shortens a number or a name for an error text.
func clip(text []byte) string {
	if len(text) > 24 {
		return strings.ToValidUTF8(string(text[:24]), "") + "…"
	}
	return string(text)
}

// pairedSurrogates reports whether every escaped half of a surrogate pair is
// next to its other half.
func pairedSurrogates(text []byte) bool {
	for {
		i := bytes.IndexByte(text, '\\')
		if i < 0 {
			return true
		}
		r, n := escape(text[i:])
		text = text[i+n:]
		if !utf16.IsSurrogate(r) {
			continue
		}
		low, n := escape(text)
		if utf16.DecodeRune(r, low) == utf8.RuneError {
			return false
		}
		text = text[n:]
	}
}

// escape decodes the escape at the start of text and returns its length. The
// rune is set only for a \u escape. If text does not begin with an escape, both
// are zero.
func escape(text []byte) (r rune, n int) {
	if len(text) < 2 || text[0] != '\\' {
		return 0, 0
	}
	if text[1] != 'u' || len(text) < 6 {
		return 0, 2
	}
	code, _ := strconv.ParseUint(string(text[2:6]), 16, 16)
	return rune(code), 6
}

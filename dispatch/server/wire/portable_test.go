package wire_test

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/leasehold/leasehold/dispatch/server/wire"
)

func nested(levels int) string { return strings.Repeat("[", levels) + strings.Repeat("]", levels) }

func TestPortable(t *testing.T) {
	for value, want := range map[string]string{
		`{"a":[1,-2.5e3,"x",null,true]}`:      "",
		nested(wire.MaxDepth):                 "",
		nested(wire.MaxDepth + 1):             "nested deeper",
		`"` + nested(1500) + `"`:              "", // a text, not a value
		nested(1500):                          "nested deeper",
		`{"a":` + nested(wire.MaxDepth) + `}`: "nested deeper",
		`1e308`:                               "",
		`1e309`:                               "number 1e309",
		`{"a":[-1E400]}`:                      "number -1E400",
		`1e-400`:                              "", // zero
		`9007199254740993`:                    "",
		strings.Repeat("9", 400):              "number 999999999999999999999999…",
		`"\ud83d\ude00"`:                      "",
		`"\ud83d"`:                            "surrogate",
		`"\ude00\ud83d"`:                      "surrogate",
		`"\ud83d\ud83d\ude00"`:                "surrogate",
		`"\ud83dx\ude00"`:                     "surrogate",
		`"\\ud83d"`:                           "",
		`{"\udc00":1}`:                        "surrogate",
		"\"\xff\"":                            "UTF-8",
		"{\"a\":\"\xed\xa0\x80\"}":            "UTF-8", // an encoded surrogate
		`"\u0000\u0041"`:                      "",
		`["\"", {"}": "]"}, [], {}]`:          "",
		`{"a":1,"a":1}`:                       `name "a" twice`,
		`[{"b":{"a":1,"b":2,"\u0061" :3}}]`:   `name "a" twice`,
		`{"a":{"a":{"a":"a"}},"b":["a","a"]}`: "",
		`[{"a":1},{"a":1}]`:                   "",
		`{"a":1,"A":1}`:                       "",
		`{"":1,"" :2}`:                        `name "" twice`,
		`[` + strings.Repeat(nested(63)+",", 50) + `null]`: "", // width is not depth
	} {
		err := wire.Portable([]byte(value))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: %v, want %q", value, err, want)
		}
	}
}

// FuzzPortable compares Portable with its contract: an accepted value is not
// deep, and can be read, written and read again unchanged by a reader that
// keeps numbers as float64.
func FuzzPortable(f *testing.F) {
	for _, value := range []string{
		`{}`, `[{"a":[1,2.5,-3e7]}]`, `"\ud83d\ude00"`, `"\ud83d"`, "\"\xff\"", `1e400`, nested(64), nested(65), `"\\\ud800"`, `-0`, `[1e309,"\udfff"]`,
	} {
		f.Add(value)
	}
	f.Fuzz(func(t *testing.T, value string) {
		if !json.Valid([]byte(value)) {
			return
		}
		var read any
		readErr := json.Unmarshal([]byte(value), &read) // refuses numbers beyond float64
		lossy := !utf8.ValidString(value) || readErr == nil && strings.Count(replacements(read), "\ufffd") != literal(value)
		want := readErr == nil && !lossy && depth(read) <= wire.MaxDepth && members(read) == strings.Count(texts.ReplaceAllString(value, "x"), ":")
		if err := wire.Portable([]byte(value)); (err == nil) != want {
			t.Errorf("%q: %v, want portable %v (read: %v)", value, err, want, readErr)
		}
	})
}

// texts finds the texts of a value, which may have colons of their own.
var texts = regexp.MustCompile(`"(\\.|[^"\\])*"`)

// members returns how many members the objects of a value have.
func members(v any) (n int) {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			n += members(e)
		}
	case map[string]any:
		n = len(v)
		for _, e := range v {
			n += members(e)
		}
	}
	return n
}

// replacements returns all text of a value, in which what could not be decoded
// is U+FFFD.
func replacements(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case []any:
		var b strings.Builder
		for _, e := range v {
			b.WriteString(replacements(e))
		}
		return b.String()
	case map[string]any:
		var b strings.Builder
		for name, e := range v {
			b.WriteString(name)
			b.WriteString(replacements(e))
		}
		return b.String()
	default:
		return ""
	}
}

// literal counts the U+FFFD that are really in a value.
func literal(value string) int {
	return strings.Count(value, "\ufffd") + strings.Count(strings.ToLower(value), `\ufffd`) - strings.Count(strings.ToLower(value), `\\ufffd`)
}

func depth(v any) (deepest int) {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			deepest = max(deepest, depth(e))
		}
		return deepest + 1
	case map[string]any:
		for _, e := range v {
			deepest = max(deepest, depth(e))
		}
		return deepest + 1
	}
	return 0
}

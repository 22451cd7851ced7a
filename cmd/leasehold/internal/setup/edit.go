package setup

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// An edit is one change of a file's text. It is recorded so that it can be undone. The
// edit replaced Del at offset At by Ins.
type edit struct {
	Kind string   `json:"kind"`
	Path []string `json:"path,omitempty"` // of the part that was written
	Made int      `json:"made,omitempty"` // how many of the last names of Path were created
	At   int      `json:"at"`             // -1: the file has changed since
	Del  string   `json:"del,omitempty"`
	Ins  string   `json:"ins"`
}

// The kinds of edits.
const (
	member  = "member"  // a name and its value, in an object or a table
	element = "element" // an element of a list; the last name of Path is the element
	value   = "value"   // a changed value at Path
	block   = "block"   // the marked block of a text
)

// apply returns the text with the edit made.
func (e edit) apply(text []byte) []byte { return splice(text, e.At, len(e.Del), e.Ins) }

// revert undoes the edit at its offset, in a text that has not changed since.
func (e edit) revert(text []byte) ([]byte, bool) {
	if e.At < 0 || e.At > len(text) || !bytes.HasPrefix(text[e.At:], []byte(e.Ins)) {
		return nil, false
	}
	return splice(text, e.At, len(e.Ins), e.Del), true
}

// revertAnywhere undoes the edit in a text that has changed since, if the written text
// still occurs exactly once.
func (e edit) revertAnywhere(text []byte) ([]byte, bool) {
	if e.Kind == value || !strings.Contains(e.Ins, "leasehold") || bytes.Count(text, []byte(e.Ins)) != 1 {
		return nil, false
	}
	return splice(text, bytes.Index(text, []byte(e.Ins)), len(e.Ins), e.Del), true
}

func splice(text []byte, at, remove int, insert string) []byte {
	out := make([]byte, 0, len(text)+len(insert))
	out = append(out, text[:at]...)
	out = append(out, insert...)
	return append(out, text[at+remove:]...)
}

// joined returns what edits that are applied in order change together: changes of the
// first text, in the order of their offsets in it. Edits that touch become one change.
func joined(first []byte, edits []edit) (list []edit) {
	last, from := first, []int(nil) // from: where each byte of last is in first; -1: it was inserted
	for i := range first {
		from = append(from, i)
	}
	for _, e := range edits {
		last = e.apply(last)
		from = slices.Replace(from, e.At, e.At+len(e.Del), slices.Repeat([]int{-1}, len(e.Ins))...)
	}
	at, begun := 0, 0 // behind the last byte that is kept: the offset in first, and in last
	for i, kept := range append(from, len(first)) {
		if kept < 0 {
			continue
		}
		if at < kept || begun < i {
			list = append(list, edit{At: at, Del: string(first[at:kept]), Ins: string(last[begun:i])})
		}
		at, begun = kept+1, i+1
	}
	return list
}

// A language is the format of a configuration. A text that it cannot read is reported as
// a [*brokenError].
type language interface {
	// ensure returns the edits that, applied in order, add what want asks for. It
	// keeps existing settings that work.
	ensure(text []byte, want config) ([]edit, error)

	// undo undoes an edit in a text that has changed since, by parsing the text. It
	// returns false if it cannot find the edit.
	undo(text []byte, e edit) ([]byte, bool)

	// check returns an error if the text cannot be read.
	check(text []byte) error
}

// A config is what a file must contain for a client.
type config struct {
	entry    []string // the path of the server's entry; nil: this file has none
	members  []setting
	elements []listed
	block    string // for models, or the whole file of a plugin
}

// A setting is one member of the server's entry.
type setting struct {
	name  string
	value any // string, bool, int, []string or object

	// Which existing values are kept:
	any     bool    // every value
	program bool    // every value, unless it starts a program whose absolute path does not exist
	least   float64 // a number that is at least this
	launch  bool    // the setting starts the server; not needed for one at a URL
	contain bool    // a list that has the elements of value
}

// A listed is an element that the list at a path must contain: a string or an object.
type listed struct {
	path  []string
	value any
	mark  string // an object whose JSON contains this and "leasehold" was written by setup; "": none was
}

// name returns the element's name in the record: the string, or the object's JSON.
func (l listed) name() string {
	if s, ok := l.value.(string); ok {
		return s
	}
	return renderJSON(l.value, "", "", "")
}

// elementIs reports whether an element of a list has that name.
func elementIs(have any, name string) bool {
	if s, ok := have.(string); ok {
		return s == name
	}
	text, err := json.Marshal(have)
	return err == nil && sameJSON(string(text), name)
}

// hookIn returns the index of setup's hook in a group to which the user may have added other
// hooks, or -1. name is that of the group that setup wrote. matches reports whether both
// groups are for the same calls.
func hookIn(have any, name string) (index int, matches bool) {
	var ours struct {
		Matcher any
		Hooks   []struct{ Command string }
	}
	if err := json.Unmarshal([]byte(name), &ours); err != nil || len(ours.Hooks) != 1 {
		return -1, false // setup wrote no group
	}
	group, _ := have.(map[string]any)
	hooks, _ := group["hooks"].([]any)
	index = slices.IndexFunc(hooks, func(v any) bool {
		hook, _ := v.(map[string]any)
		return hook["command"] == ours.Hooks[0].Command
	})
	return index, group["matcher"] == ours.Matcher
}

// has reports whether a list has the element, or has setup's hook beside the user's.
func (l listed) has(list []any) bool {
	return slices.ContainsFunc(list, func(have any) bool {
		index, matches := hookIn(have, l.name())
		return elementIs(have, l.name()) || index >= 0 && matches && !l.supersedes(have)
	})
}

// supersedes reports whether an earlier setup wrote the element, so l replaces it.
func (l listed) supersedes(have any) bool {
	group, ok := have.(map[string]any)
	if hooks, _ := group["hooks"].([]any); !ok || l.mark == "" || len(hooks) > 1 { // of several hooks, some are the user's
		return false
	}
	text := quoteless(have)
	return strings.Contains(text, l.mark) && strings.Contains(text, "leasehold")
}

func quoteless(v any) string {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(v) // cannot fail: v was read from JSON
	return b.String()
}

// An object is a list of members in order.
type object []setting

func sum(text []byte) string {
	hash := sha256.Sum256(text)
	return hex.EncodeToString(hash[:])
}

// serves reports whether an existing value satisfies s.
func (s setting) serves(have any) bool {
	switch {
	case s.any:
		return true
	case s.program:
		list, _ := have.([]any)
		path, _ := append(list, have)[0].(string)
		_, err := os.Stat(path)
		return !filepath.IsAbs(path) || !errors.Is(err, fs.ErrNotExist)
	case s.least > 0:
		n, ok := number(have)
		return ok && n >= s.least
	case s.contain:
		return len(s.missing(have)) == 0
	}
	return have == s.value
}

// instead returns what replaces a value that does not satisfy s. The arguments of a program
// stay.
func (s setting) instead(have any) any {
	command, ok := s.value.([]string)
	if list, _ := have.([]any); ok && s.program && len(list) > 0 {
		return append([]any{command[0]}, list[1:]...)
	}
	return s.value
}

// missing returns the elements of s that the list have does not contain.
func (s setting) missing(have any) (missing []string) {
	list, _ := have.([]any)
	for _, want := range s.value.([]string) {
		found := false
		for _, one := range list {
			found = found || one == want
		}
		if !found {
			missing = append(missing, want)
		}
	}
	return missing
}

func number(v any) (float64, bool) {
	switch n := v.(type) {
	case float64:
		return n, true
	case int64:
		return float64(n), true
	}
	return 0, false
}

// wanted returns the settings that an entry needs. A server at a URL is not started, so
// its entry needs no settings for that.
func (c config) wanted(have map[string]any) (list []setting) {
	_, url := have["url"]
	_, httpURL := have["httpUrl"]
	for _, s := range c.members {
		if !s.launch || !url && !httpURL {
			list = append(list, s)
		}
	}
	return list
}

// eolOf returns the line ending of a text.
func eolOf(text []byte) string {
	if bytes.Contains(text, []byte("\r\n")) {
		return "\r\n"
	}
	return "\n"
}

// mentions reports whether a text contains the word leasehold.
func mentions(text []byte) bool { return bytes.Contains(text, []byte("leasehold")) }

package setup

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"
)

// An edit is one change of a file's text, as it is recorded so that it can be
// taken back. Del at offset At became Ins.
type edit struct {
	Kind string   `json:"kind"`
	Path []string `json:"path,omitempty"` // of what was written
	Made int      `json:"made,omitempty"` // how many of the last names of Path were not there
	At   int      `json:"at"`             // -1: the file has changed since
	Del  string   `json:"del,omitempty"`
	Ins  string   `json:"ins"`
}

// The kinds of edits.
const (
	member  = "member"  // a name and its value, in an object or a table
	element = "element" // of the list at Path; the last name is the element
	value   = "value"   // another value at Path
	block   = "block"   // the marked block of a text
)

// apply makes the edit.
func (e edit) apply(text []byte) []byte { return splice(text, e.At, len(e.Del), e.Ins) }

// revert takes the edit back where it was made, in a text that nobody has
// changed since.
func (e edit) revert(text []byte) ([]byte, bool) {
	if e.At < 0 || e.At > len(text) || !bytes.HasPrefix(text[e.At:], []byte(e.Ins)) {
		return nil, false
	}
	return splice(text, e.At, len(e.Ins), e.Del), true
}

// revertAnywhere takes the edit back in a text that has changed since, if what was
// written is still there, once.
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

// A language is how a configuration is written. A text that it cannot read is a
// [*brokenError].
type language interface {
	// ensure says which edits, one after the other, make a text what is wanted.
	// What is there and serves is left.
	ensure(text []byte, want config) ([]edit, error)

	// undo takes an edit back in a text that has changed since, by what the text
	// means. It answers false if there is nothing of it to take back.
	undo(text []byte, e edit) ([]byte, bool)

	// check refuses a text that cannot be read.
	check(text []byte) error
}

// A config is what a client must find in a file.
type config struct {
	entry    []string // where the server is; nil: not in this file
	members  []setting
	elements []listed
	block    string // of a text for models
}

// A setting is one member of the server's entry.
type setting struct {
	name  string
	value any // string, bool, int, []string or object

	// What else will do, where it is there already.
	any     bool    // whatever it is
	least   float64 // a number from this on
	launch  bool    // it is about starting the server: not for one at a URL
	contain bool    // a list that has the elements of value
}

// A listed is an element that the list at a path must have: a string or an object.
type listed struct {
	path  []string
	value any
	mark  string // an object whose JSON has this is an older one of ours; "": none is
}

// name is what the element is called in a record: the string, or its JSON.
func (l listed) name() string {
	if s, ok := l.value.(string); ok {
		return s
	}
	return renderJSON(l.value, "", "", "")
}

// elementIs reports whether an element of a list is the one of that name.
func elementIs(have any, name string) bool {
	if s, ok := have.(string); ok {
		return s == name
	}
	text, err := json.Marshal(have)
	return err == nil && sameJSON(string(text), name)
}

// supersedes reports whether an element is one that an older setup has written.
func (l listed) supersedes(have any) bool {
	if _, object := have.(map[string]any); !object || l.mark == "" {
		return false
	}
	text := quoteless(have)
	return strings.Contains(text, l.mark) && strings.Contains(text, "leasehold")
}

func quoteless(v any) string {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(v) // what was read from JSON
	return b.String()
}

// An object is members in an order.
type object []setting

func sum(text []byte) string {
	hash := sha256.Sum256(text)
	return hex.EncodeToString(hash[:])
}

// serves reports whether a value that is there does what s asks for.
func (s setting) serves(have any) bool {
	switch {
	case s.any:
		return true
	case s.least > 0:
		n, ok := number(have)
		return ok && n >= s.least
	case s.contain:
		return len(s.missing(have)) == 0
	}
	return have == s.value
}

// missing are the elements of a list that have does not contain.
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

// wanted are the settings that an entry needs: one that names a URL is not started.
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

// eolOf is how the lines of a text end.
func eolOf(text []byte) string {
	if bytes.Contains(text, []byte("\r\n")) {
		return "\r\n"
	}
	return "\n"
}

// mentions reports whether a text has anything to do with leasehold.
func mentions(text []byte) bool { return bytes.Contains(text, []byte("leasehold")) }

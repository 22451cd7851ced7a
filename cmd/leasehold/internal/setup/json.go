package setup

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/tailscale/hujson"
)

// jsonText edits JSON with comments in place. The parser tells the offset of each value,
// and everything else stays as it is.
type jsonText struct{}

func (jsonText) check(text []byte) error {
	_, err := parseJSON(text)
	return err
}

// parseJSON parses a text that is an object, or empty except for white space.
func parseJSON(text []byte) (root hujson.Value, err error) {
	if blank(text) {
		return hujson.Value{}, nil
	}
	root, err = hujson.Parse(text)
	if err != nil {
		var line, column int
		why := strings.TrimPrefix(err.Error(), "hujson: ")
		if n, _ := fmt.Sscanf(why, "line %d, column %d", &line, &column); n == 2 {
			_, why, _ = strings.Cut(why, ": ")
		}
		return root, &brokenError{line, column, why}
	}
	if _, ok := root.Value.(*hujson.Object); !ok {
		line, column := position(text, root.StartOffset)
		return root, &brokenError{line, column, "the file is not an object"}
	}
	return root, nil
}

func blank(text []byte) bool { return len(bytes.TrimSpace(text)) == 0 }

// position returns the line and column of an offset.
func position(text []byte, offset int) (line, column int) {
	before := text[:offset]
	return 1 + bytes.Count(before, []byte("\n")), offset - bytes.LastIndexByte(before, '\n')
}

// memberOf returns the index of an object's member, or -1. If several have the name, it
// returns the last one.
func memberOf(o *hujson.Object, name string) int {
	for i := len(o.Members) - 1; i >= 0; i-- {
		if literal, ok := o.Members[i].Name.Value.(hujson.Literal); ok && literal.String() == name {
			return i
		}
	}
	return -1
}

// descend follows a path as far as it exists. rest are the remaining names.
func descend(text []byte, root *hujson.Value, path []string) (at *hujson.Value, rest []string, err error) {
	if root.Value == nil { // an empty file
		return root, path, nil
	}
	at = root
	for i, name := range path {
		o, ok := at.Value.(*hujson.Object)
		if !ok {
			line, column := position(text, at.StartOffset)
			return nil, nil, &brokenError{line, column, fmt.Sprintf("%s is not an object", strings.Join(path[:i], "."))}
		}
		n := memberOf(o, name)
		if n < 0 {
			return at, path[i:], nil
		}
		at = &o.Members[n].Value
	}
	return at, nil, nil
}

func (l jsonText) ensure(text []byte, want config) (edits []edit, err error) {
	before := text
	do := func(e edit) {
		edits = append(edits, e)
		text = e.apply(text)
	}
	if want.entry != nil {
		if err := l.ensureEntry(&text, want, do); err != nil {
			return nil, err
		}
	}
	for _, one := range want.elements {
		if err := l.ensureElement(&text, one, do); err != nil {
			return nil, err
		}
	}
	return edits, l.verify(before, text, want)
}

func (jsonText) ensureEntry(text *[]byte, want config, do func(edit)) error {
	root, err := parseJSON(*text)
	if err != nil {
		return err
	}
	at, rest, err := descend(*text, &root, want.entry)
	if err != nil {
		return err
	}
	if len(rest) > 0 {
		do(insertMember(*text, at, want.entry, len(rest), object(want.members)))
		return nil
	}
	have, ok := plain(at).(map[string]any)
	if !ok {
		line, column := position(*text, at.StartOffset)
		return &brokenError{line, column, strings.Join(want.entry, ".") + " is not an object"}
	}
	needed := want.wanted(have)
	slices.Reverse(needed) // each is inserted before the existing members
	for _, s := range needed {
		if root, err = parseJSON(*text); err != nil {
			return err
		}
		path := append(slices.Clone(want.entry), s.name)
		entry, _, _ := descend(*text, &root, want.entry)
		at, rest, err := descend(*text, &root, path)
		if err != nil {
			return err
		}
		switch {
		case len(rest) > 0:
			do(insertMember(*text, entry, path, 1, s.value))
		case !s.serves(plain(at)):
			if list, ok := at.Value.(*hujson.Array); ok && s.contain {
				for _, missing := range s.missing(plain(at)) {
					do(insertElement(*text, at, list, path, 0, missing))
					root, _ = parseJSON(*text)
					at, _, _ = descend(*text, &root, path)
					list = at.Value.(*hujson.Array)
				}
				continue
			}
			old := string((*text)[at.StartOffset:at.EndOffset])
			do(edit{Kind: value, Path: path, At: at.StartOffset, Del: old, Ins: renderJSON(s.instead(plain(at)), "", "", "")})
		}
	}
	return nil
}

func (jsonText) ensureElement(text *[]byte, want listed, do func(edit)) error {
	root, err := parseJSON(*text)
	if err != nil {
		return err
	}
	at, rest, err := descend(*text, &root, want.path)
	if err != nil {
		return err
	}
	path := append(slices.Clone(want.path), want.name())
	if len(rest) > 0 {
		e := insertMember(*text, at, want.path, len(rest), []any{want.value})
		e.Kind, e.Path = element, path
		do(e)
		return nil
	}
	list, ok := at.Value.(*hujson.Array)
	if !ok {
		line, column := position(*text, at.StartOffset)
		return &brokenError{line, column, strings.Join(want.path, ".") + " is not a list"}
	}
	have, _ := plain(at).([]any)
	old := slices.IndexFunc(have, want.supersedes)
	switch {
	case want.has(have):
	case old >= 0:
		e := list.Elements[old]
		do(edit{Kind: element, Path: path, At: e.StartOffset, Del: string((*text)[e.StartOffset:e.EndOffset]), Ins: want.name()})
	default:
		do(insertElement(*text, at, list, path, 0, want.value))
	}
	return nil
}

// verify returns an error if the edits changed anything but what want names.
func (jsonText) verify(before, after []byte, want config) error {
	old, err := parseJSON(before)
	if err != nil {
		return err
	}
	edited, err := parseJSON(after)
	if err != nil {
		return fmt.Errorf("an edit made it unreadable: %s", why(err))
	}
	was, _ := plain(&old).(map[string]any)
	is, _ := plain(&edited).(map[string]any)
	if was == nil {
		was = map[string]any{} // an empty file
	}
	return onlyChanged(was, is, want)
}

// onlyChanged returns an error if two configurations differ in anything but what want names.
// It may change both.
func onlyChanged(was, is map[string]any, want config) error {
	forget(was, want)
	forget(is, want)
	if !reflect.DeepEqual(was, is) {
		return errors.New("it is written in a way that cannot be edited without changing something else")
	}
	return nil
}

// forget removes our parts from a configuration, and objects and lists that are then
// empty.
func forget(m map[string]any, want config) {
	var drop func(m map[string]any, path []string, last func(m map[string]any, name string))
	drop = func(m map[string]any, path []string, last func(map[string]any, string)) {
		if len(path) == 1 {
			last(m, path[0])
			return
		}
		if below, ok := m[path[0]].(map[string]any); ok {
			if drop(below, path[1:], last); len(below) == 0 {
				delete(m, path[0])
			}
		}
	}
	if want.entry != nil {
		drop(m, want.entry, func(m map[string]any, name string) {
			have, _ := m[name].(map[string]any)
			for _, s := range want.members {
				delete(have, s.name)
			}
			if len(have) == 0 {
				delete(m, name)
			}
		})
	}
	for _, one := range want.elements {
		drop(m, one.path, func(m map[string]any, name string) {
			list, ok := m[name].([]any)
			if list = slices.DeleteFunc(list, func(v any) bool { return elementIs(v, one.name()) || one.supersedes(v) }); ok && len(list) > 0 {
				m[name] = list
			} else if ok {
				delete(m, name)
			}
		})
	}
}

// plain returns a value as encoding/json decodes it.
func plain(v *hujson.Value) any {
	if v.Value == nil {
		return nil
	}
	copied := v.Clone()
	copied.Standardize()
	var out any
	if err := json.Unmarshal(copied.Pack(), &out); err != nil {
		return nil
	}
	return out
}

// insertMember inserts a member before the existing ones of an object. It creates the
// last made names of path.
func insertMember(text []byte, at *hujson.Value, path []string, made int, v any) edit {
	e := edit{Kind: member, Path: path, Made: made}
	names := path[len(path)-made:]
	for i := len(names) - 1; i > 0; i-- {
		v = object{{name: names[i], value: v}}
	}
	eol := eolOf(text)
	if at.Value == nil { // an empty file
		e.At = len(text)
		e.Ins = renderJSON(object{{name: names[0], value: v}}, eol, "", "  ") + eol
		return e
	}
	o := at.Value.(*hujson.Object)
	name := quote(names[0]) + ": "
	if len(o.Members) == 0 {
		indent := indentAt(text, at.StartOffset)
		unit := unitOf(text)
		e.At = at.StartOffset + 1
		e.Ins = eol + indent + unit + name + renderJSON(v, eol, indent+unit, unit)
		if between := text[e.At : at.EndOffset-1]; !bytes.Contains(between, []byte("\n")) {
			e.Ins += eol + indent
		}
		return e
	}
	first := o.Members[0].Name.StartOffset
	e.At, e.Ins = before(text, at.StartOffset+1, first, func(eol, indent, unit string) string {
		return name + renderJSON(v, eol, indent, unit)
	})
	return e
}

// insertElement inserts an element before the existing ones of a list.
func insertElement(text []byte, at *hujson.Value, list *hujson.Array, path []string, made int, v any) edit {
	e := edit{Kind: element, Path: path, Made: made, At: at.StartOffset + 1, Ins: renderJSON(v, "", "", "")}
	if len(list.Elements) > 0 {
		e.At, e.Ins = before(text, at.StartOffset+1, list.Elements[0].StartOffset, func(eol, indent, unit string) string { return renderJSON(v, eol, indent, unit) })
	}
	return e
}

// before returns where and what to insert so that it comes first in an object or list.
// open is the offset after the opening bracket, and first that of the first item. A
// comment on the line of the bracket stays there.
func before(text []byte, open, first int, render func(eol, indent, unit string) string) (at int, insert string) {
	between := text[open:first]
	if !bytes.Contains(between, []byte("\n")) {
		if blank(between) && len(between) > 0 {
			return open, string(between) + render("", "", "") + ","
		}
		return open, render("", "", "") + ", "
	}
	eol := eolOf(text)
	indent := indentAt(text, first)
	at = open
	line, _, _ := bytes.Cut(between, []byte("\n"))
	if rest := bytes.TrimSpace(line); len(rest) == 0 || bytes.HasPrefix(rest, []byte("//")) {
		at = open + len(bytes.TrimSuffix(line, []byte("\r")))
	}
	return at, eol + indent + render(eol, indent, unitOf(text)) + ","
}

// indentAt returns the indentation of the line at an offset.
func indentAt(text []byte, offset int) string {
	line := text[bytes.LastIndexByte(text[:offset], '\n')+1:]
	return string(line[:len(line)-len(bytes.TrimLeft(line, " \t"))])
}

// unitOf returns the indentation of the first line that has one.
func unitOf(text []byte) string {
	for line := range bytes.Lines(text) {
		if rest := bytes.TrimLeft(line, " \t"); len(rest) < len(line) && !blank(rest) {
			return string(line[:len(line)-len(rest)])
		}
	}
	return "  "
}

func quote(s string) string {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(s) // cannot fail: s is a string
	return strings.TrimSuffix(b.String(), "\n")
}

// renderJSON returns a value as JSON. If eol is empty, it is one line.
func renderJSON(v any, eol, indent, unit string) string {
	switch v := v.(type) {
	case object:
		var b strings.Builder
		b.WriteString("{")
		for i, m := range v {
			if i > 0 {
				b.WriteString(",")
			}
			switch {
			case eol != "":
				b.WriteString(eol + indent + unit)
			case i > 0:
				b.WriteString(" ")
			}
			b.WriteString(quote(m.name) + ": " + renderJSON(m.value, eol, indent+unit, unit))
		}
		if eol != "" {
			b.WriteString(eol + indent)
		}
		return b.String() + "}"
	case []any:
		if _, objects := v[0].(object); !objects || eol == "" {
			parts := make([]string, len(v))
			for i, one := range v {
				parts[i] = renderJSON(one, "", "", "")
			}
			return "[" + strings.Join(parts, ", ") + "]"
		}
		var b strings.Builder
		for i, one := range v {
			if i > 0 {
				b.WriteString(",")
			}
			b.WriteString(eol + indent + unit + renderJSON(one, eol, indent+unit, unit))
		}
		return "[" + b.String() + eol + indent + "]"
	case []string:
		quoted := make([]string, len(v))
		for i, s := range v {
			quoted[i] = quote(s)
		}
		return "[" + strings.Join(quoted, ", ") + "]"
	case string:
		return quote(v)
	default:
		return fmt.Sprint(v) // a number or a boolean
	}
}

func (l jsonText) undo(text []byte, e edit) ([]byte, bool) {
	root, err := parseJSON(text)
	if err != nil {
		return nil, false
	}
	path := e.Path
	switch e.Kind {
	case value:
		at, rest, err := descend(text, &root, path)
		if err != nil || len(rest) > 0 || !sameJSON(string(text[at.StartOffset:at.EndOffset]), e.Ins) {
			return nil, false
		}
		return splice(text, at.StartOffset, at.EndOffset-at.StartOffset, e.Del), true
	case element:
		path = path[:len(path)-1]
		at, rest, err := descend(text, &root, path)
		if err != nil || len(rest) > 0 {
			return nil, false
		}
		list, ok := at.Value.(*hujson.Array)
		if !ok {
			return nil, false
		}
		ours, ok := find(list, e.Path[len(e.Path)-1])
		if !ok {
			return nil, false
		}
		text = cut(text, ours.StartOffset, ours.EndOffset)
	default:
		at, rest, err := descend(text, &root, path[:len(path)-1])
		if err != nil || len(rest) > 0 {
			return nil, false
		}
		o, ok := at.Value.(*hujson.Object)
		if !ok || memberOf(o, path[len(path)-1]) < 0 {
			return nil, false
		}
		m := o.Members[memberOf(o, path[len(path)-1])]
		text = cut(text, m.Name.StartOffset, m.Value.EndOffset)
		path, e.Made = path[:len(path)-1], e.Made-1
	}
	// Also remove the parents that were created for it, if they are empty now.
	for ; e.Made > 0; e.Made-- {
		if root, err = parseJSON(text); err != nil {
			return nil, false
		}
		at, rest, err := descend(text, &root, path)
		if err != nil || len(rest) > 0 || !blank(bytes.Trim(text[at.StartOffset:at.EndOffset], "[]{}")) {
			break
		}
		parent, _, _ := descend(text, &root, path[:len(path)-1])
		o := parent.Value.(*hujson.Object)
		m := o.Members[memberOf(o, path[len(path)-1])]
		text = cut(text, m.Name.StartOffset, m.Value.EndOffset)
		path = path[:len(path)-1]
	}
	return text, l.check(text) == nil
}

// find returns the element of a list that has the name, or else setup's hook in a group
// that the user has changed since.
func find(list *hujson.Array, name string) (ours hujson.Value, ok bool) {
	for _, v := range list.Elements {
		if elementIs(plain(&v), name) {
			return v, true
		}
	}
	for _, v := range list.Elements {
		index, _ := hookIn(plain(&v), name)
		if index < 0 {
			continue
		}
		group := v.Value.(*hujson.Object)
		hooks := group.Members[memberOf(group, "hooks")].Value.Value.(*hujson.Array)
		if len(hooks.Elements) > 1 {
			v = hooks.Elements[index]
		}
		return v, true
	}
	return hujson.Value{}, false
}

// sameJSON reports whether two texts encode the same value.
func sameJSON(a, b string) bool {
	var x, y any
	return json.Unmarshal([]byte(a), &x) == nil && json.Unmarshal([]byte(b), &y) == nil && reflect.DeepEqual(x, y)
}

// cut removes a member or an element with the space before it and one comma.
func cut(text []byte, start, end int) []byte {
	start = len(bytes.TrimRight(text[:start], " \t\r\n"))
	after := bytes.TrimLeft(text[end:], " \t\r\n")
	switch {
	case bytes.HasPrefix(after, []byte(",")):
		end = len(text) - len(after) + 1
	case start > 0 && text[start-1] == ',':
		start--
	}
	if rest := bytes.TrimLeft(text[end:], " \t\r\n"); len(rest) > 0 && (rest[0] == '}' || rest[0] == ']') && start > 0 && (text[start-1] == '{' || text[start-1] == '[') {
		end = len(text) - len(rest)
	}
	return splice(text, start, end-start, "")
}

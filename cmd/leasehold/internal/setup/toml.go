package setup

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"
)

// tomlText edits TOML in place. It uses the existing table of the server, or adds one at
// the end of the file.
type tomlText struct{}

func (tomlText) check(text []byte) error {
	_, err := parseTOML(text)
	return err
}

func parseTOML(text []byte) (map[string]any, error) {
	m := map[string]any{}
	err := toml.Unmarshal(text, &m)
	if wrong, ok := errors.AsType[*toml.DecodeError](err); ok {
		line, column := wrong.Position()
		return nil, &brokenError{line, column, strings.TrimPrefix(wrong.Error(), "toml: ")}
	}
	return m, err
}

// A part is one expression of a file: the head of a table, or a key with its value.
type part struct {
	head       bool
	path       []string // of the table, or of the key from the root on
	start, end int
	value      int // where the value of a key begins
}

// parts lists the expressions of a valid text.
func parts(text []byte) (list []part) {
	var p unstable.Parser
	p.Reset(text)
	var table []string
	for p.NextExpression() {
		node := p.Expression()
		if node.Kind != unstable.Table && node.Kind != unstable.ArrayTable && node.Kind != unstable.KeyValue {
			continue
		}
		var path []string
		start, end := -1, 0
		for keys := node.Key(); keys.Next(); {
			raw := keys.Node().Raw
			if start < 0 {
				start = int(raw.Offset)
			}
			end = int(raw.Offset + raw.Length)
			path = append(path, string(keys.Node().Data))
		}
		if node.Kind == unstable.KeyValue {
			at := end + bytes.IndexByte(text[end:], '=') + 1
			at += len(text[at:]) - len(bytes.TrimLeft(text[at:], " \t"))
			list = append(list, part{path: append(slices.Clone(table), path...), start: start, end: int(node.Raw.Offset + node.Raw.Length), value: at})
			continue
		}
		table = path
		start = bytes.LastIndexByte(text[:start], '[')
		for start > 0 && text[start-1] == '[' {
			start--
		}
		end += bytes.IndexByte(text[end:], ']') + 1
		if node.Kind == unstable.ArrayTable {
			end++
		}
		list = append(list, part{head: true, path: path, start: start, end: end})
	}
	return list
}

func at(m map[string]any, path []string) (any, bool) {
	var v any = m
	for _, name := range path {
		below, ok := v.(map[string]any)
		if !ok {
			return nil, false
		}
		if v, ok = below[name]; !ok {
			return nil, false
		}
	}
	return v, true
}

func (l tomlText) ensure(text []byte, want config) (edits []edit, err error) {
	before := text
	do := func(e edit) {
		edits = append(edits, e)
		text = e.apply(text)
	}
	root, err := parseTOML(text)
	if err != nil {
		return nil, err
	}
	found, ok := at(root, want.entry)
	if !ok {
		do(appendTable(text, want))
		return edits, l.verify(before, text, want)
	}
	have, ok := found.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("%s is not a table", strings.Join(want.entry, "."))
	}
	needed := want.wanted(have)
	slices.Reverse(needed) // each is inserted directly after the head
	for _, s := range needed {
		path := append(slices.Clone(want.entry), s.name)
		is, there := have[s.name]
		if there && s.serves(is) {
			continue
		}
		all := parts(text)
		place := want.entry
		if there {
			place = path
		}
		i := slices.IndexFunc(all, func(p part) bool { return p.head == !there && slices.Equal(p.path, place) })
		if i < 0 {
			return nil, fmt.Errorf("%s is not a table of its own, so %s = %s has to be added to it by hand", strings.Join(want.entry, "."), s.name, renderTOML(s.value))
		}
		p := all[i]
		list, isList := is.([]any)
		switch {
		case !there:
			line := p.end + bytes.IndexByte(append(text[p.end:len(text):len(text)], '\n'), '\n')
			line = len(bytes.TrimSuffix(text[:line], []byte("\r")))
			do(edit{Kind: member, Path: path, Made: 1, At: line, Ins: eolOf(text) + s.name + " = " + renderTOML(s.value)})
		case s.contain && isList:
			more := renderTOML(s.missing(is))
			more = strings.Trim(more, "[]")
			if len(list) > 0 {
				more += ", "
			}
			do(edit{Kind: value, Path: path, At: p.value + 1, Ins: more})
		default:
			do(edit{Kind: value, Path: path, At: p.value, Del: string(text[p.value:p.end]), Ins: renderTOML(s.value)})
		}
	}
	return edits, l.verify(before, text, want)
}

func appendTable(text []byte, want config) edit {
	eol := eolOf(text)
	var b strings.Builder
	switch {
	case len(text) == 0:
	case !bytes.HasSuffix(text, []byte("\n")):
		b.WriteString(eol + eol)
	case !bytes.HasSuffix(text, []byte(eol+eol)) && !blank(text):
		b.WriteString(eol)
	}
	fmt.Fprintf(&b, "[%s]%s", strings.Join(want.entry, "."), eol)
	for _, s := range want.members {
		fmt.Fprintf(&b, "%s = %s%s", s.name, renderTOML(s.value), eol)
	}
	return edit{Kind: member, Path: want.entry, Made: 1, At: len(text), Ins: b.String()}
}

// renderTOML returns a value as TOML. Strings, lists, numbers and booleans are written
// as in JSON.
func renderTOML(v any) string { return renderJSON(v, "", "", "") }

func (tomlText) verify(before, after []byte, want config) error {
	was, err := parseTOML(before)
	if err != nil {
		return err
	}
	is, err := parseTOML(after)
	if err != nil {
		return fmt.Errorf("%s cannot be a table of its own here; add it by hand: %s", strings.Join(want.entry, "."), why(err))
	}
	return onlyChanged(was, is, want)
}

func (l tomlText) undo(text []byte, e edit) ([]byte, bool) {
	if l.check(text) != nil {
		return nil, false
	}
	if e.Kind == value {
		all := parts(text)
		i := slices.IndexFunc(all, func(p part) bool { return slices.Equal(p.path, e.Path) })
		if i < 0 || e.Del == "" || string(text[all[i].value:all[i].end]) != e.Ins {
			return nil, false
		}
		return splice(text, all[i].value, all[i].end-all[i].value, e.Del), true
	}
	gap := e.Ins[:len(e.Ins)-len(strings.TrimLeft(e.Ins, "\r\n"))]
	before := text
	for {
		all := parts(text)
		i := slices.IndexFunc(all, func(p part) bool { return len(p.path) >= len(e.Path) && slices.Equal(p.path[:len(e.Path)], e.Path) })
		if i < 0 {
			break
		}
		start, end, head := all[i].start, all[i].end, all[i].head
		for i++; head && i < len(all) && !all[i].head; i++ { // also the keys of the table
			end = all[i].end
		}
		if next := bytes.IndexByte(text[end:], '\n'); next >= 0 && blank(text[end:end+next]) {
			end += next + 1
		}
		if head && bytes.HasSuffix(text[:start], []byte("\n"+gap)) {
			start -= len(gap) // the empty line before the table
		}
		text = splice(text, start, end-start, "")
	}
	return text, len(text) < len(before) && l.check(text) == nil
}

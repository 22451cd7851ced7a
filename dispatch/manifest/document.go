package manifest

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"
)

// A document is a decoded file with the positions of its keys.
type document struct {
	file     string
	values   map[string]any
	places   map[string]place // by key, such as run.max_depth or leases[0].key
	problems Problems
}

type place struct{ line, column int }

// read parses the text. If it is not TOML, that is the only problem.
func read(file string, text []byte) (*document, error) {
	d := &document{file: file, places: make(map[string]place)}
	if err := toml.Unmarshal(text, &d.values); err != nil {
		var wrong *toml.DecodeError
		if !errors.As(err, &wrong) {
			return nil, err
		}
		line, column := wrong.Position()
		what := strings.TrimPrefix(wrong.Error(), "toml: ")
		return nil, Problems{{File: file, Line: line, Column: column, Text: "is not TOML: " + what}}
	}
	d.locate(text)
	return d, nil
}

// locate records the position of each key. The text has already been parsed
// successfully.
func (d *document) locate(text []byte) {
	var p unstable.Parser
	p.Reset(text)
	table := ""
	count := make(map[string]int) // tables seen so far, by the name of their array
	for p.NextExpression() {
		e := p.Expression()
		switch e.Kind {
		case unstable.Table:
			table = d.keys(&p, "", e.Key(), count)
		case unstable.ArrayTable:
			name := d.keys(&p, "", e.Key(), nil)
			table = element(name, count[name])
			count[name]++
			d.note(&p, table, last(e.Key()))
		case unstable.KeyValue:
			d.keyValue(&p, table, e)
		default: // a comment
		}
	}
}

// keys records the parts of a dotted key below prefix and returns the full key.
// A part that names an array of tables refers to its last table.
func (d *document) keys(p *unstable.Parser, prefix string, it unstable.Iterator, count map[string]int) string {
	for it.Next() {
		prefix = join(prefix, string(it.Node().Data))
		if n := count[prefix]; n > 0 {
			prefix = element(prefix, n-1)
		}
		d.note(p, prefix, it.Node())
	}
	return prefix
}

func (d *document) keyValue(p *unstable.Parser, table string, e *unstable.Node) {
	d.value(p, d.keys(p, table, e.Key(), nil), e.Value())
}

func (d *document) value(p *unstable.Parser, key string, v *unstable.Node) {
	it := v.Children()
	switch v.Kind {
	case unstable.InlineTable:
		for it.Next() {
			d.keyValue(p, key, it.Node())
		}
	case unstable.Array:
		for i := 0; it.Next(); i++ {
			d.value(p, element(key, i), it.Node())
		}
	default:
	}
}

// note records the first position of a key.
func (d *document) note(p *unstable.Parser, key string, n *unstable.Node) {
	if _, known := d.places[key]; !known {
		at := p.Shape(n.Raw).Start
		d.places[key] = place{at.Line, at.Column}
	}
}

func last(it unstable.Iterator) (n *unstable.Node) {
	for it.Next() {
		n = it.Node()
	}
	return n
}

func join(table, key string) string {
	if table == "" {
		return key
	}
	return table + "." + key
}

func element(key string, i int) string { return fmt.Sprintf("%s[%d]", key, i) }

// has reports whether the file has a key.
func (d *document) has(key string) bool {
	_, ok := d.places[key]
	return ok
}

// say reports a problem with a key, at its position or that of the nearest
// enclosing key. What is below a key with a problem is a consequence, and not reported.
func (d *document) say(key, format string, args ...any) {
	if slices.ContainsFunc(d.problems, func(p Problem) bool {
		below, ok := strings.CutPrefix(key, p.Key)
		return ok && strings.HasPrefix(below, ".")
	}) {
		return
	}
	at, ok := d.places[key]
	for above := key; !ok; {
		i := strings.LastIndexAny(above, ".[")
		if i < 0 {
			at = place{1, 1}
			break
		}
		above = above[:i]
		at, ok = d.places[above]
	}
	d.problems = append(d.problems, Problem{d.file, at.line, at.column, key, fmt.Sprintf(format, args...)})
}

// wrong reports whether a problem with a key has already been reported.
func (d *document) wrong(key string) bool {
	return slices.ContainsFunc(d.problems, func(p Problem) bool { return p.Key == key })
}

// decode decodes the file into m.
func (m *Manifest) decode(d *document) {
	d.table("", reflect.ValueOf(m).Elem(), d.values)
}

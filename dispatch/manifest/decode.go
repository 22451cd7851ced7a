package manifest

import (
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// A field is one key of a table. It is read from the tags of a struct field:
//
//	toml      its name
//	doc       its meaning
//	min, max  the range of a number, or the length of a text in bytes
//	default   its value if it is not given
//	required  whether it must be given
//	enum      the allowed words, separated by |
type field struct {
	name, doc, def string
	typ            reflect.Type
	index          []int
	required       bool
	min, max       *float64
	enum           []string
}

func fieldsOf(t reflect.Type) (list []field) {
	for _, sf := range reflect.VisibleFields(t) { // also those of embedded structs
		tag := sf.Tag
		name := tag.Get("toml")
		if name == "" {
			continue // not a key of the file
		}
		f := field{
			name: name, doc: tag.Get("doc"), def: tag.Get("default"), typ: sf.Type, index: sf.Index,
			required: tag.Get("required") == "true", min: number(tag.Get("min")), max: number(tag.Get("max")),
		}
		if words := tag.Get("enum"); words != "" {
			f.enum = strings.Split(words, "|")
		}
		list = append(list, f)
	}
	return list
}

func number(s string) *float64 {
	if x, err := strconv.ParseFloat(s, 64); err == nil {
		return &x
	}
	return nil
}

// table decodes the table at key into the struct v. Keys that are not given get
// their defaults.
func (d *document) table(key string, v reflect.Value, given map[string]any) {
	fields := fieldsOf(v.Type())
	known := make([]string, len(fields))
	for i, f := range fields {
		known[i] = f.name
	}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if slices.Contains(known, name) {
			continue
		}
		meant := nearest(name, known)
		table, inner := elsewhere(v.Type(), name)
		switch {
		case inner != "" && (inner == name || meant == ""):
			d.say(join(key, name), "is unknown; did you mean %s in [%s]?", inner, join(key, table))
		case meant != "":
			d.say(join(key, name), "is unknown; did you mean %s?", meant)
		default:
			d.say(join(key, name), "is unknown; %s takes %s", within(key), strings.Join(known, ", "))
		}
	}
	for _, f := range fields {
		path := join(key, f.name)
		value, ok := given[f.name]
		switch {
		case ok:
			d.set(path, f, v.FieldByIndex(f.index), value)
		case f.typ.Kind() == reflect.Struct:
			d.table(path, v.FieldByIndex(f.index), nil)
		case f.required:
			d.say(path, "must be given: %s", f.doc)
		case f.def != "":
			d.set(path, f, v.FieldByIndex(f.index), f.fallback())
		}
	}
}

// elsewhere returns the first table within t that has the key name, or else one
// with a similar key.
func elsewhere(t reflect.Type, name string) (table, key string) {
	for _, f := range fieldsOf(t) {
		if f.typ.Kind() != reflect.Struct {
			continue
		}
		var known []string
		for _, g := range fieldsOf(f.typ) {
			known = append(known, g.name)
		}
		switch meant := nearest(name, known); {
		case slices.Contains(known, name):
			return f.name, name
		case meant != "" && key == "":
			table, key = f.name, meant
		}
	}
	return table, key
}

func within(key string) string {
	if key == "" {
		return "a manifest"
	}
	return "[" + key + "]"
}

// fallback returns the default as a decoded value.
func (f field) fallback() any {
	switch f.typ.Kind() {
	case reflect.Int, reflect.Float64:
		return *number(f.def)
	case reflect.Bool:
		return f.def == "true"
	default:
		return f.def
	}
}

// set decodes one value, or reports a problem if its type or range is wrong.
func (d *document) set(key string, f field, v reflect.Value, value any) {
	switch v.Kind() {
	case reflect.Struct:
		if t, ok := value.(map[string]any); ok {
			d.table(key, v, t)
			return
		}
	case reflect.Map:
		if t, ok := value.(map[string]any); ok {
			d.entries(key, v, t)
			return
		}
	case reflect.Slice:
		if list, ok := items(value); ok {
			d.list(key, v, list)
			return
		}
	case reflect.String:
		if s, ok := value.(string); ok {
			d.text(key, f, v, s)
			return
		}
	case reflect.Bool:
		if b, ok := value.(bool); ok {
			v.SetBool(b)
			return
		}
	case reflect.Int, reflect.Float64:
		if x, ok := numeric(value, v.Kind()); ok {
			d.number(key, f, v, x)
			return
		}
	default:
		panic("manifest: a field has type " + f.typ.String())
	}
	d.say(key, "must be %s, and is %s", f.kind(), kindOf(value))
}

func numeric(value any, kind reflect.Kind) (float64, bool) {
	switch x := value.(type) {
	case int64:
		return float64(x), true
	case float64:
		return x, kind == reflect.Float64 && !math.IsNaN(x) && !math.IsInf(x, 0) || x == math.Trunc(x) && !math.IsInf(x, 0)
	}
	return 0, false
}

func (d *document) number(key string, f field, v reflect.Value, x float64) {
	if f.min != nil && x < *f.min || f.max != nil && x > *f.max {
		d.say(key, "is %v, and must be %s", plain(x), f.span())
		return
	}
	if v.Kind() == reflect.Int {
		v.SetInt(int64(x))
	} else {
		v.SetFloat(x)
	}
}

func (d *document) text(key string, f field, v reflect.Value, s string) {
	switch {
	case len(f.enum) > 0 && !slices.Contains(f.enum, s):
		if meant := nearest(s, f.enum); meant != "" {
			d.say(key, "is %q, and must be one of %s; did you mean %s?", s, strings.Join(f.enum, ", "), meant)
		} else {
			d.say(key, "is %q, and must be one of %s", s, strings.Join(f.enum, ", "))
		}
	case f.max != nil && float64(len(s)) > *f.max:
		d.say(key, "has %d bytes, and must have at most %s", len(s), plain(*f.max))
	case f.required && strings.TrimSpace(s) == "":
		d.say(key, "must not be empty: %s", f.doc)
	case strings.ContainsRune(s, 0):
		d.say(key, "has a zero byte, which no process can be given")
	default:
		v.SetString(s)
	}
}

// list decodes a list of texts or of tables.
func (d *document) list(key string, v reflect.Value, list []any) {
	out := reflect.MakeSlice(v.Type(), len(list), len(list))
	for i, value := range list {
		d.set(element(key, i), field{typ: v.Type().Elem()}, out.Index(i), value)
	}
	v.Set(out)
}

// entries decodes a table of texts or of tables whose names the user chose.
func (d *document) entries(key string, v reflect.Value, t map[string]any) {
	out := reflect.MakeMap(v.Type())
	for _, name := range slices.Sorted(maps.Keys(t)) {
		one := reflect.New(v.Type().Elem()).Elem()
		d.set(join(key, name), field{typ: one.Type()}, one, t[name])
		out.SetMapIndex(reflect.ValueOf(name), one)
	}
	v.Set(out)
}

// items returns the elements of a list or of an array of tables.
func items(value any) ([]any, bool) {
	switch list := value.(type) {
	case []any:
		return list, true
	case []map[string]any:
		all := make([]any, len(list))
		for i, t := range list {
			all[i] = t
		}
		return all, true
	}
	return nil, false
}

// kind describes the required type of a value.
func (f field) kind() string {
	switch f.typ.Kind() {
	case reflect.Struct:
		return "a table"
	case reflect.Map:
		if f.typ.Elem().Kind() == reflect.String {
			return `a table of texts, as in { NAME = "value" }`
		}
		return "a table of tables"
	case reflect.Slice:
		if f.typ.Elem().Kind() == reflect.String {
			return `a list of texts, as in ["sh", "-c", "make"]`
		}
		return "a list of tables, each headed by [[…]]"
	case reflect.String:
		return "a text, in quotes"
	case reflect.Bool:
		return "true or false"
	case reflect.Int:
		return "a whole number"
	default:
		return "a number"
	}
}

func kindOf(value any) string {
	switch x := value.(type) {
	case map[string]any:
		return "a table"
	case []any, []map[string]any:
		return "a list"
	case string:
		return "a text"
	case bool:
		return "true or false"
	case int64:
		return fmt.Sprintf("the number %d", x)
	case float64:
		return "the number " + plain(x)
	default:
		return "a date or time"
	}
}

// span describes the range of a number.
func (f field) span() string {
	switch {
	case f.max == nil:
		return "at least " + plain(*f.min)
	case f.min == nil:
		return "at most " + plain(*f.max)
	default:
		return "from " + plain(*f.min) + " to " + plain(*f.max)
	}
}

// plain formats a number as people write it: with all its digits, unless it is huge.
func plain(x float64) string {
	if math.Abs(x) >= 1e15 {
		return strconv.FormatFloat(x, 'g', -1, 64)
	}
	return strconv.FormatFloat(x, 'f', -1, 64)
}

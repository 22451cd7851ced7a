package tools

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/google/uuid"

	"github.com/leasehold/leasehold/registry"
)

// seconds is a duration as tools take it: a number, fractions allowed.
type seconds float64

func (s seconds) duration() time.Duration { return time.Duration(float64(s) * float64(time.Second)) }

// A field is one argument of a tool, read from the tags of a struct field:
//
//	json     its name; without omitempty it must be given
//	doc      what it means
//	min, max the range of a number, or the length in bytes of a string
//	default  what it is when left out
//	enum     the words it may be, separated by |
type field struct {
	name     string
	doc      string
	typ      reflect.Type
	required bool
	min, max string
	def      string
	enum     []string
}

// fields yields the arguments of a tool in order; embedded structs are part of
// the one they stand in.
func fields(t reflect.Type) iter.Seq2[field, []int] {
	return func(yield func(field, []int) bool) {
		for _, sf := range reflect.VisibleFields(t) {
			if sf.Anonymous {
				continue
			}
			name, rest, _ := strings.Cut(sf.Tag.Get("json"), ",")
			f := field{
				name: name, doc: sf.Tag.Get("doc"), typ: value(sf.Type),
				required: !strings.Contains(rest, "omitempty"),
				min:      sf.Tag.Get("min"), max: sf.Tag.Get("max"), def: sf.Tag.Get("default"),
			}
			if e := sf.Tag.Get("enum"); e != "" {
				f.enum = strings.Split(e, "|")
			}
			if !yield(f, sf.Index) {
				return
			}
		}
	}
}

// value is the type of what a pointer, for an argument whose zero means
// something, points to.
func value(t reflect.Type) reflect.Type {
	if t.Kind() == reflect.Pointer {
		return t.Elem()
	}
	return t
}

// decode reads the arguments of a call. What is wrong is refused by the name
// of the argument and with what is allowed; nothing is ignored.
func decode[A any](raw json.RawMessage) (args A, err error) {
	given := make(map[string]json.RawMessage)
	if raw = bytes.TrimSpace(raw); len(raw) > 0 && !bytes.Equal(raw, []byte("null")) {
		if err := json.Unmarshal(raw, &given); err != nil {
			return args, &registry.ArgumentError{Argument: "arguments", Problem: "must be a JSON object"}
		}
	}
	v := reflect.ValueOf(&args).Elem()
	var known []string
	for f, index := range fields(v.Type()) {
		known = append(known, f.name)
		arg, ok := given[f.name]
		delete(given, f.name)
		if !ok && f.def != "" {
			arg, ok = json.RawMessage(f.def), true
		}
		if !ok && f.required {
			return args, &registry.ArgumentError{Argument: f.name, Problem: "must be given"}
		}
		if !ok {
			continue
		}
		if err := f.set(v.FieldByIndex(index), arg); err != nil {
			return args, err
		}
	}
	for name := range given {
		return args, unknown(name, known)
	}
	return args, nil
}

func (f field) set(v reflect.Value, raw json.RawMessage) error {
	wrong := func(problem string) error {
		return &registry.ArgumentError{Argument: f.name, Problem: problem}
	}
	if v.Type() == reflect.TypeFor[json.RawMessage]() {
		v.SetBytes(raw)
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(v.Addr().Interface()); err != nil || bytes.Equal(raw, []byte("null")) {
		return wrong("must be " + f.kind())
	}
	switch v.Kind() {
	case reflect.Float64:
		if !within(v.Float(), f.min, f.max) {
			return wrong(f.span())
		}
	case reflect.Int:
		if !within(float64(v.Int()), f.min, f.max) {
			return wrong(f.span())
		}
	case reflect.String:
		if !within(float64(v.Len()), f.min, f.max) {
			return wrong(f.span() + " bytes")
		}
		if f.enum != nil && !slices.Contains(f.enum, v.String()) {
			return wrong("must be one of " + strings.Join(f.enum, ", "))
		}
	}
	return nil
}

func within(x float64, min, max string) bool {
	lo, errLo := strconv.ParseFloat(min, 64)
	hi, errHi := strconv.ParseFloat(max, 64)
	return (errLo != nil || x >= lo) && (errHi != nil || x <= hi)
}

func (f field) span() string {
	switch {
	case f.max == "":
		return "must be at least " + f.min
	case f.min == "":
		return "must be at most " + f.max
	default:
		return "must be from " + f.min + " to " + f.max
	}
}

func (f field) kind() string {
	switch f.typ.Kind() {
	case reflect.Float64:
		return "a number"
	case reflect.Int, reflect.Uint64:
		return "a whole number"
	case reflect.Bool:
		return "true or false"
	case reflect.String:
		return "a string"
	default:
		return "of the form the schema shows"
	}
}

// unknown refuses an argument by its name, and says which there are.
func unknown(name string, known []string) error {
	if len(known) == 0 {
		return &registry.ArgumentError{Argument: name, Problem: "is unknown: this tool takes no arguments"}
	}
	return &registry.ArgumentError{Argument: name, Problem: "is unknown; the arguments are " + strings.Join(known, ", ")}
}

// inputSchema says the same as decode does.
func inputSchema[A any]() *jsonschema.Schema {
	s := &jsonschema.Schema{
		Type: "object", Properties: make(map[string]*jsonschema.Schema),
		AdditionalProperties: &jsonschema.Schema{Not: &jsonschema.Schema{}},
	}
	for f := range fields(reflect.TypeFor[A]()) {
		s.Properties[f.name] = f.schema()
		s.PropertyOrder = append(s.PropertyOrder, f.name)
		if f.required {
			s.Required = append(s.Required, f.name)
		}
	}
	return s
}

func (f field) schema() *jsonschema.Schema {
	s := &jsonschema.Schema{Description: f.doc}
	switch f.typ.Kind() {
	case reflect.Float64:
		s.Type, s.Minimum, s.Maximum = "number", number(f.min), number(f.max)
	case reflect.Int, reflect.Uint64:
		s.Type, s.Minimum, s.Maximum = "integer", number(f.min), number(f.max)
	case reflect.Bool:
		s.Type = "boolean"
	case reflect.String:
		s.Type, s.MinLength, s.MaxLength = "string", whole(f.min), whole(f.max)
		for _, word := range f.enum {
			s.Enum = append(s.Enum, word)
		}
	case reflect.Slice: // json.RawMessage: any JSON
	default:
		panic(fmt.Sprintf("tools: argument %s has type %v", f.name, f.typ))
	}
	if f.def != "" {
		s.Default = json.RawMessage(f.def)
	}
	return s
}

func number(s string) *float64 {
	if x, err := strconv.ParseFloat(s, 64); err == nil {
		return &x
	}
	return nil
}

func whole(s string) *int {
	if n, err := strconv.Atoi(s); err == nil {
		return &n
	}
	return nil
}

// outputSchema is the shape of an answer. Every answer may carry notices.
func outputSchema[R any]() *jsonschema.Schema {
	opts := &jsonschema.ForOptions{TypeSchemas: map[reflect.Type]*jsonschema.Schema{
		reflect.TypeFor[json.RawMessage](): {},
	}}
	s, err := jsonschema.For[R](opts)
	if err != nil {
		panic(fmt.Sprintf("tools: %T: %v", *new(R), err))
	}
	notices, err := jsonschema.For[[]Notice](opts)
	if err != nil {
		panic(err)
	}
	s.Properties["notices"] = notices
	s.PropertyOrder = append(s.PropertyOrder, "notices")
	return s
}

// parseID reads an id that the server gave out before.
func parseID(argument, text string) (uuid.UUID, error) {
	id, err := uuid.Parse(text)
	if err != nil || len(text) != 36 {
		return uuid.Nil, &registry.ArgumentError{Argument: argument, Problem: "must be one that was given in an answer"}
	}
	return id, nil
}

// renamed gives an error about an argument the name that the caller knows.
func renamed(err error, from, to string) error {
	var bad *registry.ArgumentError
	if errors.As(err, &bad) && bad.Argument == from {
		return &registry.ArgumentError{Argument: to, Problem: bad.Problem}
	}
	return err
}

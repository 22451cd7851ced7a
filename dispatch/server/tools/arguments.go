package tools

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/google/uuid"

	"github.com/leasehold/leasehold/dispatch/server/wire"
	"github.com/leasehold/leasehold/registry"
)

// seconds is a duration as tools take it: a number, fractions allowed.
type seconds float64

func (s seconds) duration() time.Duration { return time.Duration(float64(s) * float64(time.Second)) }

// A field is one argument of a tool, read from the tags of a struct field:
//
//	json     its name; without omitempty or omitzero it must be given
//	doc      what it means
//	min, max the range of a number, or the length of a string, in bytes, or list
//	default  what it is when left out
//	enum     the words it may be, separated by |
//	for      leads: workers are not shown it
//	destroys true: with it the tool may destroy what is another's
type field struct {
	name     string
	doc      string
	typ      reflect.Type
	index    []int
	required bool
	leads    bool
	destroys bool
	min, max *float64
	def      json.RawMessage
	enum     []string
}

// fieldsOf reads the arguments of a tool from its struct, in order; embedded
// structs are part of the one they stand in.
func fieldsOf(t reflect.Type) (list []field) {
	for _, sf := range reflect.VisibleFields(t) {
		if sf.Anonymous {
			continue
		}
		name, rest, _ := strings.Cut(sf.Tag.Get("json"), ",")
		f := field{
			name: name, doc: sf.Tag.Get("doc"), typ: value(sf.Type), index: sf.Index,
			required: !strings.Contains(rest, "omitempty") && !strings.Contains(rest, "omitzero"), leads: sf.Tag.Get("for") == "leads", destroys: sf.Tag.Get("destroys") == "true",
			min: number(sf.Tag.Get("min")), max: number(sf.Tag.Get("max")),
		}
		if def, ok := sf.Tag.Lookup("default"); ok {
			f.def = json.RawMessage(def)
		}
		if words := sf.Tag.Get("enum"); words != "" {
			f.enum = strings.Split(words, "|")
		}
		list = append(list, f)
	}
	return list
}

// value is the type of what a pointer, for an argument whose zero means
// something, points to.
func value(t reflect.Type) reflect.Type {
	if t.Kind() == reflect.Pointer {
		return t.Elem()
	}
	return t
}

// defaultsOf is the arguments of a call that was given none.
func defaultsOf[A any](fields []field) (args A) {
	v := reflect.ValueOf(&args).Elem()
	for i := range fields {
		if f := &fields[i]; f.def != nil {
			if err := f.set(v.FieldByIndex(f.index), f.def); err != nil {
				panic(fmt.Sprintf("tools: %T: the default: %v", args, err))
			}
		}
	}
	return args
}

// decode reads the arguments of a call into args, which has the defaults. What
// is wrong is refused by the name of the argument and with what is allowed;
// nothing is ignored. An unknown name comes first: it is often a misspelt one
// of those that are missing.
func decode(fields []field, given Arguments, args reflect.Value) error {
	values, strange := sortOut(fields, given)
	if len(strange) > 0 {
		return unknown(strange, missing(fields, values), fields)
	}
	for i := range fields {
		f := &fields[i]
		if values[i] == nil {
			continue
		}
		if err := wire.Portable(values[i]); err != nil {
			return f.wrong(err.Error())
		}
		if err := f.set(args.FieldByIndex(f.index), values[i]); err != nil {
			return err
		}
	}
	if names := missing(fields, values); len(names) > 0 {
		return &registry.ArgumentError{Argument: names[0], Problem: "must be given"}
	}
	return nil
}

// missing are the names of arguments that must be given and are not.
func missing(fields []field, values []json.RawMessage) (names []string) {
	for i := range fields {
		if f := &fields[i]; values[i] == nil && f.required && f.def == nil {
			names = append(names, f.name)
		}
	}
	return names
}

// sortOut gives what was given for each field, and the names that no field has.
func sortOut(fields []field, given Arguments) (values []json.RawMessage, strange []string) {
	values = make([]json.RawMessage, len(fields))
next:
	for name, value := range wire.Members(given) {
		for i := range fields {
			if fields[i].name == string(name) {
				values[i] = value
				continue next
			}
		}
		if string(name) != asName {
			strange = append(strange, string(name))
		}
	}
	return values, strange
}

func (f *field) set(v reflect.Value, raw json.RawMessage) error {
	if v.Type() == reflect.TypeFor[json.RawMessage]() {
		v.SetBytes(raw)
		return nil
	}
	if v.Kind() == reflect.Pointer {
		v.Set(reflect.New(f.typ))
		v = v.Elem()
	}
	if err := f.read(v, raw); err != nil {
		return err
	}
	switch v.Kind() {
	case reflect.Float64:
		if !f.within(v.Float()) {
			return f.wrong(f.span())
		}
	case reflect.Int:
		if !f.within(float64(v.Int())) {
			return f.wrong(f.span())
		}
	case reflect.Slice:
		if !f.within(float64(v.Len())) {
			return f.wrong(f.span() + " long")
		}
	case reflect.String:
		if !f.within(float64(v.Len())) {
			return f.wrong(f.span() + " bytes")
		}
		if f.enum != nil && !slices.Contains(f.enum, v.String()) {
			return f.wrong("must be one of " + strings.Join(f.enum, ", "))
		}
	}
	return nil
}

// read decodes an argument. What is unknown in an object is refused by name.
func (f *field) read(v reflect.Value, raw json.RawMessage) error {
	var ok bool
	switch v.Kind() {
	case reflect.String:
		var x string
		x, ok = wire.TextOf(raw)
		v.SetString(x)
	case reflect.Float64:
		x, err := strconv.ParseFloat(string(raw), 64)
		ok = err == nil
		v.SetFloat(x)
	case reflect.Uint64:
		x, err := strconv.ParseUint(string(raw), 10, 64)
		ok = err == nil
		v.SetUint(x)
	case reflect.Struct, reflect.Map:
		dec := json.NewDecoder(bytes.NewReader(raw))
		dec.DisallowUnknownFields()
		if err := dec.Decode(v.Addr().Interface()); err != nil {
			return f.wrong("must be " + f.kind() + ": " + strings.TrimPrefix(err.Error(), "json: "))
		}
		ok = string(raw) != "null"
	case reflect.Slice:
		dec := json.NewDecoder(bytes.NewReader(raw))
		dec.DisallowUnknownFields()
		if err := dec.Decode(v.Addr().Interface()); err != nil && f.objects() {
			return f.wrong("must be " + f.kind() + ": " + strings.TrimPrefix(err.Error(), "json: "))
		} else {
			ok = err == nil && string(raw) != "null"
		}
	default:
		ok = json.Unmarshal(raw, v.Addr().Interface()) == nil && string(raw) != "null"
	}
	if !ok {
		return f.wrong("must be " + f.kind())
	}
	return nil
}

// objects reports whether the argument is a list of objects.
func (f *field) objects() bool {
	return f.typ.Kind() == reflect.Slice && f.typ.Elem().Kind() == reflect.Struct
}

func (f *field) wrong(problem string) error {
	return &registry.ArgumentError{Argument: f.name, Problem: problem}
}

func (f *field) within(x float64) bool {
	return (f.min == nil || x >= *f.min) && (f.max == nil || x <= *f.max)
}

func (f *field) span() string {
	switch {
	case f.max == nil:
		return "must be at least " + plain(*f.min)
	case f.min == nil:
		return "must be at most " + plain(*f.max)
	default:
		return "must be from " + plain(*f.min) + " to " + plain(*f.max)
	}
}

func plain(x float64) string { return strconv.FormatFloat(x, 'f', -1, 64) }

func (f *field) kind() string {
	switch f.typ.Kind() {
	case reflect.Float64:
		return "a number"
	case reflect.Int, reflect.Uint64:
		return "a whole number"
	case reflect.Bool:
		return "true or false"
	case reflect.String:
		return "a string"
	case reflect.Slice:
		if f.objects() {
			return "a list of objects"
		}
		return "a list of strings"
	case reflect.Map, reflect.Struct:
		return "an object"
	default:
		return "of the form the schema shows"
	}
}

// unknown refuses what was given and is no argument by its name, and says which
// there are, and which of those are missing.
func unknown(strange, missing []string, fields []field) error {
	var known []string
	for _, f := range fields {
		known = append(known, f.name)
	}
	problem := "is unknown: this tool takes no arguments"
	if len(known) > 0 {
		problem = "is unknown; the arguments are " + strings.Join(known, ", ")
	}
	if len(missing) > 0 {
		problem += "; missing: " + strings.Join(missing, ", ")
	}
	name := slices.Min(strange)
	if len(name) > maxNameShown {
		name = strings.ToValidUTF8(name[:maxNameShown], "") + "…"
	}
	return &registry.ArgumentError{Argument: strings.ToValidUTF8(name, "\ufffd"), Problem: problem}
}

// maxNameShown bounds what is told of an argument's name that the caller made up.
const maxNameShown = 64

// inputSchema says the same as decode does.
func inputSchema(fields []field) *jsonschema.Schema {
	s := &jsonschema.Schema{
		Type: "object", Properties: make(map[string]*jsonschema.Schema),
		AdditionalProperties: &jsonschema.Schema{Not: &jsonschema.Schema{}},
	}
	for _, f := range fields {
		s.Properties[f.name] = f.schema()
		s.PropertyOrder = append(s.PropertyOrder, f.name)
		if f.required {
			s.Required = append(s.Required, f.name)
		}
	}
	return s
}

func (f *field) schema() *jsonschema.Schema {
	s := &jsonschema.Schema{Description: f.doc}
	switch f.typ.Kind() {
	case reflect.Struct, reflect.Map:
		s = schemaOfType(f.typ)
		s.Description = f.doc
	case reflect.Float64:
		s.Type, s.Minimum, s.Maximum = "number", f.min, f.max
	case reflect.Int, reflect.Uint64:
		s.Type, s.Minimum, s.Maximum = "integer", f.min, f.max
	case reflect.Bool:
		s.Type = "boolean"
	case reflect.String:
		s.Type, s.MinLength, s.MaxLength = "string", whole(f.min), whole(f.max)
		for _, word := range f.enum {
			s.Enum = append(s.Enum, word)
		}
	case reflect.Slice:
		if f.typ != reflect.TypeFor[json.RawMessage]() { // which is any JSON
			s.Type, s.Items = "array", &jsonschema.Schema{Type: "string"}
			if f.objects() {
				s.Items = schemaOfType(f.typ.Elem())
			}
			s.MinItems, s.MaxItems = whole(f.min), whole(f.max)
		}
	default:
		panic(fmt.Sprintf("tools: argument %s has type %v", f.name, f.typ))
	}
	s.Default = f.def
	return s
}

func number(s string) *float64 {
	if x, err := strconv.ParseFloat(s, 64); err == nil {
		return &x
	}
	return nil
}

func whole(x *float64) *int {
	if x == nil {
		return nil
	}
	n := int(*x)
	return &n
}

// outputSchema is the shape of an answer. Every answer may carry notices.
func outputSchema[R any]() *jsonschema.Schema {
	s := schemaOf[R]()
	s.Properties["notices"] = schemaOf[[]Notice]()
	s.Properties["notices"].Description = "leases of yours that you have lost since the last answer, what other agents wrote to you, or that your run ends"
	s.PropertyOrder = append(s.PropertyOrder, "notices")
	return s
}

// orRefusal is a schema that refusals are of as well. By the specification
// they need not be; the TypeScript SDK holds them against it all the same, and
// its clients would tell their models of a broken schema instead of who holds
// the lease.
func orRefusal(answer *jsonschema.Schema) *jsonschema.Schema {
	s := *answer
	s.AdditionalProperties = nil // what a code brings along
	s.Properties = maps.Clone(s.Properties)
	s.Properties["code"] = &jsonschema.Schema{Type: "string", Description: "of a refusal: why, in a word"}
	s.Properties["message"] = &jsonschema.Schema{Type: "string", Description: "of a refusal: what, who, and what next"}
	s.PropertyOrder = append(slices.Clone(s.PropertyOrder), "code", "message")
	s.AnyOf = []*jsonschema.Schema{{Required: answer.Required}, {Required: []string{"code", "message"}}}
	s.Required = nil
	return &s
}

func schemaOf[T any]() *jsonschema.Schema { return schemaOfType(reflect.TypeFor[T]()) }

func schemaOfType(t reflect.Type) *jsonschema.Schema {
	s, err := jsonschema.ForType(t, &jsonschema.ForOptions{TypeSchemas: map[reflect.Type]*jsonschema.Schema{
		// Said in words, since the empty schema is written as true, and the
		// clients of the TypeScript SDK take only objects for schemas.
		reflect.TypeFor[json.RawMessage](): {Description: "any JSON"},
		reflect.TypeFor[time.Time]():       {Type: "string", Format: "date-time"},
		reflect.TypeFor[stamp]():           {Type: "string", Format: "date-time"},
	}})
	if err != nil {
		panic(fmt.Sprintf("tools: %v: %v", t, err))
	}
	neverNull(s)
	return s
}

// neverNull says of every list that it is one: an empty list is told as such.
func neverNull(s *jsonschema.Schema) {
	if s.Items != nil {
		s.Type, s.Types = "array", nil
		neverNull(s.Items)
	}
	for _, p := range s.Properties {
		neverNull(p)
	}
}

// parseID reads an id that the server gave out before.
func parseID(argument, text string) (uuid.UUID, error) {
	id, err := uuid.Parse(text)
	if err != nil || len(text) != 36 {
		return uuid.Nil, &registry.ArgumentError{Argument: argument, Problem: "must come from an answer"}
	}
	return id, nil
}

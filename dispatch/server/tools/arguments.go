package tools

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"math"
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

// seconds is a duration as an argument: a number, with fractions.
type seconds float64

func (s seconds) duration() time.Duration { return time.Duration(float64(s) * float64(time.Second)) }

// A field is one argument of a tool. It is read from the tags of a struct
// field:
//
//	json     its name; it is required unless omitempty or omitzero is given
//	doc      its meaning; jsonschema, of a struct that answers have too
//	min, max the range of a number, or of the length of a string, in bytes, or list
//	default  its value if it is not given
//	enum     the allowed words, separated by |
//	for      leads: not shown to workers
//	limits   true: the tool does more without it, so null is refused
//	destroys true: if it is given, the tool may destroy something of another party
type field struct {
	name     string
	doc      string
	typ      reflect.Type
	index    []int
	required bool
	leads    bool
	limits   bool
	destroys bool
	min, max *float64
	def      json.RawMessage
	enum     []string
	element  []field // of the objects in a list
}

// fieldsOf reads the arguments of a tool from its struct, in order. The fields
// of embedded structs are included.
func fieldsOf(t reflect.Type) (list []field) {
	for _, sf := range reflect.VisibleFields(t) {
		if sf.Anonymous {
			continue
		}
		name, rest, _ := strings.Cut(sf.Tag.Get("json"), ",")
		f := field{
			name: name, doc: cmp.Or(sf.Tag.Get("doc"), sf.Tag.Get("jsonschema")), typ: value(sf.Type), index: sf.Index,
			required: !strings.Contains(rest, "omitempty") && !strings.Contains(rest, "omitzero"), leads: sf.Tag.Get("for") == "leads", limits: sf.Tag.Get("limits") == "true", destroys: sf.Tag.Get("destroys") == "true",
			min: number(sf.Tag.Get("min")), max: number(sf.Tag.Get("max")),
		}
		if def, ok := sf.Tag.Lookup("default"); ok {
			f.def = json.RawMessage(def)
		}
		if words := sf.Tag.Get("enum"); words != "" {
			f.enum = strings.Split(words, "|")
		}
		if f.objects() {
			f.element = fieldsOf(f.typ.Elem())
		}
		list = append(list, f)
	}
	return list
}

// value returns the element type of a pointer, and any other type unchanged. An
// argument is a pointer if its zero value has a meaning.
func value(t reflect.Type) reflect.Type {
	if t.Kind() == reflect.Pointer {
		return t.Elem()
	}
	return t
}

// defaultsOf returns the arguments of a call without any.
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

// decode decodes the arguments of a call into args, which has the defaults. An
// error names the argument and what is allowed; nothing is ignored. An unknown
// name is reported before a missing one, because it is often a misspelling of
// that.
func decode(fields []field, given Arguments, args reflect.Value) error {
	values, strange, err := sortOut(fields, given)
	if err != nil {
		return err
	}
	strange = slices.DeleteFunc(strange, func(name string) bool { return name == asName })
	if len(strange) > 0 {
		return unknown(strange, missing(fields, values), fields)
	}
	return setAll(fields, values, args)
}

// setAll sets the fields that were given, and returns an error if one is
// missing.
func setAll(fields []field, values []json.RawMessage, args reflect.Value) error {
	for i := range fields {
		f := &fields[i]
		if values[i] == nil {
			continue
		}
		if !f.objects() { // their fields are checked one by one: a value may be as deep there as if it were sent alone
			if err := wire.Portable(values[i]); err != nil {
				return f.wrong(err.Error())
			}
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

// missing returns the names of required arguments that were not given.
func missing(fields []field, values []json.RawMessage) (names []string) {
	for i := range fields {
		if f := &fields[i]; values[i] == nil && f.required && f.def == nil {
			names = append(names, f.name)
		}
	}
	return names
}

// sortOut returns the given value of each field, and the names that belong to
// no field. A field that is given twice is an error: its sender cannot have
// meant both values.
func sortOut(fields []field, given Arguments) (values []json.RawMessage, strange []string, err error) {
	values = make([]json.RawMessage, len(fields))
next:
	for name, value := range wire.Members(given) {
		for i := range fields {
			f := &fields[i]
			if f.name != string(name) {
				continue
			}
			if values[i] != nil {
				return nil, nil, f.wrong("must be given once")
			}
			values[i] = f.meant(value)
			continue next
		}
		strange = append(strange, string(name))
	}
	return values, strange, nil
}

// meant returns what a client means by a value that the argument cannot have, or nil if
// it means to give none. Some clients send null for each argument that they leave out.
// Some send the JSON text of a number, a list or an object in a string, and their models
// cannot help it. An argument of any JSON is taken as it is.
func (f *field) meant(value json.RawMessage) json.RawMessage {
	if f.typ == reflect.TypeFor[json.RawMessage]() {
		return value
	}
	if text, ok := wire.TextOf(value); ok && f.typ.Kind() != reflect.String && json.Valid([]byte(text)) && wire.Portable(value) == nil {
		value = json.RawMessage(strings.TrimSpace(text))
	}
	if string(value) == "null" && !f.limits {
		return nil
	}
	return value
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
	case reflect.Uint64:
		if !f.within(float64(v.Uint())) {
			return f.wrong(f.span())
		}
	case reflect.Slice:
		if !f.within(float64(v.Len())) {
			return f.wrong(f.span() + " long")
		}
	case reflect.String:
		if !f.within(float64(v.Len())) {
			return f.wrong(f.length())
		}
		if f.enum != nil && !slices.Contains(f.enum, v.String()) {
			return f.wrong("must be one of " + strings.Join(f.enum, ", "))
		}
	}
	return nil
}

// read decodes an argument. An unknown field of an object is refused by name.
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
	case reflect.Int:
		x, err := strconv.ParseInt(string(raw), 10, 64)
		if err != nil {
			return f.readWhole(raw, func(x float64) { v.SetInt(int64(x)) })
		}
		ok = true
		v.SetInt(x)
	case reflect.Uint64:
		x, err := strconv.ParseUint(string(raw), 10, 64)
		if err != nil {
			return f.readWhole(raw, func(x float64) { v.SetUint(uint64(x)) })
		}
		ok = true
		v.SetUint(x)
	case reflect.Struct:
		dec := json.NewDecoder(bytes.NewReader(raw))
		dec.DisallowUnknownFields()
		if err := dec.Decode(v.Addr().Interface()); err != nil {
			return f.wrong("must be " + f.kind() + ": " + strings.TrimPrefix(err.Error(), "json: "))
		}
		ok = string(raw) != "null"
	case reflect.Slice:
		if f.objects() && raw[0] == '[' {
			return f.readObjects(v, raw)
		}
		ok = !f.objects() && json.Unmarshal(raw, v.Addr().Interface()) == nil && string(raw) != "null"
	default:
		ok = json.Unmarshal(raw, v.Addr().Interface()) == nil && string(raw) != "null"
	}
	if !ok {
		return f.wrong("must be " + f.kind())
	}
	return nil
}

// readWhole decodes a whole number that is not written as one, such as 10.0, or
// that its type cannot hold.
func (f *field) readWhole(raw json.RawMessage, set func(float64)) error {
	x, err := strconv.ParseFloat(string(raw), 64)
	switch {
	case err != nil || x != math.Trunc(x):
		return f.wrong("must be " + f.kind())
	case math.Abs(x) <= maxExact && (x >= 0 || f.typ.Kind() == reflect.Int):
		set(x)
		return nil
	case f.max != nil || x < 0 && f.min != nil:
		return f.wrong(f.span())
	case x < 0:
		return f.wrong("must be at least 0")
	default:
		return f.wrong("must be at most " + plain(maxExact))
	}
}

// maxExact is the greatest number below which a float64 is exact.
const maxExact = 1 << 53

// readObjects decodes a list of objects. An error names the object that is
// wrong, and its field.
func (f *field) readObjects(v reflect.Value, list json.RawMessage) error {
	objects := reflect.New(f.typ).Elem()
	objects.Set(reflect.MakeSlice(f.typ, 0, 0)) // an empty list is not the same as none
	for raw := range wire.Elements(list) {
		i := objects.Len()
		if f.max != nil && float64(i) >= *f.max {
			return f.wrong(f.span() + " long")
		}
		if raw[0] != '{' {
			return f.wrong("must be " + f.kind())
		}
		objects.Grow(1)
		objects.SetLen(i + 1)
		values, strange, err := sortOut(f.element, Arguments(raw))
		switch {
		case err != nil:
		case len(strange) > 0:
			err = unknown(strange, missing(f.element, values), f.element)
		default:
			err = setAll(f.element, values, objects.Index(i))
		}
		if err != nil {
			return fmt.Errorf("%s[%d]: %w", f.name, i, err)
		}
	}
	v.Set(objects)
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

// length says how long a string may be.
func (f *field) length() string {
	if f.max == nil && *f.min == 1 {
		return "must not be empty"
	}
	return f.span() + " bytes"
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
	case reflect.Map:
		if f.typ.Elem().Kind() == reflect.String {
			return "an object of strings"
		}
		return "an object"
	case reflect.Struct:
		return "an object"
	default:
		return "of the form the schema shows"
	}
}

// unknown returns the error for unknown arguments. It lists the known ones, and
// those that are missing.
func unknown(strange, missing []string, fields []field) error {
	var known []string
	for _, f := range fields {
		known = append(known, f.name)
	}
	problem := "is unknown: this tool takes no arguments"
	switch len(known) {
	case 0:
	case 1:
		problem = "is unknown; the argument is " + known[0]
	default:
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

// maxNameShown is how many bytes of an unknown argument's name are shown.
const maxNameShown = 64

// inputSchema describes what decode accepts.
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
		s = schemaOf(f.typ)
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
		if f.typ != reflect.TypeFor[json.RawMessage]() { // any JSON otherwise
			s.Type, s.Items = "array", &jsonschema.Schema{Type: "string"}
			if f.objects() {
				s.Items = inputSchema(f.element)
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

// outputSchema returns the schema of an answer. Every answer may have notices.
func outputSchema(answer reflect.Type) *jsonschema.Schema {
	s := schemaOf(answer)
	s.Properties["notices"] = schemaOf(reflect.TypeFor[[]Notice]())
	s.Properties["notices"].Description = "leases of yours that you have lost since the last answer, what other agents wrote to you, or that your run ends"
	s.PropertyOrder = append(s.PropertyOrder, "notices")
	return s
}

func schemaOf(t reflect.Type) *jsonschema.Schema {
	s, err := jsonschema.ForType(t, &jsonschema.ForOptions{TypeSchemas: map[reflect.Type]*jsonschema.Schema{
		// A description is needed: the empty schema would be written as true,
		// and clients of the TypeScript SDK accept only objects as schemas.
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

// neverNull gives every list the type array, because an empty list is never
// written as null.
func neverNull(s *jsonschema.Schema) {
	if s.Items != nil {
		s.Type, s.Types = "array", nil
		neverNull(s.Items)
	}
	for _, p := range s.Properties {
		neverNull(p)
	}
}

// parseID parses an id that must come from an earlier answer.
func parseID(argument, text string) (uuid.UUID, error) {
	id, err := uuid.Parse(text)
	if err != nil || len(text) != 36 {
		return uuid.Nil, &registry.ArgumentError{Argument: argument, Problem: "must be an id from an answer, with all of its 36 characters"}
	}
	return id, nil
}

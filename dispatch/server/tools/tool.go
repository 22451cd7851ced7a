// Package tools defines every MCP tool once: its schemas, its page in the book
// and its replies come from one [Tool].
//
// A refusal that an agent can act on is an answer, not a protocol error. Its
// object is {code, message, …}, and its text begins with the message. Any
// answer may carry notices, for example of leases that the session has lost.
package tools

import (
	"context"
	"encoding/json"
	"reflect"
	"slices"
	"sync"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/leasehold/leasehold/dispatch"
)

// A Tool is one MCP tool.
type Tool struct {
	Name        string
	Title       string
	Description string
	Effect      Effect
	Group       string // see [Viewer]
	Waits       bool   // whether a call waits by default

	*shape
	unread bool // no model reads the answer, so it has no notices
	call   func(ctx context.Context, se *dispatch.Session, given Arguments) (answer, error)
}

// Unanswered is the end of a message about a call that was sent and got no answer: the
// call may have taken effect. It is empty for a tool that changes nothing.
func Unanswered(name string) string {
	for _, t := range slices.Concat(Agents(), Programs(), Operators(nil)) {
		if t.Name == name && t.Effect.ReadOnly {
			return ""
		}
	}
	return "; the call may have taken effect, so look before you repeat it"
}

// Input returns the schema of the tool's arguments.
func (t Tool) Input() *jsonschema.Schema { return inputSchema(t.fields) }

// Argument returns the schema of one argument, or nil if there is none of that
// name.
func (t Tool) Argument(name string) *jsonschema.Schema {
	for i := range t.fields {
		if t.fields[i].name == name {
			return t.fields[i].schema()
		}
	}
	return nil
}

// Output returns the schema of the tool's answer. A refusal has another shape.
func (t Tool) Output() *jsonschema.Schema { return outputSchema(t.answer) }

// Arguments are the arguments of a call: a valid JSON object, or empty.
type Arguments json.RawMessage

// An Effect is what a client may know about a tool before it calls it.
type Effect struct {
	ReadOnly    bool
	Destructive bool // something of another party may be lost; some clients ask their user first, or refuse
	Idempotent  bool // a second call with the same arguments changes nothing more
}

// An answer is the object that a tool returns. Its Text is a line for people,
// with the next call where there is one. See [Reply].
type answer interface {
	Text() string
}

// tool makes a Tool from a function with arguments A and answer R. The fields
// of A have their descriptions and limits in tags, see field.
func tool[A any, R answer](name, title, description string, effect Effect, fn func(context.Context, *dispatch.Session, A) (R, error)) Tool {
	s := shapeOf[A, R]()
	fields, defaults := s.fields, s.defaults.(A)
	return Tool{
		Name: name, Title: title, Description: description, Effect: effect,
		Waits: waitsByDefault(fields), shape: s,
		call: func(ctx context.Context, se *dispatch.Session, given Arguments) (answer, error) {
			args := defaults
			if err := decode(fields, given, reflect.ValueOf(&args).Elem()); err != nil {
				return nil, err
			}
			return fn(ctx, se, args)
		},
	}
}

// A shape is derived from the types of a tool's arguments and answer. It is
// immutable. Schemas are made when they are asked for: kept, those of all tools
// would be half of what a daemon with 64 clients has in memory.
type shape struct {
	fields   []field
	defaults any
	answer   reflect.Type
	told     told // for the members of the answer
}

// shapes caches shapes, because a daemon makes its tools several times: for
// each state that it serves, and for the API.
var shapes sync.Map

func shapeOf[A any, R answer]() *shape {
	key := [2]reflect.Type{reflect.TypeFor[A](), reflect.TypeFor[R]()}
	if s, ok := shapes.Load(key); ok {
		return s.(*shape)
	}
	fields := fieldsOf(key[0])
	s, _ := shapes.LoadOrStore(key, &shape{fields, defaultsOf[A](fields), key[1], toldBy(key[1])})
	return s.(*shape)
}

func waitsByDefault(fields []field) bool {
	return slices.ContainsFunc(fields, func(f field) bool {
		return f.name == "wait_secs" && f.def != nil && string(f.def) != "0"
	})
}

// Agents returns the tools that agents see, in the order of the book.
func Agents() []Tool {
	return slices.Concat(
		grouped("layer", layerLeaseTools()), grouped("leases", leaseTools()), grouped("layer", storeTools()), grouped("tree", treeTools()),
		grouped("messages", messageTools()), grouped("queue", taskTools()),
	)
}

func grouped(group string, list []Tool) []Tool {
	for i := range list {
		list[i].Group = group
	}
	return list
}

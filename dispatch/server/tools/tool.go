// Package tools is every MCP tool, each defined once: its schemas, its page in
// the book and its replies come from one [Tool].
//
// A refusal that an agent can act on is an answer, not a protocol error: its
// object is {code, message, …} and its line of text is the message. Any answer
// may carry notices of leases that the session has lost since the last.
package tools

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/mark3labs/mcp-go/mcp"

	"github.com/leasehold/leasehold/dispatch"
)

// A Tool is one MCP tool.
type Tool struct {
	Name        string
	Title       string
	Description string
	Effect      Effect
	Input       *jsonschema.Schema
	Output      *jsonschema.Schema // of an answer; a refusal has a shape of its own
	Waits       bool               // if its call does not say how long
	Lists       bool               // it answers in pages, which may be long

	call func(ctx context.Context, se *dispatch.Session, given Arguments) (answer, error)
}

// Arguments are what a call was given: a valid JSON object, or nothing.
type Arguments json.RawMessage

// Effect is what a client may know of a tool before it calls it.
type Effect struct {
	ReadOnly    bool
	Destructive bool // may undo what is there
	Idempotent  bool // a second call with the same arguments changes nothing more
}

// An answer is what a tool says: an object, and the same in one line of text.
type answer interface {
	Text() string
}

// tool makes a Tool of a function from arguments A to an answer R. The fields
// of A carry their doc and bounds in tags, see field.
func tool[A any, R answer](name, title, description string, effect Effect, fn func(context.Context, *dispatch.Session, A) (R, error)) Tool {
	fields := fieldsOf(reflect.TypeFor[A]())
	defaults := defaultsOf[A](fields)
	return Tool{
		Name: name, Title: title, Description: description, Effect: effect,
		Input: inputSchema(fields), Output: outputSchema[R](), Waits: waitsByDefault(fields), Lists: has(fields, "limit"),
		call: func(ctx context.Context, se *dispatch.Session, given Arguments) (answer, error) {
			args := defaults
			if err := decode(fields, given, reflect.ValueOf(&args).Elem()); err != nil {
				return nil, err
			}
			return fn(ctx, se, args)
		},
	}
}

func waitsByDefault(fields []field) bool {
	return slices.ContainsFunc(fields, func(f field) bool {
		return f.name == "wait_secs" && f.def != nil && string(f.def) != "0"
	})
}

func has(fields []field, name string) bool {
	return slices.ContainsFunc(fields, func(f field) bool { return f.name == name })
}

// Agents are the tools that agents see, in the order of the book.
func Agents() []Tool {
	return slices.Concat(leaseTools(), storeTools(), treeTools(), messageTools(), taskTools())
}

// forLeads are those of them that a worker would only be refused.
var forLeads = map[string]bool{
	"spawn_sublead": true, "spawn_worker": true, "actor_status": true, "actor_wait": true, "actor_cancel": true, "lease_revoke": true,
}

// NamesFor are the names of the agents' tools that are of use to a role.
func NamesFor(role dispatch.Role) (names []string) {
	for _, t := range Agents() {
		if role.Leads() || !forLeads[t.Name] {
			names = append(names, t.Name)
		}
	}
	return names
}

// Definition is the tool as MCP lists it.
func (t Tool) Definition() mcp.Tool {
	no := false
	return mcp.Tool{
		Name: t.Name, Title: t.Title, Description: t.Description,
		RawInputSchema:  mustJSON(t.Input),
		RawOutputSchema: mustJSON(orRefusal(t.Output)),
		Annotations: mcp.ToolAnnotation{
			Title:        t.Title,
			ReadOnlyHint: &t.Effect.ReadOnly, DestructiveHint: &t.Effect.Destructive,
			IdempotentHint: &t.Effect.Idempotent, OpenWorldHint: &no,
		},
	}
}

func mustJSON(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("tools: %T: %v", v, err)) // schemas and answers are plain data
	}
	return b
}

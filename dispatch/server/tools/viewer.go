package tools

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/mark3labs/mcp-go/mcp"

	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/registry"
)

// A Viewer is the client that a list of tools is for. The client gives the list
// to its model with every request, so the list has only tools that the viewer
// can use. Calls of other tools are still refused by the rules.
type Viewer struct {
	Role   dispatch.Role
	Spawns bool     // it can spawn: its run has a launcher, and it was launched itself
	Groups []string // groups of tools to show; nil: all
}

// forLeads are the tools that refuse every worker.
var forLeads = map[string]bool{
	"spawn_sublead": true, "spawn_worker": true, "actor_status": true, "actor_wait": true, "actor_cancel": true, "lease_revoke": true,
}

// Sees reports whether a tool is useful to v.
func (v Viewer) Sees(t Tool) bool {
	switch {
	case forLeads[t.Name] && !v.Role.Leads(), strings.HasPrefix(t.Name, "spawn_") && !v.Spawns:
		return false
	default:
		return v.Groups == nil || slices.Contains(v.Groups, t.Group)
	}
}

// NamesFor returns the names of the tools that a launched agent of a role has.
func NamesFor(role dispatch.Role) (names []string) {
	v := Viewer{Role: role, Spawns: true}
	for _, t := range Agents() {
		if v.Sees(t) {
			names = append(names, t.Name)
		}
	}
	return names
}

// ParseGroups parses a comma-separated list of groups. "" and "all" mean all
// groups.
func ParseGroups(names string) ([]string, error) {
	if names == "" || names == "all" {
		return nil, nil
	}
	known := []string{"all"}
	for _, t := range Agents() {
		if !slices.Contains(known, t.Group) {
			known = append(known, t.Group)
		}
	}
	groups := strings.Split(names, ",")
	for _, g := range groups {
		if !slices.Contains(known, g) {
			return nil, &registry.ArgumentError{Argument: "tools", Problem: fmt.Sprintf("must be of %s, with commas between them, and not %q", strings.Join(known, ", "), g)}
		}
	}
	if slices.Contains(groups, "all") {
		return nil, nil
	}
	return groups, nil
}

// Definition returns the tool as MCP lists it. The arguments for leads, and
// what they may destroy, are included only if leads is set.
func (t Tool) Definition(leads bool) mcp.Tool {
	type key struct {
		name  string
		shape *shape // distinguishes tools with the same name
		leads bool
	}
	k := key{t.Name, t.shape, leads}
	if d, ok := definitions.Load(k); ok {
		return d.(mcp.Tool)
	}
	d, _ := definitions.LoadOrStore(k, t.define(leads))
	return d.(mcp.Tool)
}

// definitions caches definitions; see shapes.
var definitions sync.Map

func (t Tool) define(leads bool) mcp.Tool {
	no, destructive := false, t.Effect.Destructive
	input := &jsonschema.Schema{Type: "object", Properties: make(map[string]*jsonschema.Schema)}
	for i := range t.fields {
		f := &t.fields[i]
		if f.leads && !leads {
			continue
		}
		destructive = destructive || f.destroys
		input.Properties[f.name] = f.listed()
		input.PropertyOrder = append(input.PropertyOrder, f.name)
		if f.required {
			input.Required = append(input.Required, f.name)
		}
	}
	return mcp.Tool{
		Name: t.Name, Title: t.Title, Description: t.Description,
		RawInputSchema:  mustJSON(input),
		RawOutputSchema: mustJSON(listAnswer(t.Output())),
		Annotations: mcp.ToolAnnotation{
			ReadOnlyHint: &t.Effect.ReadOnly, DestructiveHint: &destructive,
			IdempotentHint: &t.Effect.Idempotent, OpenWorldHint: &no,
		},
	}
}

// listAnswer makes the schema of an answer one for a list of tools. It also accepts
// refusals. The specification does not require that. But the TypeScript SDK
// validates refusals too, and its clients would tell their models about a schema
// error instead of who holds the lease. The members of a notice are left out: every
// tool would repeat them, and they were two thirds of the list.
func listAnswer(s *jsonschema.Schema) *jsonschema.Schema {
	s.AdditionalProperties = nil // refusals have more fields, depending on the code
	s.Properties["notices"] = &jsonschema.Schema{
		Type: "array", Description: s.Properties["notices"].Description,
		Items: &jsonschema.Schema{
			Type: "object", Required: []string{"code"},
			Properties: map[string]*jsonschema.Schema{"code": {Type: "string"}},
		},
	}
	s.Properties["code"] = &jsonschema.Schema{Type: "string", Description: "of a refusal: why, in a word"}
	s.Properties["message"] = &jsonschema.Schema{Type: "string", Description: "of a refusal: what, who, and what next"}
	s.PropertyOrder = append(s.PropertyOrder, "code", "message")
	s.AnyOf = []*jsonschema.Schema{{Required: s.Required}, {Required: []string{"code", "message"}}}
	s.Required = nil
	return s
}

// listed returns the schema of an argument for a list of tools. Its limits, its
// default and the members of list elements are in its description, because some
// clients pass on nothing else, and stating them once is enough. Limits of the
// length of a string are left out, except that the description of a free text
// states them.
func (f *field) listed() *jsonschema.Schema {
	s := f.schema()
	s.Description, s.Default = f.described(), nil
	s.Minimum, s.Maximum, s.MinLength, s.MaxLength, s.MinItems, s.MaxItems = nil, nil, nil, nil, nil, nil
	if f.objects() {
		s.Items = &jsonschema.Schema{Type: "object"}
	}
	return s
}

// described returns the description of an argument with its limits and its
// default.
func (f *field) described() string {
	var more []string
	if f.objects() {
		more = append(more, "{"+strings.Join(inputSchema(f.element).PropertyOrder, ", ")+"}")
	}
	if bounds := f.bounds(); bounds != "" {
		more = append(more, bounds)
	}
	if def := strings.Trim(string(f.def), `"`); def != "" && def != "false" {
		more = append(more, "default "+def)
	}
	if len(more) == 0 {
		return f.doc
	}
	return f.doc + " (" + strings.Join(more, ", ") + ")"
}

func (f *field) bounds() string {
	if f.max == nil {
		return ""
	}
	switch f.typ.Kind() {
	case reflect.String:
		return ""
	case reflect.Slice:
		return "≤ " + plain(*f.max)
	default:
		if f.min == nil {
			return "≤ " + plain(*f.max)
		}
		return plain(*f.min) + "–" + plain(*f.max)
	}
}

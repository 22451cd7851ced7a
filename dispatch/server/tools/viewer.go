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

// A Viewer is whom a list of tools is for. What is in it a client gives its model
// with every request, so it has no more than the viewer can use. A call of a tool
// that is not in it is refused by the rules as it ever was.
type Viewer struct {
	Role   dispatch.Role
	Spawns bool     // its run has a launcher, and it is of those whom that serves
	Groups []string // the groups of tools it wants; nil: all
}

// forLeads are the tools that a worker would only be refused.
var forLeads = map[string]bool{
	"spawn_sublead": true, "spawn_worker": true, "actor_status": true, "actor_wait": true, "actor_cancel": true, "lease_revoke": true,
}

// Sees reports whether a tool is of use to v.
func (v Viewer) Sees(t Tool) bool {
	switch {
	case forLeads[t.Name] && !v.Role.Leads(), strings.HasPrefix(t.Name, "spawn_") && !v.Spawns:
		return false
	default:
		return v.Groups == nil || slices.Contains(v.Groups, t.Group)
	}
}

// NamesFor are the names of the tools that an agent of a role has once it is
// launched.
func NamesFor(role dispatch.Role) (names []string) {
	v := Viewer{Role: role, Spawns: true}
	for _, t := range Agents() {
		if v.Sees(t) {
			names = append(names, t.Name)
		}
	}
	return names
}

// ParseGroups reads the names of groups, with commas between them. "" and "all"
// are all groups.
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

// Definition is the tool as MCP lists it: with the arguments of leads, and what
// those may destroy, or without.
func (t Tool) Definition(leads bool) mcp.Tool {
	type key struct {
		name  string
		input *jsonschema.Schema // by which a tool is known from another of its name
		leads bool
	}
	k := key{t.Name, t.Input, leads}
	if d, ok := definitions.Load(k); ok {
		return d.(mcp.Tool)
	}
	d, _ := definitions.LoadOrStore(k, t.define(leads))
	return d.(mcp.Tool)
}

// definitions has those that were made: see shapes.
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
		RawOutputSchema: mustJSON(orRefusal(t.Output)),
		Annotations: mcp.ToolAnnotation{
			ReadOnlyHint: &t.Effect.ReadOnly, DestructiveHint: &destructive,
			IdempotentHint: &t.Effect.Idempotent, OpenWorldHint: &no,
		},
	}
}

// listed is the schema of an argument in a list of tools. Bounds and defaults are
// in its description, and so are the members of objects in a list: some clients
// pass on nothing else, and once is enough. Bounds of the length of a string are
// told to those who go beyond, but where a text is free its description has them.
func (f *field) listed() *jsonschema.Schema {
	s := f.schema()
	s.Description, s.Default = f.described(), nil
	s.Minimum, s.Maximum, s.MinLength, s.MaxLength, s.MinItems, s.MaxItems = nil, nil, nil, nil, nil, nil
	if f.objects() {
		s.Items = &jsonschema.Schema{Type: "object"}
	}
	return s
}

// described is the description of an argument with its bounds and its default.
func (f *field) described() string {
	var more []string
	if f.objects() {
		more = append(more, "{"+strings.Join(schemaOfType(f.typ.Elem()).PropertyOrder, ", ")+"}")
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

package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/leasehold/leasehold/dispatch/server/tools"
	"github.com/leasehold/leasehold/dispatch/server/wire"
	"github.com/leasehold/leasehold/registry"
)

// A Call is a request for a tool, with its arguments.
type Call struct {
	Route *Route
	Tool  tools.Tool
	Given map[string]json.RawMessage // the arguments
}

// Arguments are those of the call as JSON. Their values stay as they came.
func (c *Call) Arguments() tools.Arguments {
	size := len("{}")
	for name, value := range c.Given {
		size += len(name) + len(value) + len(`"":,`)
	}
	object := append(make([]byte, 0, size), '{')
	for _, name := range slices.Sorted(maps.Keys(c.Given)) {
		if len(object) > 1 {
			object = append(object, ',')
		}
		object = append(append(object, mustJSON(name)...), ':')
		object = append(object, c.Given[name]...)
	}
	return append(object, '}')
}

// Call reads a request whose body was already read.
func (r *Route) Call(req *http.Request, body []byte) (Call, error) {
	c := Call{Route: r, Tool: r.Tool, Given: make(map[string]json.RawMessage)}
	args := arguments{tool: &c.Tool, given: c.Given}
	maps.Copy(args.given, r.Fixed)
	expected, conditional, err := condition(req.Header)
	switch {
	case err != nil:
		return c, err
	case conditional && r.Unless == nil:
		return c, &registry.ArgumentError{Argument: "If-Match", Problem: "means nothing here: only entries of a store have versions"}
	case conditional:
		c.Tool = *r.Unless
		args.given["expected_version"] = strconv.AppendUint(nil, expected, 10)
	}
	for _, name := range r.inPath() {
		value := req.PathValue(name)
		if strings.HasSuffix(r.Path, "{"+name+"...}") {
			value = "/" + value
		}
		if err := args.add(name, value); err != nil {
			return c, err
		}
	}
	if err := args.query(req.URL); err != nil {
		return c, err
	}
	return c, args.body(body)
}

// condition reads from If-Match or If-None-Match which version an entry must
// have.
func condition(h http.Header) (expected uint64, ok bool, err error) {
	match, none := h.Get("If-Match"), h.Get("If-None-Match")
	switch {
	case match != "" && none != "":
		return 0, false, &registry.ArgumentError{Argument: "If-None-Match", Problem: "must be left out beside If-Match"}
	case none == "*":
		return 0, true, nil
	case none != "":
		return 0, false, &registry.ArgumentError{Argument: "If-None-Match", Problem: "must be *: there is no entry yet"}
	case match == "":
		return 0, false, nil
	}
	expected, err = strconv.ParseUint(strings.Trim(match, `"`), 10, 64)
	if err != nil || expected == 0 {
		return 0, false, &registry.ArgumentError{Argument: "If-Match", Problem: "must be one ETag of an entry"}
	}
	return expected, true, nil
}

// arguments collects the arguments of a call.
type arguments struct {
	tool  *tools.Tool
	given map[string]json.RawMessage
}

// add adds an argument that was given as text. If the tool does not take a
// string there, the text is JSON, or a list separated by commas.
func (a *arguments) add(name, text string) error {
	if _, twice := a.given[name]; twice {
		return &registry.ArgumentError{Argument: name, Problem: "must be given once"}
	}
	schema := a.tool.Argument(name)
	var err error
	switch {
	case schema == nil || schema.Type == "string": // an unknown argument is refused later, by name
		a.given[name], err = wire.Marshal(text)
	case schema.Type == "array" && schema.Items != nil && schema.Items.Type == "string":
		a.given[name], err = wire.Marshal(strings.Split(text, ","))
	case !json.Valid([]byte(text)):
		err = &registry.ArgumentError{Problem: "must be " + article(schema.Type)}
	default:
		a.given[name] = json.RawMessage(text)
	}
	if wrong, ok := errors.AsType[*registry.ArgumentError](err); ok {
		wrong.Argument = name
	}
	return err
}

func article(kind string) string {
	switch kind {
	case "integer":
		return "a whole number"
	case "boolean":
		return "true or false"
	case "number":
		return "a number"
	default:
		return "JSON"
	}
}

func (a *arguments) query(u *url.URL) error {
	values, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return &registry.ArgumentError{Argument: "the query", Problem: "cannot be read: " + err.Error()}
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if len(values[name]) > 1 {
			return &registry.ArgumentError{Argument: name, Problem: "must be given once"}
		}
		if err := a.add(name, values.Get(name)); err != nil {
			return err
		}
	}
	return nil
}

func (a *arguments) body(body []byte) error {
	body = bytes.TrimSpace(body)
	if len(body) == 0 {
		return nil
	}
	if !json.Valid(body) {
		err := json.Unmarshal(body, new(any))
		return &registry.ArgumentError{Argument: "the body", Problem: "is not JSON: " + err.Error()}
	}
	if body[0] != '{' {
		return &registry.ArgumentError{Argument: "the body", Problem: "must be a JSON object with the arguments"}
	}
	for name, value := range wire.Members(body) {
		if _, twice := a.given[string(name)]; twice {
			return &registry.ArgumentError{Argument: string(name), Problem: "must be given once, in the path, the query or the body"}
		}
		a.given[string(name)] = value
	}
	return nil
}

package main

import (
	"bytes"
	_ "embed"
	"fmt"
	"maps"
	"slices"
	"strings"
)

//go:embed client.py
var pythonCore string

//go:embed client.js
var javascriptCore string

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
func contains(list []string, s string) bool { return slices.Contains(list, s) }

// reserved are the words of Python that are names of arguments.
var reserved = map[string]bool{"as": true, "from": true, "in": true, "is": true}

// python writes the module: the core, and a method for each operation.
func python(list []operation) []byte {
	var b bytes.Buffer
	b.WriteString(pythonCore)
	for _, o := range list {
		var args []string
		for _, a := range o.InPath {
			args = append(args, a.Name)
		}
		var named []string
		table := func(arguments []argument, required bool) string {
			var entries []string
			for _, a := range arguments {
				if a.Required != required {
					continue
				}
				name := a.Name
				if reserved[name] {
					name += "_"
				}
				if a.Required {
					named = append([]string{name}, named...)
				} else {
					named = append(named, name+"=None")
				}
				entries = append(entries, fmt.Sprintf("%q: %s", a.Name, name))
			}
			return strings.Join(entries, ", ")
		}
		// For an argument that must be given, None is null.
		dict := func(arguments []argument) string {
			entries, more := table(arguments, true), table(arguments, false)
			switch {
			case more == "":
				return "{" + entries + "}"
			case entries == "":
				return "_given({" + more + "})"
			}
			return "{" + entries + ", **_given({" + more + "})}"
		}
		query, body := dict(o.InQuery), dict(o.InBody)
		if len(o.InBody) == 0 {
			body = "None"
		}
		condition := ""
		if o.Version != nil {
			table([]argument{*o.Version}, o.Version.Required)
			condition = ", _unchanged(expected_version)"
			if !o.Version.Required {
				condition += " if expected_version is not None else None"
			}
		}
		args = append(append([]string{"self"}, args...), "*")
		args = append(append(args, named...), "call_key=None")
		path := o.Path
		for _, a := range o.InPath {
			escaped := "_part"
			if a.Name == "path" { // of an entry, whose names have slashes between them
				escaped = "_path"
			}
			path = strings.Replace(path, "{"+a.Name+"}", "{"+escaped+"("+a.Name+")}", 1)
		}
		fmt.Fprintf(&b, "\n    def %s(%s):\n        %q\n        return self._call(%q, f%q, %s, %s, call_key%s)\n",
			o.Name, strings.Join(args, ", "), o.Summary+".", strings.ToUpper(o.Method), path, query, body, condition)
	}
	return b.Bytes()
}

// javascript writes the module: the core, and a table of the operations.
func javascript(list []operation) []byte {
	var b bytes.Buffer
	b.WriteString(javascriptCore)
	b.WriteString("\n// By name: method, path, which arguments go into the query, and for If-Match whether a version must be given.\nconst operations = {\n")
	for _, o := range list {
		var query []string
		for _, a := range o.InQuery {
			query = append(query, fmt.Sprintf("%q", a.Name))
		}
		condition := ""
		if o.Version != nil {
			condition = fmt.Sprintf(", { required: %v }", o.Version.Required)
		}
		fmt.Fprintf(&b, "  %s: [%q, %q, [%s]%s],\n", o.Name, strings.ToUpper(o.Method), o.Path, strings.Join(query, ", "), condition)
	}
	b.WriteString("};\n")
	return b.Bytes()
}

// types writes TypeScript's types of the module.
func types(list []operation) []byte {
	var b bytes.Buffer
	b.WriteString(`// Generated from the OpenAPI document by client/generate: do not edit.

export interface Options {
  url: string | URL; // http://localhost:port or https://host
  token: string; // of an actor, from leasehold actor add
  timeout?: number; // seconds that a call may take, its wait_secs included; 65 if left out
  outage?: number; // seconds that a call is sent again while no server answers; 30 if left out
}

/** A refusal: code says what happened, and data what else the answer said. */
export class Refusal extends Error {
  code: string;
  status: number;
  data: Record<string, unknown>;
}

/** No server has answered. The message says whether the call may have taken effect. */
export class Unanswered extends Error {}

export interface Call {
  idempotencyKey?: string;
  signal?: AbortSignal;
}

export class Client {
  constructor(options: Options);
  /** Opens a session, unless it is open; what is granted from then on ends with it. */
  open(): Promise<void>;
  /** Ends the session, and gives back what it holds. */
  close(): Promise<void>;
`)
	for _, o := range list {
		var members []string
		required := false
		arguments := slices.Concat(o.InPath, o.InQuery, o.InBody)
		if o.Version != nil {
			arguments = append(arguments, *o.Version)
		}
		for _, a := range arguments {
			mark := "?"
			if a.Required {
				mark, required = "", true
			}
			members = append(members, fmt.Sprintf("%s%s: %s", a.Name, mark, a.typescript()))
		}
		args := "args?: {}"
		if len(members) > 0 {
			args = "args?: { " + strings.Join(members, "; ") + " }"
		}
		if required {
			args = strings.Replace(args, "?", "", 1)
		}
		answer := o.Answers.typescript()
		if o.Empty && o.Answers != nil {
			answer += " | null"
		}
		fmt.Fprintf(&b, "  /** %s. */\n  %s(%s, call?: Call): Promise<%s>;\n", o.Summary, o.Name, args, answer)
	}
	b.WriteString("}\n")
	return b.Bytes()
}

// typescript is the type of what the schema describes.
func (s *schema) typescript() string {
	if s == nil {
		return "null"
	}
	if len(s.Enum) > 0 {
		var values []string
		for _, v := range s.Enum {
			values = append(values, fmt.Sprintf("%q", v))
		}
		return strings.Join(values, " | ")
	}
	var alternatives []string
	for _, of := range s.AnyOf {
		alternatives = append(alternatives, of.typescript())
	}
	switch t := s.Type.(type) {
	case string:
		alternatives = append(alternatives, s.named(t))
	case []any:
		for _, one := range t {
			alternatives = append(alternatives, s.named(one.(string)))
		}
	}
	if len(alternatives) == 0 {
		return "unknown"
	}
	return strings.Join(slices.Compact(alternatives), " | ")
}

func (s *schema) named(t string) string {
	switch t {
	case "integer", "number":
		return "number"
	case "array":
		return "(" + s.Items.typescript() + ")[]"
	case "object":
		if len(s.Properties) == 0 {
			return "Record<string, unknown>"
		}
		var members []string
		for _, name := range sorted(s.Properties) {
			mark := "?"
			if contains(s.Required, name) {
				mark = ""
			}
			members = append(members, fmt.Sprintf("%q%s: %s", name, mark, s.Properties[name].typescript()))
		}
		return "{ " + strings.Join(members, "; ") + " }"
	default:
		return t // string, boolean, null
	}
}

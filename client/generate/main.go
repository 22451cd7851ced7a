// Generate writes thin clients of the HTTP API for Python and for JavaScript with
// TypeScript's types: a method for each operation of the OpenAPI document. They need
// nothing but what comes with the language. Streams are left out, and so is what only
// package client does: leases that renew themselves, and workers.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/leasehold/leasehold/dispatch/server/api"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: generate DIR: the directory of package client")
		os.Exit(2)
	}
	for name, text := range files() {
		if err := os.WriteFile(filepath.Join(os.Args[1], name), text, 0o644); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}

// files are the generated files by name.
func files() map[string][]byte {
	list := operations()
	return map[string][]byte{
		"python/leasehold.py":       python(list),
		"javascript/leasehold.js":   javascript(list),
		"javascript/leasehold.d.ts": types(list),
	}
}

// An operation is one of the document, as a client needs it.
type operation struct {
	Method, Path, Name, Summary string
	InPath, InQuery, InBody     []argument
	Version                     *argument // of the entry that is written, for If-Match
	Answers                     *schema
	Empty                       bool // it may have nothing to answer
}

// An argument is one that the caller gives.
type argument struct {
	Name     string
	Required bool
	schema
}

type schema struct {
	Type        any // a name, or several
	Description string
	Enum        []any
	Items       *schema
	Properties  map[string]*schema
	Required    []string
	AnyOf       []*schema
	Ref         string `json:"$ref"`
}

type document struct {
	Paths      map[string]map[string]described
	Components struct{ Schemas map[string]*schema }
}

type described struct {
	OperationID string
	Summary     string
	Parameters  []struct {
		Name, In, Description string
		Required              bool
		Schema                schema
	}
	RequestBody struct {
		Content map[string]struct{ Schema schema }
	}
	Responses map[string]struct {
		Content map[string]struct{ Schema *schema }
	}
}

// operations are those of the document that answer with JSON, by name.
func operations() (list []operation) {
	var d document
	if err := json.Unmarshal(api.Document(""), &d); err != nil {
		panic("the document is not as the generator knows it: " + err.Error())
	}
	for _, path := range sorted(d.Paths) {
		for _, method := range sorted(d.Paths[path]) {
			from := d.Paths[path][method]
			o := operation{Method: method, Path: path, Name: from.OperationID, Summary: from.Summary}
			_, o.Empty = from.Responses["204"]
			streams := false
			for _, status := range []string{"200", "201"} {
				for media, content := range from.Responses[status].Content {
					streams = streams || media == "text/event-stream"
					if o.Answers = content.Schema; o.Answers != nil && o.Answers.Ref != "" {
						o.Answers = d.Components.Schemas[filepath.Base(o.Answers.Ref)]
					}
				}
			}
			if streams {
				continue
			}
			for _, p := range from.Parameters {
				p.Schema.Description = p.Description
				a := argument{p.Name, p.Required, p.Schema}
				switch p.In {
				case "path":
					o.InPath = append(o.InPath, a)
				case "query":
					o.InQuery = append(o.InQuery, a)
				case "header":
					if p.Name == "If-Match" {
						o.Version = &argument{"expected_version", false, schema{Type: "integer"}}
					}
				}
			}
			body := from.RequestBody.Content["application/json"].Schema
			for _, name := range sorted(body.Properties) {
				o.InBody = append(o.InBody, argument{name, contains(body.Required, name), *body.Properties[name]})
			}
			list = append(list, o)
			if o.Name != "kv_set" {
				continue
			}
			// With the version it is another method, as it is another tool.
			list[len(list)-1].Version = nil
			o.Name, o.Summary = "kv_cas", "Write an entry if it is unchanged"
			o.Version.Required = true
			list = append(list, o)
		}
	}
	return list
}

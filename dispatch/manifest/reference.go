package manifest

import (
	"fmt"
	"reflect"
	"strings"
)

// Reference returns the book's page that lists every key, in Markdown. It is
// generated from the tags that Load checks against.
func Reference() string {
	var b strings.Builder
	b.WriteString("# Manifest reference\n\n")
	b.WriteString("<!-- Generated from package dispatch/manifest by `just docs`. Do not edit. -->\n\n")
	b.WriteString("A manifest is a TOML file that describes a tree of agents. `leasehold init` writes one to start from, and\n" +
		"`leasehold dispatch --check` lists everything that is wrong with one. A key that is not listed here is refused.\n" +
		"Relative paths start at the manifest's directory. Times are in seconds, with fractions. Lengths are in bytes.\n")
	section(&b, "", "", reflect.TypeFor[Manifest]())
	return b.String()
}

// section lists the keys of a table, and then the tables in it.
func section(b *strings.Builder, key, doc string, t reflect.Type) {
	var tables, keys []field
	for _, f := range fieldsOf(t) {
		if inner(f.typ) != nil {
			tables = append(tables, f)
		} else {
			keys = append(keys, f)
		}
	}
	if key != "" {
		fmt.Fprintf(b, "\n## [%s]\n\n%s.\n", key, sentence(doc))
	}
	if len(keys) > 0 {
		b.WriteString("\n| key | type | if left out | meaning |\n|---|---|---|---|\n")
	}
	for _, f := range keys {
		fmt.Fprintf(b, "| `%s` | %s | %s | %s |\n", f.name, f.words(), f.leftOut(), escape(f.doc))
	}
	for _, f := range tables {
		switch f.typ.Kind() {
		case reflect.Map:
			section(b, bare(key)+f.name+".NAME", f.doc, inner(f.typ))
		case reflect.Slice:
			section(b, "["+bare(key)+f.name+"]", f.doc, inner(f.typ))
		default:
			section(b, bare(key)+f.name, f.doc, inner(f.typ))
		}
	}
}

// bare returns the prefix of the name of a table within a table.
func bare(key string) string {
	if key == "" {
		return ""
	}
	return key + "."
}

// inner returns the struct type of a table or of several tables; nil for a
// value.
func inner(t reflect.Type) reflect.Type {
	switch {
	case t.Kind() == reflect.Struct:
		return t
	case (t.Kind() == reflect.Map || t.Kind() == reflect.Slice) && t.Elem().Kind() == reflect.Struct:
		return t.Elem()
	}
	return nil
}

func sentence(doc string) string { return escape(strings.ToUpper(doc[:1]) + doc[1:]) }

// words describes the type of a value and its range.
func (f field) words() string {
	if len(f.enum) > 0 {
		words := make([]string, len(f.enum))
		for i, word := range f.enum {
			words[i] = "`" + word + "`"
		}
		return strings.Join(words, ", ")
	}
	name := map[reflect.Kind]string{
		reflect.String: "text", reflect.Bool: "true or false", reflect.Int: "whole number", reflect.Float64: "number",
		reflect.Map: "table of texts", reflect.Slice: "list of texts",
	}[f.typ.Kind()]
	if f.min != nil || f.max != nil {
		name += ", " + strings.TrimPrefix(f.span(), "from ")
	}
	return name
}

func (f field) leftOut() string {
	switch {
	case f.required:
		return "must be given"
	case f.def != "":
		return "`" + f.def + "`"
	case f.typ.Kind() == reflect.Bool:
		return "`false`"
	case f.typ.Kind() == reflect.Int || f.typ.Kind() == reflect.Float64:
		return "`0`"
	}
	return "–"
}

func escape(s string) string {
	return strings.NewReplacer("|", `\|`, "<", "&lt;", ">", "&gt;", "*", `\*`).Replace(s)
}

// Package jsontext finds text that JSON cannot have. JSON is UTF-8, and encoding/json
// replaces the bytes of other text, so that another key, queue or path is meant.
package jsontext

import (
	"encoding/json"
	"reflect"
	"strings"
	"unicode/utf8"
)

// NotUTF8 reports whether a value to be written as JSON has text that is not UTF-8. name
// is that of the innermost member with such text, or "" if the value is no object.
func NotUTF8(v any) (name string, found bool) { return find(reflect.ValueOf(v), "") }

// find looks for such text in v. name is that of the member of which v is the value.
func find(v reflect.Value, name string) (at string, found bool) {
	switch v.Kind() {
	case reflect.String:
		return name, !utf8.ValidString(v.String())
	case reflect.Interface, reflect.Pointer:
		return find(v.Elem(), name)
	case reflect.Map:
		for key, value := range v.Seq2() {
			if at, found = find(key, name); found {
				return at, true
			}
			if at, found = find(value, key.String()); found {
				return at, true
			}
		}
	case reflect.Slice, reflect.Array:
		if v.Type() == reflect.TypeFor[json.RawMessage]() {
			return name, !utf8.Valid(v.Bytes())
		}
		for _, element := range v.Seq2() {
			if at, found = find(element, name); found {
				return at, true
			}
		}
	case reflect.Struct:
		for i := range v.NumField() {
			field := v.Type().Field(i)
			own, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			switch {
			case own == "-" || !field.IsExported() && !field.Anonymous:
				continue
			case own == "":
				own = field.Name
			}
			if at, found = find(v.Field(i), own); found {
				return at, true
			}
		}
	}
	return "", false
}

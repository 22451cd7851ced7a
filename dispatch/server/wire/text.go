package wire

import (
	"encoding/json"
	"strings"
	"unicode/utf8"

	"github.com/leasehold/leasehold/engine/jsontext"
	"github.com/leasehold/leasehold/registry"
)

// Marshal returns v as JSON. Text that JSON cannot have is refused: the error is a
// [*registry.ArgumentError] with the name of the member that has it.
func Marshal(v any) (json.RawMessage, error) {
	if name, found := jsontext.NotUTF8(v); found {
		return nil, &registry.ArgumentError{Argument: name, Problem: "must be valid UTF-8"}
	}
	return json.Marshal(v)
}

// Informative returns text, such as the path of a directory, that JSON is to have only
// to inform people. What is not UTF-8 in it is replaced.
func Informative(text string) string { return strings.ToValidUTF8(text, string(utf8.RuneError)) }

package call

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/leasehold/leasehold/cmd/leasehold/internal/exit"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/terminal"
)

// fieldOf returns the field of an object at a JSON pointer (RFC 6901): a string
// unquoted, anything else as JSON.
func fieldOf(object json.RawMessage, pointer string) (string, error) {
	if !strings.HasPrefix(pointer, "/") {
		return "", exit.Usagef("--field must be a JSON pointer such as /lease_id, and is %q", pointer)
	}
	at := object
	for step := range strings.SplitSeq(pointer[1:], "/") {
		step = strings.NewReplacer("~1", "/", "~0", "~").Replace(step)
		next, ok := stepInto(at, step)
		if !ok {
			return "", fmt.Errorf("the answer has no field %s: it is %s", pointer, terminal.Clip(string(object), 200))
		}
		at = next
	}
	var text string
	if json.Unmarshal(at, &text) == nil && at[0] == '"' {
		return text, nil
	}
	return string(at), nil
}

// stepInto returns a member of an object, or an element of an array.
func stepInto(at json.RawMessage, step string) (json.RawMessage, bool) {
	var members map[string]json.RawMessage
	if json.Unmarshal(at, &members) == nil && members != nil {
		next, ok := members[step]
		return next, ok
	}
	var elements []json.RawMessage
	i, err := strconv.ParseUint(step, 10, 31)
	if err != nil || json.Unmarshal(at, &elements) != nil || int(i) >= len(elements) {
		return nil, false
	}
	return elements[i], true
}

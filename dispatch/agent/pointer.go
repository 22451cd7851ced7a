package agent

import (
	"encoding/json"
	"strconv"
	"strings"
)

// isPointer reports whether s is a JSON pointer (RFC 6901) to a value within an
// object.
func isPointer(s string) bool { return strings.HasPrefix(s, "/") }

// pointed returns the value in object that pointer refers to.
func pointed(object json.RawMessage, pointer string) (value json.RawMessage, ok bool) {
	value = object
	for _, step := range strings.Split(pointer, "/")[1:] {
		step = strings.NewReplacer("~1", "/", "~0", "~").Replace(step)
		var fields map[string]json.RawMessage
		var items []json.RawMessage
		switch {
		case json.Unmarshal(value, &fields) == nil && fields != nil:
			if value, ok = fields[step]; !ok {
				return nil, false
			}
		case json.Unmarshal(value, &items) == nil:
			i, err := strconv.Atoi(step)
			if err != nil || i < 0 || i >= len(items) {
				return nil, false
			}
			value = items[i]
		default:
			return nil, false
		}
	}
	return value, len(value) > 0
}

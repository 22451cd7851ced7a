package wire_test

import (
	"encoding/json"
	"maps"
	"slices"
	"testing"

	"github.com/leasehold/leasehold/dispatch/server/wire"
)

// FuzzMembers compares what Members and Elements yield with what encoding/json
// reads. If a name occurs several times, the last one counts.
func FuzzMembers(f *testing.F) {
	for _, object := range []string{
		`{}`, ` { } `, `[]`, `[{"a":1}]`, `null`, `"{"`, `5`,
		`{"a":1}`, "{ \"a\" :\t1 ,\r\n\"b\":null }", `{"a":-1.5e+3,"b":true,"a":false}`,
		`{"a":{"b":[1,{"c":"}]\""}],"d":{}},"e":[[],[{}]]}`,
		`{"a":"\\","b":"\\\"","c":"\\\\\"\\"}`, `{"\u0061\"":"x","é":"\ud83d\ude00","":""}`,
		"{\"\xff\":\"\xff\"}", "[ 1 ,\n\"]\",[2,[]], {\"a\":[]} ,null]", `[-0.5e1]`,
	} {
		f.Add(object)
	}
	f.Fuzz(func(t *testing.T, object string) {
		if !json.Valid([]byte(object)) {
			return
		}
		var want map[string]json.RawMessage
		_ = json.Unmarshal([]byte(object), &want) // empty if it is not an object
		got := make(map[string]json.RawMessage)
		for name, value := range wire.Members([]byte(object)) {
			got[string(name)] = value
		}
		if !maps.EqualFunc(got, want, func(a, b json.RawMessage) bool { return string(a) == string(b) }) {
			t.Errorf("%s: %q, want %q", object, got, want)
		}
		for _, value := range got {
			var want string
			isText := value[0] == '"' && json.Unmarshal(value, &want) == nil
			if text, ok := wire.TextOf(value); text != want || ok != isText {
				t.Errorf("%s is %q %v, want %q", value, text, ok, want)
			}
		}
		var list []json.RawMessage
		_ = json.Unmarshal([]byte(object), &list) // empty if it is not a list
		elements := slices.Collect(wire.Elements([]byte(object)))
		if !slices.EqualFunc(elements, list, func(a, b json.RawMessage) bool { return string(a) == string(b) }) {
			t.Errorf("%s: elements %q, want %q", object, elements, list)
		}
	})
}

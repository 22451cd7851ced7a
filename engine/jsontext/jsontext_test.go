package jsontext_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine/jsontext"
)

type inner struct {
	Key    string `json:"key,omitempty"`
	Hidden string `json:"-"`
	own    string
}

const bad = "caf\xe9"

func TestTextThatIsNotUTF8IsFoundByName(t *testing.T) {
	for name, v := range map[string]any{
		"":      bad,
		"key":   map[string]any{"key": bad},
		"lists": map[string]any{"ok": "é", "lists": []string{"a", bad}},
		"value": map[string]json.RawMessage{"value": json.RawMessage(`"` + bad + `"`)},
		"deep":  map[string]any{"value": map[string]any{"list": []any{1, nil, map[string]any{"deep": bad}}}},
		"Plain": struct{ Plain *string }{new(bad)},
	} {
		if got, found := jsontext.NotUTF8(v); !found || got != name {
			t.Errorf("%q: it finds %q %v", name, got, found)
		}
	}
	for _, v := range []any{
		map[string]any{"leases": []inner{{Key: "a"}, {Key: bad}}}, struct{ inner }{inner{Key: bad}}, [1]inner{{Key: bad}},
	} {
		if got, found := jsontext.NotUTF8(v); !found || got != "key" {
			t.Errorf("%T: it finds %q %v", v, got, found)
		}
	}
	if _, found := jsontext.NotUTF8(map[string]string{bad: "x"}); !found {
		t.Error("a name that is not UTF-8 is not found")
	}
}

func TestWhatJSONCanHaveIsNotFound(t *testing.T) {
	for _, v := range []any{
		nil, "\ufffd", json.RawMessage(`{"a":"\ufffd"}`), []byte("\xff"),
		map[string]any{"id": uuid.New(), "at": time.Now(), "n": 1.5, "b": true},
		inner{Key: "é", Hidden: bad, own: bad},
		(*inner)(nil),
		struct{ inner }{inner{Key: "a"}},
	} {
		if name, found := jsontext.NotUTF8(v); found {
			t.Errorf("%v: it finds %q", v, name)
		}
	}
}

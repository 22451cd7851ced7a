package call

import (
	"testing"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/leasehold/leasehold/dispatch/server/wire"
)

func TestValuesBecomeWhatTheArgumentTakes(t *testing.T) {
	tool := mcp.Tool{InputSchema: mcp.ToolInputSchema{Properties: map[string]any{
		"s": map[string]any{"type": "string"}, "n": map[string]any{"type": "number"}, "i": map[string]any{"type": "integer"},
		"b": map[string]any{"type": "boolean"}, "any": map[string]any{},
	}}}
	for _, c := range []struct{ name, value, want string }{
		{"s", "text", `"text"`},
		{"s", "5", `"5"`},
		{"s", `"quoted"`, `"\"quoted\""`}, // a key or a message may be in quotes
		{"s", "a \"quote\"\n", `"a \"quote\""`},
		{"s", "", `""`},
		{"n", "1.5", `1.5`},
		{"n", "-2", `-2`},
		{"n", "soon", `"soon"`},
		{"i", "9007199254740993", `9007199254740993`},
		{"b", "true", `true`},
		{"b", "yes", `"yes"`},
		{"any", "12345678901234567890", `12345678901234567890`},
		{"any", ` {"b":1,"a":2}` + "\n", `{"b":1,"a":2}`},
		{"any", "null", `null`},
		{"any", "two words\n", `"two words\n"`},
		{"unknown", "5", `"5"`},
	} {
		if got, err := wire.Marshal(typed(typeOf(tool, c.name), c.value)); err != nil || string(got) != c.want {
			t.Errorf("%s=%q: %s, want %s", c.name, c.value, got, c.want)
		}
	}
}

func TestMalformedJSONIsRefused(t *testing.T) {
	tool := mcp.Tool{InputSchema: mcp.ToolInputSchema{Properties: map[string]any{"any": map[string]any{}, "s": map[string]any{"type": "string"}}}}
	for value, good := range map[string]bool{
		`any={"a":1}`: true, `any={"a":1`: false, `any=[1,]`: false, `any="open`: false, `any= {"a"}`: false,
		`any=two words`: true, `any=1.2.3`: true, `any=`: true, `s={"a"`: true, `any:={"a"`: true, `any:="open`: true,
	} {
		pairs, err := splitArguments([]string{value})
		if err != nil {
			t.Fatal(err)
		}
		if args, err := readArguments(tool, pairs, nil); (err == nil) != good {
			t.Errorf("%s: %v, %v", value, args, err)
		}
	}
	pairs, _ := splitArguments([]string{`any:={"a":1}`})
	if args, err := readArguments(tool, pairs, nil); err != nil || args["any"] != `{"a":1}` {
		t.Errorf("as text: %v %v", args["any"], err)
	}
}

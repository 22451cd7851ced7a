package call

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/leasehold/leasehold/cmd/leasehold/internal/exit"
	"github.com/leasehold/leasehold/dispatch/server/wire"
)

// A pair is one NAME=VALUE argument of the command line.
type pair struct {
	name, value string
	asText      bool // NAME:=VALUE
}

func splitArguments(given []string) (pairs []pair, err error) {
	stdin := false
	for _, arg := range given {
		name, value, ok := strings.Cut(arg, "=")
		name, asText := strings.CutSuffix(name, ":")
		if !ok || name == "" {
			return nil, exit.Usagef("argument %q: must be NAME=VALUE", arg)
		}
		if slices.ContainsFunc(pairs, func(p pair) bool { return p.name == name }) {
			return nil, exit.Usagef("argument %s: given twice", name)
		}
		if value == "@-" {
			if stdin {
				return nil, exit.Usagef("argument %s: another argument already reads standard input", name)
			}
			stdin = true
		}
		pairs = append(pairs, pair{name, value, asText})
	}
	return pairs, nil
}

// readArguments converts pairs to the arguments of a tool.
func readArguments(tool mcp.Tool, pairs []pair, stdin io.Reader) (map[string]any, error) {
	args := make(map[string]any)
	for _, p := range pairs {
		text, err := p.text(stdin)
		if err != nil {
			return nil, exit.Usage(fmt.Errorf("argument %s: %w", p.name, err))
		}
		if p.asText {
			args[p.name] = text
			continue
		}
		want := typeOf(tool, p.name)
		if err := checkJSON(want, text); err != nil {
			return nil, exit.Hint(exit.Usage(fmt.Errorf("argument %s: %w", p.name, err)),
				"correct it, or write %s:=... if it is text and not JSON", p.name)
		}
		args[p.name] = typed(want, text)
	}
	return args, nil
}

// text returns the value itself, or the contents of the file that it names.
func (p pair) text(stdin io.Reader) (string, error) {
	source, isFile := strings.CutPrefix(p.value, "@")
	switch {
	case !isFile:
		return p.value, nil
	case strings.HasPrefix(source, "@"):
		return source, nil
	case source == "-":
		return readText(stdin)
	}
	f, err := os.Open(source)
	if err != nil {
		return "", err
	}
	defer f.Close()
	return readText(f)
}

// readText reads at most as much as the daemon would accept.
func readText(r io.Reader) (string, error) {
	b, err := io.ReadAll(io.LimitReader(r, wire.MaxMessage+1))
	if err == nil && len(b) > wire.MaxMessage {
		err = fmt.Errorf("larger than the %d bytes of a message", wire.MaxMessage)
	}
	return string(b), err
}

// typeOf returns the JSON type that a tool's schema gives an argument, or ""
// for any. An unknown argument is left for the daemon to refuse.
func typeOf(tool mcp.Tool, name string) string {
	property, ok := tool.InputSchema.Properties[name].(map[string]any)
	if !ok {
		return "string"
	}
	t, _ := property["type"].(string)
	return t
}

// checkJSON returns an error if text looks like JSON and is not, because
// storing it as text would be surprising. It applies to arguments that take any
// JSON.
func checkJSON(want, text string) error {
	trimmed := strings.TrimSpace(text)
	if want != "" || trimmed == "" || !strings.ContainsRune(`{["`, rune(trimmed[0])) {
		return nil
	}
	var v json.RawMessage
	err := json.Unmarshal([]byte(trimmed), &v)
	if at, ok := errors.AsType[*json.SyntaxError](err); ok {
		return fmt.Errorf("not JSON, at byte %d of %d: %w", at.Offset, len(trimmed), err)
	}
	return err
}

// typed returns text as JSON of the wanted type if it is that, and otherwise as
// a string, which the daemon may refuse.
func typed(want, text string) any {
	trimmed := strings.TrimSpace(text)
	if fits(want, trimmed) {
		return json.RawMessage(trimmed)
	}
	if want == "array" && trimmed != "" && trimmed[0] != '[' {
		return strings.Split(trimmed, ",")
	}
	if want == "string" {
		text = strings.TrimRight(text, "\r\n") // the newline at the end of a file with one line
	}
	return text
}

func fits(want, text string) bool {
	if !json.Valid([]byte(text)) {
		return false
	}
	switch want {
	case "":
		return true
	case "integer", "number":
		return strings.ContainsRune("-0123456789", rune(text[0]))
	case "boolean":
		return text == "true" || text == "false"
	case "array":
		return text[0] == '['
	case "object":
		return text[0] == '{'
	default:
		return false
	}
}

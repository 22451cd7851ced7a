package agenttest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
)

// claudeFlags are those of Claude Code 2.1 that matter without a person.
var claudeFlags = flags{
	"-p": 0, "--print": 0, "--output-format": 1, "--verbose": 0, "--strict-mcp-config": 0, "--mcp-config": many,
	"--allowedTools": many, "--allowed-tools": many, "--disallowedTools": many, "--tools": many, "--model": 1,
	"--max-budget-usd": 1, "--permission-mode": 1, "--add-dir": many, "--append-system-prompt": 1,
	"--dangerously-skip-permissions": 0, "--settings": 1,
}

func claudeGiven(g *Given, args []string) error {
	if g.Env["CLAUDECODE"] != "" {
		return errors.New("it cannot be launched within another session of Claude Code")
	}
	given, rest, err := claudeFlags.parse(args)
	if err != nil {
		return err
	}
	switch {
	case !has(given, "-p", "--print"):
		return errors.New("without --print it wants a terminal")
	case one(given, "--output-format") != "stream-json" && one(given, "--output-format") != "json":
		return errors.New("its output tells no cost")
	case one(given, "--output-format") == "stream-json" && !has(given, "--verbose"):
		return errors.New("when using --print, --output-format=stream-json requires --verbose")
	case !has(given, "--strict-mcp-config"):
		return errors.New("it would start the MCP servers of the user as well")
	}
	if err := hooked(one(given, "--settings"), "hook claude", "PreToolUse"); err != nil {
		return err
	}
	g.Model, g.Budget = one(given, "--model"), one(given, "--max-budget-usd")
	g.Prompt = strings.Join(rest, " ")
	if g.Prompt == "" {
		if g.Prompt, err = piped(); err != nil {
			return err
		}
	}
	allowed, all := []string{}, false
	for _, list := range slices.Concat(given["--allowedTools"], given["--allowed-tools"]) {
		for _, name := range strings.FieldsFunc(list, func(c rune) bool { return c == ',' || c == ' ' }) {
			tool, ok := strings.CutPrefix(name, "mcp__leasehold__")
			all = all || name == "mcp__leasehold"
			if ok {
				allowed = append(allowed, tool)
			}
		}
	}
	if !all {
		g.Allowed = allowed // it asks about any other, and nobody answers
	}
	for _, file := range given["--mcp-config"] {
		if err := g.claudeServers(file); err != nil {
			return err
		}
	}
	return nil
}

// hooked refuses a configuration in which no hook guards what the client writes.
func hooked(configuration string, words ...string) error {
	for _, word := range words {
		if !strings.Contains(configuration, word) {
			return fmt.Errorf("no hook guards what it writes: there is no %s in %s", word, configuration)
		}
	}
	return nil
}

func (g *Given) claudeServers(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if err := g.secretFree(file, text); err != nil {
		return err
	}
	var config struct {
		Servers map[string]struct {
			Type       string            `json:"type"`
			Command    string            `json:"command"`
			Args       []string          `json:"args"`
			Env        map[string]string `json:"env"`
			Timeout    float64           `json:"timeout"`
			AlwaysLoad bool              `json:"alwaysLoad"`
		} `json:"mcpServers"`
	}
	if err := strictly(text, &config); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	s, ok := config.Servers["leasehold"]
	if !ok || s.Type != "" && s.Type != "stdio" {
		return fmt.Errorf("%s has no server leasehold over stdio", file)
	}
	if !s.AlwaysLoad {
		return fmt.Errorf("%s: it would begin before the server is there", file)
	}
	g.Timeout = s.Timeout / 1000
	g.Server = maps.Clone(g.Env)
	for _, value := range append([]string{s.Command}, s.Args...) {
		if value, err = g.inBraces(value); err != nil {
			return err
		}
		g.Command = append(g.Command, value)
	}
	for name, value := range s.Env {
		if g.Server[name], err = g.inBraces(value); err != nil {
			return err
		}
	}
	return nil
}

var braces = regexp.MustCompile(`\$\{([^}:]+)(:-([^}]*))?\}`)

// inBraces expands ${VAR} and ${VAR:-default}. One that is not set and has no
// default is an error.
func (g *Given) inBraces(s string) (string, error) {
	var missing error
	out := braces.ReplaceAllStringFunc(s, func(ref string) string {
		m := braces.FindStringSubmatch(ref)
		value, set := g.Env[m[1]]
		switch {
		case set:
			return value
		case m[2] != "":
			return m[3]
		}
		missing = fmt.Errorf("missing environment variable: %s", m[1])
		return ref
	})
	return out, missing
}

// strictly decodes JSON, and refuses fields that v has not.
func strictly(text []byte, v any) error {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	return dec.Decode(v)
}

type object = map[string]any

// print prints each object on a line of its own.
func print(w io.Writer, events ...object) error {
	enc := json.NewEncoder(w)
	for _, e := range events {
		if err := enc.Encode(e); err != nil {
			return err
		}
	}
	return nil
}

func claudePrint(w io.Writer, g Given, cost float64) error {
	result := object{
		"type": "result", "subtype": "success", "is_error": false, "duration_ms": 1, "num_turns": 1,
		"result": g.Answer, "session_id": "fake", "total_cost_usd": cost, "usage": object{"input_tokens": 1, "output_tokens": 1},
	}
	if !slices.Contains(g.Argv, "stream-json") {
		return print(w, result)
	}
	return print(w,
		object{"type": "system", "subtype": "init", "session_id": "fake", "tools": g.Allowed},
		object{"type": "assistant", "session_id": "fake", "message": object{"role": "assistant", "content": []object{{"type": "text", "text": g.Answer}}}},
		result)
}

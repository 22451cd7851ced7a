package agent

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// geminiHome names the directory in which Gemini CLI looks for .gemini, instead
// of the user's home.
const geminiHome = "GEMINI_CLI_HOME"

// configureGemini runs Gemini CLI headless, which it is without a terminal. It
// takes no server by flag, and settings of the system only from directories of
// root, so it gets a home of its own: everything in it is the user's, but that
// the settings have Leasehold as well. It starts no server in a folder that
// nobody has trusted.
func configureGemini(p Profile, t Task) (configuration, error) {
	home := firstOf(t.Env[geminiHome], p.Env[geminiHome], os.Getenv(geminiHome), os.Getenv("HOME"))
	mine := filepath.Join(t.Scratch, "gemini")
	settings, err := borrowHome(filepath.Join(home, ".gemini"), filepath.Join(mine, ".gemini"))
	if err != nil {
		return configuration{}, err
	}
	// Gemini CLI takes variables whose names sound like secrets out of the
	// environment of a server, unless env has them.
	s := t.server(func(name string) string { return "$" + name })
	s.Trust, s.IncludeTools = true, t.Tools // trust: its tools are not asked about
	servers, _ := settings["mcpServers"].(map[string]any)
	if servers == nil {
		servers = make(map[string]any)
	}
	servers["leasehold"] = s
	settings["mcpServers"] = servers
	hooks, _ := settings["hooks"].(map[string]any)
	if hooks == nil {
		hooks = make(map[string]any)
	}
	for event, group := range t.hookGroups(Gemini, 1000) {
		others, _ := hooks[event].([]any)
		hooks[event] = append([]any{group}, others...)
	}
	settings["hooks"] = hooks
	file, err := t.writeJSON(filepath.Join("gemini", ".gemini", "settings.json"), settings)
	if err != nil {
		return configuration{}, err
	}
	flags := []string{"--output-format", "json"}
	if t.Model != "" {
		flags = append(flags, "--model", t.Model)
	}
	if len(t.Allow) > 0 {
		flags = append(flags, "--allowed-tools", strings.Join(t.Allow, ","))
	}
	return configuration{
		flags: flags, file: file,
		env: map[string]string{"GEMINI_CLI_TRUST_WORKSPACE": "true"},
		set: map[string]string{geminiHome: mine},
	}, nil
}

// borrowHome makes of dir what home is, by links, and returns the settings in
// home, for they are to be others in dir.
func borrowHome(home, dir string) (settings map[string]any, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(home)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	settings = make(map[string]any)
	for _, entry := range entries {
		from, to := filepath.Join(home, entry.Name()), filepath.Join(dir, entry.Name())
		if entry.Name() == "settings.json" {
			text, err := os.ReadFile(from)
			if err != nil {
				return nil, err
			}
			dec := json.NewDecoder(bytes.NewReader(withoutComments(text)))
			dec.UseNumber() // as they are written
			if err := dec.Decode(&settings); err != nil || settings == nil {
				return nil, fmt.Errorf("%s must be a JSON object, for leasehold to be in it: %v", from, err)
			}
			continue
		}
		if err := os.Symlink(from, to); err != nil && !errors.Is(err, fs.ErrExist) { // of an earlier launch
			return nil, err
		}
	}
	return settings, nil
}

// withoutComments makes JSON of JSON with comments.
func withoutComments(text []byte) []byte {
	var out []byte
	for i := 0; i < len(text); i++ {
		rest := text[i:]
		switch {
		case rest[0] == '"':
			end := 1
			for end < len(rest) && rest[end] != '"' {
				if rest[end] == '\\' {
					end++
				}
				end++
			}
			end = min(end+1, len(rest))
			out = append(out, rest[:end]...)
			i += end - 1
		case bytes.HasPrefix(rest, []byte("//")):
			line, _, _ := bytes.Cut(rest, []byte("\n"))
			i += len(line) - 1
		case bytes.HasPrefix(rest, []byte("/*")):
			comment, _, _ := bytes.Cut(rest[2:], []byte("*/"))
			i += len(comment) + 3
		default:
			out = append(out, rest[0])
		}
	}
	return out
}

// readGemini reads the one object of json. Gemini CLI reports tokens and no
// cost.
func readGemini(in *lines) Outcome {
	var answer struct {
		Response string
		Error    *struct{ Type, Message string }
	}
	object := in.lastObject()
	if object == nil || !understood(object, &answer) {
		return Outcome{}
	}
	o := Outcome{Result: answer.Response}
	if answer.Error != nil {
		o.Failed = firstOf(answer.Error.Message, answer.Error.Type, "it reports an error")
	}
	return o
}

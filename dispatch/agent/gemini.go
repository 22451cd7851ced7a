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

// geminiHome is the variable for the directory in which Gemini CLI looks for
// .gemini instead of the user's home.
const geminiHome = "GEMINI_CLI_HOME"

// configureGemini runs Gemini CLI headless, as it runs without a terminal. It
// has no flag for servers, and reads system settings only from directories of
// root. So it gets a separate home, which links to the user's files except for
// the settings, to which Leasehold is added. In a folder that is not trusted it
// starts no servers, so the folder is trusted.
func configureGemini(p Profile, t Task) (configuration, error) {
	home := firstOf(t.Env[geminiHome], p.Env[geminiHome], os.Getenv(geminiHome), os.Getenv("HOME"))
	mine := filepath.Join(t.Scratch, "gemini")
	settings, err := borrowHome(filepath.Join(home, ".gemini"), filepath.Join(mine, ".gemini"))
	if err != nil {
		return configuration{}, err
	}
	// Gemini CLI removes variables whose names look like secrets from the
	// environment of a server, unless env lists them.
	s := t.server(func(name string) string { return "$" + name })
	s.Trust, s.IncludeTools = true, t.Tools // Trust: call its tools without asking
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

// borrowHome links the files of home in dir, except for the settings. It
// returns the settings of home, which the caller writes to dir with changes.
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
			dec.UseNumber() // keep the digits as they are
			if err := dec.Decode(&settings); err != nil || settings == nil {
				return nil, fmt.Errorf("%s must be a JSON object, for leasehold to be in it: %v", from, err)
			}
			continue
		}
		if err := os.Symlink(from, to); err != nil && !errors.Is(err, fs.ErrExist) { // the link may be from an earlier launch
			return nil, err
		}
	}
	return settings, nil
}

// withoutComments removes comments from JSON with comments.
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

// readGemini reads the single object of the format json. Gemini CLI reports
// tokens but no cost.
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

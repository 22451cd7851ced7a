package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
)

// geminiSettings names the file whose settings stand above all others.
const geminiSettings = "GEMINI_CLI_SYSTEM_SETTINGS_PATH"

// configureGemini runs Gemini CLI headless, which it is without a terminal. Its
// server is told by the settings of the system, for only they stand above those
// of a workspace. It starts no server in a folder that nobody has trusted.
func configureGemini(p Profile, t Task) (configuration, error) {
	settings, err := systemSettings(p)
	if err != nil {
		return configuration{}, err
	}
	servers, _ := settings["mcpServers"].(map[string]any)
	if servers == nil {
		servers = make(map[string]any)
	}
	// Gemini CLI takes variables whose names sound like secrets out of the
	// environment of a server, unless env has them.
	s := t.server(func(name string) string { return "$" + name })
	s.Trust, s.IncludeTools = true, t.Tools // trust: its tools are not asked about
	servers["leasehold"] = s
	settings["mcpServers"] = servers
	file, err := t.writeJSON("gemini-settings.json", settings)
	if err != nil {
		return configuration{}, err
	}
	flags := []string{"--output-format", "json"}
	if t.Model != "" {
		flags = append(flags, "--model", t.Model)
	}
	return configuration{
		flags: flags, file: file,
		env: map[string]string{geminiSettings: file, "GEMINI_CLI_TRUST_WORKSPACE": "true"},
	}, nil
}

// systemSettings are those that the machine's administrator has made: ours take
// their place and must go on saying the same.
func systemSettings(p Profile) (map[string]any, error) {
	file := firstOf(p.Env[geminiSettings], os.Getenv(geminiSettings), map[string]string{
		"darwin": "/Library/Application Support/GeminiCli/settings.json",
	}[runtime.GOOS], "/etc/gemini-cli/settings.json")
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return make(map[string]any), nil
	}
	if err != nil {
		return nil, err
	}
	var settings map[string]any
	if err := json.Unmarshal(text, &settings); err != nil || settings == nil {
		return nil, fmt.Errorf("%s must be JSON without comments, for leasehold to stand in it beside what it says: %v", file, err)
	}
	return settings, nil
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

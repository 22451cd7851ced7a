package manifest

import (
	"bytes"
	_ "embed"
	"fmt"
	"path/filepath"
	"strings"
	"text/template"

	"github.com/leasehold/leasehold/dispatch/agent"
)

//go:embed template.toml
var templateText string

var templates = template.Must(template.New("manifest").Parse(templateText))

// samples are the suggestions of a template for each client: arguments that let
// it edit files without asking, and a model.
var samples = map[string]struct{ Args, Model string }{
	agent.Claude:   {`["--permission-mode", "acceptEdits"]`, "sonnet"},
	agent.Codex:    {`["--sandbox", "workspace-write"]`, "gpt-5-codex"},
	agent.Gemini:   {`["--approval-mode", "auto_edit"]`, "gemini-2.5-pro"},
	agent.OpenCode: {"", "anthropic/claude-sonnet-4-5"},
}

// TemplateFor returns a manifest for a file of that name, whose agent has that
// built-in profile. With [agent.Command], which is a plain shell, it runs without
// changes. Comments in it describe the other settings.
func TemplateFor(profile, file string) ([]byte, error) {
	if _, ok := agent.BuiltIn(profile); !ok {
		return nil, fmt.Errorf("%q is no built-in profile: it is one of %s", profile, strings.Join(agent.BuiltIns(), ", "))
	}
	var b bytes.Buffer
	err := templates.Execute(&b, struct {
		File, Run, Agent, Args, Model string
		Shell                         bool
	}{
		File: filepath.Base(file), Run: strings.TrimSuffix(filepath.Base(file), ".toml"),
		Agent: profile, Args: samples[profile].Args, Model: samples[profile].Model, Shell: profile == agent.Command,
	})
	return b.Bytes(), err
}

package setup_test

import (
	"os"
	"path/filepath"
	"testing"
)

const root = "../../../../"

// top is the root of the repository, for tests that change their directory.
var top, _ = filepath.Abs(root)

// The configurations that the book shows are those that setup writes. A test of
// the book sees to it that the README shows the same.
func TestPagesShowWhatSetupWrites(t *testing.T) {
	h := newHome(t)
	h.write(".config/opencode/opencode.json", "{\n  \"mcp\": {\n    \"servers\": {\n    }\n  }\n}\n") // as version 2 has it
	h.ok("opencode", "--yes")
	two := h.read(".config/opencode/opencode.json")
	h.ok("opencode", "--uninstall", "--yes")
	if err := os.Remove(h.path(".config/opencode/opencode.json")); err != nil {
		t.Fatal(err)
	}
	h.ok("claude", "codex", "gemini", "opencode", "copilot", "qwen", "kimi", "crush", "cursor", "vscode", "--yes")
	for page, text := range map[string]string{
		"claude-code.json":             h.read(".claude.json"),
		"claude-code-permissions.json": h.read(".claude/settings.json"),
		"codex.toml":                   h.read(".codex/config.toml"),
		"codex-hooks.json":             h.read(".codex/hooks.json"),
		"gemini.json":                  h.read(".gemini/settings.json"),
		"opencode-v1.json":             h.read(".config/opencode/opencode.json"),
		"opencode.json":                two,
		"copilot.json":                 h.read(".copilot/mcp-config.json"),
		"copilot-hooks.json":           h.read(".copilot/hooks/leasehold.json"),
		"qwen.json":                    h.read(".qwen/settings.json"),
		"kimi.json":                    h.read(".kimi-code/mcp.json"),
		"crush.json":                   h.read(".config/crush/crush.json"),
		"cursor.json":                  h.read(".cursor/mcp.json"),
		"vscode.json":                  h.read(".config/Code/User/mcp.json"),
	} {
		is(t, "book/clients/"+page, text)
	}
	is(t, "book/clients/block.md", h.read(".claude/CLAUDE.md"))
}

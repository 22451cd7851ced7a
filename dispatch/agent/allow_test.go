package agent_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/leasehold/leasehold/dispatch/agent"
)

// The own tools that a lead allows a worker are passed to each client in its
// syntax. A client that has no such option is not started.
func TestToolsOfItsOwnAreAllowedInTheClientsWords(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("HOME", dir)
	for client, want := range map[string]func(agent.Launch) bool{
		agent.Claude: func(l agent.Launch) bool {
			return slices.Contains(l.Argv, "mcp__leasehold__kv_get,Edit,Bash(make:*)")
		},
		agent.Gemini: func(l agent.Launch) bool {
			i := slices.Index(l.Argv, "--allowed-tools")
			return i >= 0 && l.Argv[i+1] == "Edit,Bash(make:*)"
		},
		agent.OpenCode: func(l agent.Launch) bool {
			return slices.ContainsFunc(l.Env, func(v string) bool {
				return strings.HasPrefix(v, "OPENCODE_CONFIG_CONTENT=") && strings.Contains(v, `"Bash(make:*)":"allow"`)
			})
		},
		agent.Command: func(l agent.Launch) bool { return slices.Contains(l.Env, "LEASEHOLD_TOOLS=Edit,Bash(make:*)") },
		agent.Codex:   nil,
	} {
		p, _ := agent.BuiltIn(client)
		p.Command = []string{"sh"} // is there
		l, err := p.Launch(agent.Task{
			Name: "W1", Prompt: "go", Directory: dir, Scratch: t.TempDir(),
			Tools: []string{"kv_get"}, Allow: []string{"Edit", "Bash(make:*)"},
		})
		switch {
		case want == nil:
			if err == nil || !strings.Contains(err.Error(), "takes no list of its own tools") {
				t.Errorf("%s: %v", client, err)
			}
		case err != nil:
			t.Errorf("%s: %v", client, err)
		case !want(l):
			t.Errorf("%s is not told: %q", client, l.Argv)
		}
	}
}

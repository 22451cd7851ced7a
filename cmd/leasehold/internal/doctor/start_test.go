package doctor

import (
	"slices"
	"strings"
	"testing"
)

// A server is started with what its client gives it, and with nothing that the client keeps.
func TestAServerIsStartedAsItsClientStartsIt(t *testing.T) {
	t.Setenv("LEASEHOLD_RUN", "shop")
	t.Setenv("LEASEHOLD_TOKEN", "secret")
	t.Setenv("HOME", "/home/me")
	for _, c := range []struct {
		file string
		e    entry
		want []string // of the variables above, and of those that the entry sets
	}{
		{".mcp.json", entry{"env": map[string]any{"SHOP": "${LEASEHOLD_RUN}-$LEASEHOLD_RUN-${NOT_SET}", "NUMBER": 1}}, []string{"HOME=/home/me", "LEASEHOLD_RUN=shop", "LEASEHOLD_TOKEN=secret", "SHOP=shop-shop-${NOT_SET}"}},
		{"opencode.json", entry{"environment": map[string]any{"SHOP": "{env:LEASEHOLD_RUN}"}}, []string{"HOME=/home/me", "LEASEHOLD_RUN=shop", "LEASEHOLD_TOKEN=secret", "SHOP=shop"}},
		{".codex/config.toml", entry{}, []string{"HOME=/home/me"}},
		{".codex/config.toml", entry{"env_vars": []any{"LEASEHOLD_TOKEN"}}, []string{"HOME=/home/me", "LEASEHOLD_TOKEN=secret"}},
		{".gemini/settings.json", entry{}, []string{"HOME=/home/me", "LEASEHOLD_RUN=shop"}},
	} {
		var got []string
		for _, v := range configOf(t, c.file).environment(c.e) {
			name, _, _ := strings.Cut(v, "=")
			if slices.Contains([]string{"SHOP", "NUMBER", "HOME", "LEASEHOLD_RUN", "LEASEHOLD_TOKEN"}, name) {
				got = append(got, v)
			}
		}
		slices.Sort(got)
		if !slices.Equal(got, c.want) {
			t.Errorf("%s %v: started with %q, want %q", c.file, c.e, got, c.want)
		}
	}
	for want, e := range map[string]entry{
		"mcp --run shop":     {"command": "leasehold", "args": []any{"mcp", "--run", "shop"}},
		"mcp --name x":       {"command": []any{"leasehold", "mcp", "--name", "x"}},
		"mcp --directory ./": {"command": "leasehold", "args": []any{"mcp", "--directory", "${workspaceFolder}/"}},
	} {
		if got := strings.Join(e.arguments(), " "); got != want {
			t.Errorf("%v: arguments %q, want %q", e, got, want)
		}
	}
}

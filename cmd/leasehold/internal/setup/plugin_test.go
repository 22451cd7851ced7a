package setup_test

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/leasehold/leasehold/cmd/leasehold/internal/setup"
)

var update = flag.Bool("update", false, "write the files that come from setup: the plugin, the extension, and what the book shows")

// The plugin of Claude Code and the extension of Gemini CLI are what setup writes for
// a project, in the files that the clients look for.
func TestPluginAndExtensionAreWhatSetupWrites(t *testing.T) {
	const about = "Leases for coding agents that work side by side: who changes a file, port or deployment, and who waits for it"
	manifest := []setup.Member{
		{Name: "name", Value: "leasehold"},
		{Name: "version", Value: nextVersion(t)},
		{Name: "description", Value: about},
	}
	author := setup.Member{Name: "author", Value: setup.Object("name", "The Leasehold authors")}
	claude, claudeHooks := setup.Shipped(t, "claude", append(manifest[:3:3], author))
	gemini, geminiHooks := setup.Shipped(t, "gemini", append(manifest[:3:3], setup.Member{Name: "contextFileName", Value: "GEMINI.md"}))
	for file, text := range map[string]string{
		"plugins/claude-code/.claude-plugin/plugin.json": claude,
		"plugins/claude-code/hooks/hooks.json":           claudeHooks,
		"plugins/claude-code/skills/leases/SKILL.md": "---\nname: leases\n" +
			"description: How to lease files before changing them, when other agents work in the same repository\n---\n\n" + setup.Protocol,
		"plugins/gemini-cli/gemini-extension.json": gemini,
		"plugins/gemini-cli/hooks/hooks.json":      geminiHooks,
		"plugins/gemini-cli/GEMINI.md":             setup.Protocol,
	} {
		is(t, file, text)
	}
}

// nextVersion is the newest version of which a state is kept: a release keeps one
// before it is made.
func nextVersion(t *testing.T) (newest string) {
	t.Helper()
	files, err := filepath.Glob(root + "dispatch/testdata/states/*-stopped.tgz")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		version := strings.TrimSuffix(filepath.Base(file), "-stopped.tgz")
		if newest == "" || less(newest, version) {
			newest = version
		}
	}
	return newest
}

// less compares versions by their numbers.
func less(a, b string) bool {
	for range 3 {
		var one, other string
		one, a, _ = strings.Cut(a, ".")
		other, b, _ = strings.Cut(b, ".")
		if one != other {
			return len(one) < len(other) || len(one) == len(other) && one < other
		}
	}
	return false
}

// is compares a file of the repository, or writes it.
func is(t *testing.T, file, text string) {
	t.Helper()
	file = filepath.Join(top, filepath.FromSlash(file))
	if *update {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if have, err := os.ReadFile(file); err != nil || string(have) != text {
		t.Errorf("%s, %v, has\n%s\nand setup writes\n%s\nrun just docs", file, err, have, text)
	}
}

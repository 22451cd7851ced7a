package book

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/leasehold/leasehold/dispatch/agent"
	"github.com/leasehold/leasehold/dispatch/manifest"
)

// Every manifest on the page of agents is right where its programs and prompts
// are there, and the page has every built-in profile.
func TestManifestsOfAgents(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir)
	for _, name := range []string{"claude", "codex", "gemini", "opencode", "review.sh", "box.sh", "lead.md"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	var used []string
	for _, text := range manifests(read(t, "book/src/agents.md")) {
		m, err := manifest.Parse("agents.md", []byte(text), dir)
		if err != nil {
			t.Errorf("%v, in\n%s", err, text)
			continue
		}
		for _, p := range m.Agents {
			used = append(used, p.Extends)
		}
	}
	for _, name := range agent.BuiltIns() {
		if !slices.Contains(used, name) {
			t.Errorf("the page has no manifest with %s", name)
		}
	}
}

// manifests are the TOML fences of a page.
func manifests(p page) (texts []string) {
	var b strings.Builder
	for _, l := range append(p.lines, line{}) {
		switch {
		case l.fence == "toml":
			b.WriteString(l.text + "\n")
		case b.Len() > 0:
			texts = append(texts, b.String())
			b.Reset()
		}
	}
	return texts
}

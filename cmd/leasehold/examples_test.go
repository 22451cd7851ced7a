package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// What the examples for many machines start is what leasehold serve takes.
func TestClusterExamplesNameFlagsOfServe(t *testing.T) {
	t.Parallel()
	serve, _, err := root().Find([]string{"serve"})
	if err != nil {
		t.Fatal(err)
	}
	for file, starts := range map[string]*regexp.Regexp{
		"compose.yaml":      regexp.MustCompile(`command: \[serve(.*)\]`),
		"leasehold.service": regexp.MustCompile(`ExecStart=/usr/bin/leasehold serve(.*)`),
	} {
		text, err := os.ReadFile(filepath.Join("../../examples/cluster", file))
		if err != nil {
			t.Fatal(err)
		}
		found := starts.FindAllStringSubmatch(string(text), -1)
		if len(found) == 0 {
			t.Errorf("%s starts nothing", file)
		}
		for _, line := range found {
			for _, flag := range regexp.MustCompile(`--[a-z-]+`).FindAllString(line[1], -1) {
				if serve.Flags().Lookup(strings.TrimPrefix(flag, "--")) == nil {
					t.Errorf("%s gives %s to leasehold serve, which takes no such flag", file, flag)
				}
			}
		}
	}
}

// The commands in the compose file's head, which start where the -f names the file, make
// the secret where compose looks for it: beside the file.
func TestComposeFindsItsSecret(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../examples/cluster/compose.yaml")
	if err != nil {
		t.Fatal(err)
	}
	word := func(after string) string {
		found := regexp.MustCompile(after + `(\S+)`).FindSubmatch(text)
		if found == nil {
			t.Fatalf("nothing follows %q", after)
		}
		return string(found[1])
	}
	made, read := word(`base64 >`), filepath.Join(filepath.Dir(word(`compose -f `)), word(`\n    file: `))
	if made != read {
		t.Errorf("the secret is made as %s and read as %s", made, read)
	}
}

// systemd reads the unit without a complaint about what it says, where systemd is.
func TestUnitIsRead(t *testing.T) {
	t.Parallel()
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("systemd is not installed")
	}
	unit, err := filepath.Abs("../../examples/cluster/leasehold.service")
	if err != nil {
		t.Fatal(err)
	}
	out, _ := exec.Command(analyze, "verify", "--man=no", unit).CombinedOutput() // it fails where leasehold is not installed
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, "leasehold.service") && !strings.Contains(line, "is not executable") {
			t.Error(strings.TrimSpace(line))
		}
	}
}

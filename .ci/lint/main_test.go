package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var (
	wanted = regexp.MustCompile(`// want ([\w ]+)$`)
	said   = regexp.MustCompile(`([^/\s]+\.go:\d+):\d+: .* \((\w+)\)$`)
)

// Each kind of check finds its fault, and nothing is found where a comment, or the name
// of a file, excludes it.
func TestEachFaultIsFound(t *testing.T) {
	tool := filepath.Join(t.TempDir(), "lint")
	if out, err := exec.Command("go", "build", "-o", tool).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	vet := exec.Command("go", "vet", "-vettool="+tool, ".")
	vet.Dir = "testdata/faults"
	out, err := vet.CombinedOutput()
	if err == nil {
		t.Errorf("go vet succeeds")
	}
	var found, want []string
	for line := range strings.Lines(string(out)) {
		if m := said.FindStringSubmatch(strings.TrimSpace(line)); m != nil {
			found = append(found, m[1]+" "+m[2])
		}
	}
	for _, name := range []string{"faults.go", "faults_test.go"} {
		text, err := os.ReadFile(filepath.Join(vet.Dir, name))
		if err != nil {
			t.Fatal(err)
		}
		for i, line := range strings.Split(string(text), "\n") {
			if m := wanted.FindStringSubmatch(line); m != nil {
				for check := range strings.FieldsSeq(m[1]) {
					want = append(want, name+":"+strconv.Itoa(i+1)+" "+check)
				}
			}
		}
	}
	slices.Sort(found)
	slices.Sort(want)
	if found, want := strings.Join(slices.Compact(found), "\n"), strings.Join(want, "\n"); found != want {
		t.Errorf("found:\n%s\n\nwant:\n%s\n\ngo vet says:\n%s", found, want, out)
	}
}

package main

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"testing"
)

var update = flag.Bool("update", false, "write what is generated")

// The clients are those of the API as it is.
func TestClientsAreUpToDate(t *testing.T) {
	for name, want := range files() {
		name = filepath.Join("..", name)
		if *update {
			if err := os.WriteFile(name, want, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := os.ReadFile(name); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is out of date: go test ./client/generate -update (%v)", name, err)
		}
	}
}

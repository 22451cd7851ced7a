package book_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/leasehold/leasehold/registry"
)

// A refusal by a limit says what to do, whichever limit it is.
func TestEveryLimitSaysWhatToDo(t *testing.T) {
	named := regexp.MustCompile(`(?:Which: |below\(tx, [^"\n]*|[^a-z]limit\(|v\.limit = |limits\.\w+, )"([^"]+)"`)
	seen := 0
	for _, dir := range []string{"registry", "kvstore", "queue", "dispatch"} {
		err := filepath.WalkDir(filepath.Join("..", dir), func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			for _, m := range named.FindAllStringSubmatch(string(text), -1) {
				seen++
				if e := (&registry.LimitError{Which: m[1], Max: 1}); !strings.Contains(e.Error(), "at most 1; ") {
					t.Errorf("%s: %v", path, e)
				}
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if seen < 30 {
		t.Errorf("only %d limits are found", seen)
	}
}

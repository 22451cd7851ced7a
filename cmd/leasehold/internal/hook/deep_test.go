package hook

import (
	"strings"
	"testing"

	"github.com/leasehold/leasehold/registry"
)

// The path of the file is too long for a key. With a look at each of the directories,
// this takes minutes.
func TestADeepFileHasTheKeyOfADirectoryAboveIt(t *testing.T) {
	top := t.TempDir()
	for _, name := range []string{strings.Repeat("d/", 1_500) + "f", strings.Repeat("deeper/", 500) + "f"} {
		key, err := keyOf(top, top+"/"+name)
		rest, ok := strings.CutPrefix("file:"+name, key+"/")
		if err != nil || !ok || len(key) > registry.MaxKey || len(key)+1+strings.Index(rest, "/") <= registry.MaxKey-1 {
			t.Errorf("%.20s… has the key %s, %v", name, key, err)
		}
	}
	if key, err := keyOf(top, "/x"); key != "file:/x" || err != nil {
		t.Errorf("a file outside has the key %s, %v", key, err)
	}
}

package spelling_test

import (
	"testing"

	"github.com/leasehold/leasehold/dispatch/spelling"
)

func TestOnlyWhatIsSimilarWasMeant(t *testing.T) {
	for _, c := range []struct {
		typed string
		names []string
		want  string
	}{
		{"complie", []string{"test", "compile"}, "compile"}, // swapped letters are one change
		{"Release", []string{"release-42"}, "release-42"},   // the beginning of a name
		{"größe", []string{"grösse", "große"}, "große"},     // letters count, not bytes
		{"ab", []string{"cd"}, ""},
		{"deploy", []string{"compile", "test"}, ""},
		{"", []string{"a"}, ""},
	} {
		if got := spelling.Nearest(c.typed, c.names); got != c.want {
			t.Errorf("by %q of %q was meant %q, want %q", c.typed, c.names, got, c.want)
		}
	}
}

func TestAPathIsFoundBelowItsLead(t *testing.T) {
	paths := []string{"S1", "S1/W1", "S1/W2"}
	for path, want := range map[string]string{
		"W2":   "did you mean S1/W2? A path begins below the root",
		"S1W1": "did you mean S1/W1?",
		"X":    "",
	} {
		if got := spelling.Path(path, paths); got != want {
			t.Errorf("of %s it says %q, want %q", path, got, want)
		}
	}
}

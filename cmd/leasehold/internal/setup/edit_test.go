package setup

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// What setup shows leads to the text that it writes, in the order of the file.
func TestJoinedEditsMakeTheSameText(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	letters := func(n int) string { return strings.Repeat(string(rune('a'+r.IntN(26))), n) }
	for range 10_000 {
		first := letters(r.IntN(4)) + letters(r.IntN(4)) + letters(r.IntN(4))
		last := []byte(first)
		var edits []edit
		for range r.IntN(6) {
			at := r.IntN(len(last) + 1)
			e := edit{At: at, Del: string(last[at : at+r.IntN(len(last)-at+1)]), Ins: letters(r.IntN(4))}
			last, edits = e.apply(last), append(edits, e)
		}
		made, from := "", 0
		for i, e := range joined([]byte(first), edits) {
			if i > 0 && e.At <= from || !strings.HasPrefix(first[e.At:], e.Del) {
				t.Fatalf("%q, %+v: shows %+v", first, edits, joined([]byte(first), edits))
			}
			made += first[from:e.At] + e.Ins
			from = e.At + len(e.Del)
		}
		if made += first[from:]; made != string(last) {
			t.Fatalf("%q, %+v: %+v makes %q, not %q", first, edits, joined([]byte(first), edits), made, last)
		}
	}
}

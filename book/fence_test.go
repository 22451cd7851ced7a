package book

import (
	"errors"
	"sync"
	"testing"
)

// ANCHOR: guarded
// A guarded resource takes writes only from the newest holder of its lease.
type guarded struct {
	mu     sync.Mutex
	newest uint64 // the greatest token seen; keep it as durably as the data
	data   string
}

var errStale = errors.New("a newer holder has written: your lease is lost")

// write refuses a token that is older than one it has seen.
func (g *guarded) write(token uint64, data string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if token < g.newest {
		return errStale
	}
	g.newest, g.data = token, data
	return nil
}

// ANCHOR_END: guarded

// A holder that wakes up after its lease went to another changes nothing.
func TestFencing(t *testing.T) {
	g := new(guarded)
	for _, w := range []struct {
		token uint64
		data  string
		err   error
	}{
		{7, "of the first holder", nil},
		{7, "of the first holder, again", nil},
		{9, "of the second", nil},
		{7, "of the first, which woke up late", errStale},
	} {
		if err := g.write(w.token, w.data); !errors.Is(err, w.err) {
			t.Errorf("token %d: %v, want %v", w.token, err, w.err)
		}
	}
	if g.data != "of the second" {
		t.Errorf("the resource holds what was written %s", g.data)
	}
}

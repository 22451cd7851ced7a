package client

import (
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/leasehold/leasehold/registry/filekey"
)

// Turns make the goroutines of a client take turns for a key, and for keys of files
// that overlap. To the server they are one holder, which gets its own lease again: of
// two that ask at once, one could be granted a lease that the other has already
// released.
type turns struct {
	mu    sync.Mutex
	lines map[turnKey][]*turn // those that have their turn or wait for it, first come first
}

// A turnKey identifies a line. All keys of files are in one.
type turnKey struct {
	layer bool
	key   string
}

// A turn is that of a goroutine that holds a key, asks for it, or waits to ask.
type turn struct {
	line turnKey
	key  string
	came chan struct{} // closed when it has come
}

// newTurn returns the turn for a lease. A lease of the layer has two names.
func newTurn(key string, layer bool) *turn {
	t := &turn{turnKey{layer, key}, key, make(chan struct{})}
	switch {
	case layer:
		t.line.key = strings.TrimPrefix(key, "/leases/")
	case filekey.Is(key):
		t.line.key = filekey.Prefix
	}
	return t
}

// excludes reports whether one of two turns of the same line waits for the other.
func (t *turn) excludes(other *turn) bool {
	return t.line.key != filekey.Prefix || filekey.Overlap(t.key, other.key)
}

// take waits until it is the caller's turn. The caller calls end once the server
// has been told that it holds nothing any more.
func (ts *turns) take(ctx context.Context, t *turn) (end func(), err error) {
	end = ts.join(t)
	select {
	case <-t.came:
		return end, nil
	case <-ctx.Done():
		end()
		return nil, context.Cause(ctx)
	}
}

// tryTake is take if nobody is before the caller.
func (ts *turns) tryTake(t *turn) (end func(), ok bool) {
	end = ts.join(t)
	select {
	case <-t.came:
		return end, true
	default:
		end()
		return nil, false
	}
}

func (ts *turns) join(t *turn) (end func()) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	line := append(ts.lines[t.line], t)
	ts.lines[t.line] = line
	callLocked(line, len(line)-1)
	return sync.OnceFunc(func() { ts.leave(t) })
}

func (ts *turns) leave(t *turn) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	line := ts.lines[t.line]
	at := slices.Index(line, t)
	line = slices.Delete(line, at, at+1)
	if len(line) == 0 {
		delete(ts.lines, t.line)
		return
	}
	ts.lines[t.line] = line
	for ; at < len(line); at++ {
		if !callLocked(line, at) && t.line.key != filekey.Prefix {
			return // nor is it the turn of anybody behind
		}
	}
}

// callLocked tells a goroutine that it has the turn, unless one before it excludes it.
func callLocked(line []*turn, at int) bool {
	t := line[at]
	if slices.ContainsFunc(line[:at], t.excludes) {
		return false
	}
	select {
	case <-t.came: // it has it already
	default:
		close(t.came)
	}
	return true
}

package client

import (
	"context"
	"strings"
	"sync"
)

// Turns make the goroutines of a client take turns for a key. To the server they
// are one holder, which gets its own lease again: of two that ask at once, one
// could be granted a lease that the other has already released.
type turns struct {
	mu  sync.Mutex
	all map[turnKey]*turnLine
}

type turnKey struct {
	layer bool
	key   string
}

// turnOf returns the turnKey of a lease. A lease of the layer has two names.
func turnOf(key string, layer bool) turnKey {
	if layer {
		key = strings.TrimPrefix(key, "/leases/")
	}
	return turnKey{layer, key}
}

// A turnLine is the goroutines that hold a key, ask for it, or wait to ask.
type turnLine struct {
	goroutines int
	turn       chan struct{} // has an element while one of them has the turn
}

// take waits until it is the caller's turn. The caller calls end once the server
// has been told that it holds nothing any more.
func (ts *turns) take(ctx context.Context, k turnKey) (end func(), err error) {
	line := ts.join(k)
	select {
	case line.turn <- struct{}{}:
		return ts.ending(k, line), nil
	case <-ctx.Done():
		ts.quit(k, line)
		return nil, context.Cause(ctx)
	}
}

// tryTake is take if nobody else has the turn.
func (ts *turns) tryTake(k turnKey) (end func(), ok bool) {
	line := ts.join(k)
	select {
	case line.turn <- struct{}{}:
		return ts.ending(k, line), true
	default:
		ts.quit(k, line)
		return nil, false
	}
}

func (ts *turns) ending(k turnKey, line *turnLine) func() {
	return sync.OnceFunc(func() {
		<-line.turn
		ts.quit(k, line)
	})
}

func (ts *turns) join(k turnKey) *turnLine {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	line := ts.all[k]
	if line == nil {
		line = &turnLine{turn: make(chan struct{}, 1)}
		ts.all[k] = line
	}
	line.goroutines++
	return line
}

func (ts *turns) quit(k turnKey, line *turnLine) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	line.goroutines--
	if line.goroutines == 0 {
		delete(ts.all, k)
	}
}

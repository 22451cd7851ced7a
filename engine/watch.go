package engine

import (
	"cmp"
	"slices"
	"sync"
	"time"
)

// A Watch reports changes: C holds one value if something has changed since the
// last receive. Several changes may be reported as one.
type Watch struct {
	C      <-chan struct{}
	c      chan struct{}
	key    string
	number uint64 // watches that started earlier have lower ones
	hub    *Hub
}

// Stop ends the Watch. C is not closed. Stopping again does nothing.
func (w *Watch) Stop() { w.hub.remove(w) }

func (w *Watch) wake() {
	select {
	case w.c <- struct{}{}:
	default: // a pending value covers this change too
	}
}

// A Hub has the watches of an engine. Its zero value is ready to use.
//
// A change wakes those watches of a key that started first at once, and the
// others in steps. Otherwise one change that thousands wait for would keep
// everybody else waiting for a processor until all of them have looked at it.
type Hub struct {
	mu      sync.Mutex
	watches map[string]*watches
	started uint64 // number of watches, ever
}

// watches are those of one key.
type watches struct {
	all   []*Watch // by number
	next  int      // the first of all that the next step wakes
	steps bool     // there will be another step
	again bool     // there was another change since the first step
}

const (
	stepSize  = 64
	stepPause = time.Millisecond
)

// Watch adds a watch for key.
func (h *Hub) Watch(key string) *Watch {
	c := make(chan struct{}, 1)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.watches == nil {
		h.watches = make(map[string]*watches)
	}
	l := h.watches[key]
	if l == nil {
		l = new(watches)
		h.watches[key] = l
	}
	h.started++
	w := &Watch{C: c, c: c, key: key, number: h.started, hub: h}
	l.all = append(l.all, w)
	return w
}

// Notify wakes the watches of keys, and those of every change.
func (h *Hub) Notify(keys ...string) {
	if len(keys) == 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.notifyLocked("")
	for _, key := range keys {
		h.notifyLocked(key)
	}
}

// NotifyAll wakes every watch at once. It is for an engine that ends.
func (h *Hub) NotifyAll() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, l := range h.watches {
		for _, w := range l.all {
			w.wake()
		}
	}
}

func (h *Hub) notifyLocked(key string) {
	l := h.watches[key]
	switch {
	case l == nil:
	case l.steps:
		l.again = true
	default:
		h.stepLocked(l)
	}
}

// stepLocked wakes the next few watches of a key, and sees to it that the others
// follow. After the last it begins anew if there was another change.
func (h *Hub) stepLocked(l *watches) {
	end := min(l.next+stepSize, len(l.all))
	for _, w := range l.all[l.next:end] {
		w.wake()
	}
	l.next = end
	if end == len(l.all) {
		l.next = 0
		l.steps, l.again = l.again, false
	} else {
		l.steps = true
	}
	if l.steps {
		time.AfterFunc(stepPause, func() {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.stepLocked(l)
		})
	}
}

func (h *Hub) remove(w *Watch) {
	h.mu.Lock()
	defer h.mu.Unlock()
	l := h.watches[w.key]
	if l == nil {
		return
	}
	i, ok := slices.BinarySearchFunc(l.all, w.number, func(other *Watch, number uint64) int { return cmp.Compare(other.number, number) })
	if !ok {
		return
	}
	if l.all = slices.Delete(l.all, i, i+1); i < l.next {
		l.next--
	}
	if len(l.all) == 0 {
		delete(h.watches, w.key)
	}
}

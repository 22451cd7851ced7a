package engine

import (
	"slices"
	"sync"
)

// A Watch reports changes: C holds one value if something has changed since the
// last receive. Several changes may be reported as one.
type Watch struct {
	C   <-chan struct{}
	c   chan struct{}
	key string
	hub *Hub
}

// Stop ends the Watch. C is not closed. Stopping again does nothing.
func (w *Watch) Stop() { w.hub.remove(w) }

// A Hub has the watches of an engine. Its zero value is ready to use.
type Hub struct {
	mu    sync.Mutex
	watch map[string][]*Watch
}

// Watch adds a watch for key.
func (h *Hub) Watch(key string) *Watch {
	c := make(chan struct{}, 1)
	w := &Watch{C: c, c: c, key: key, hub: h}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.watch == nil {
		h.watch = make(map[string][]*Watch)
	}
	h.watch[key] = append(h.watch[key], w)
	return w
}

// Watched returns those of keys that are watched now, or all of them if somebody
// watches every change. An engine may call it when it makes a change, before
// that is durable: a caller that starts a watch after this and then reads the
// state sees the change.
func (h *Hub) Watched(keys []string) (watched []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := h.watch[""] != nil
	for _, key := range keys {
		if all || h.watch[key] != nil {
			watched = append(watched, key)
		}
	}
	return watched
}

// Notify wakes the watches of keys, and those of every change.
func (h *Hub) Notify(keys ...string) {
	if len(keys) == 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.wakeLocked("")
	for _, key := range keys {
		h.wakeLocked(key)
	}
}

// NotifyAll wakes every watch. It is for an engine that ends.
func (h *Hub) NotifyAll() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for key := range h.watch {
		h.wakeLocked(key)
	}
}

func (h *Hub) wakeLocked(key string) {
	for _, w := range h.watch[key] {
		select {
		case w.c <- struct{}{}:
		default: // a pending value covers this change too
		}
	}
}

func (h *Hub) remove(w *Watch) {
	h.mu.Lock()
	defer h.mu.Unlock()
	list := slices.DeleteFunc(h.watch[w.key], func(other *Watch) bool { return other == w })
	if h.watch[w.key] = list; len(list) == 0 {
		delete(h.watch, w.key)
	}
}

package memory

import "github.com/leasehold/leasehold/engine"

// Observe makes the engine report to o from now on. There is one observer: a
// second replaces the first.
func (e *Engine) Observe(o engine.Observer) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.observer = o
	for _, prefix := range o.Prefixes {
		if !isCold(prefix) {
			e.set.scan(prefix, prefix, func(r *row) bool { o.Changed(engine.Row{}, r.public()); return true })
		}
	}
}

func (e *Engine) observeLocked(t *tx) {
	o := &e.observer
	if o.Changed == nil {
		return
	}
	for _, u := range t.undo {
		if o.Watched(u.key()) {
			o.Changed(u.was.public(), u.is.public())
		}
	}
	for i := range t.coldUndo {
		if key := t.coldUndo[i].key; o.Watched(key) {
			if w, _ := t.cold.Get(key); !w.gone {
				o.Changed(engine.Row{}, engine.Row{Key: key, Value: w.value})
			}
		}
	}
}

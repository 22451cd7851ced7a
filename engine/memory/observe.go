package memory

import (
	"time"

	"github.com/leasehold/leasehold/engine"
)

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

// observeLocked reports the changes of a transaction to the observer.
func (e *Engine) observeLocked(t *tx) {
	o := &e.observer
	if o.Changed == nil {
		return
	}
	public := func(r *row) engine.Row {
		if r == nil {
			return engine.Row{}
		}
		return r.public()
	}
	for _, u := range t.undo {
		if r := u.is; r != nil && o.Watched(r.key) || r == nil && o.Watched(u.was.key) {
			o.Changed(public(u.was), public(u.is))
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

// committed reports to the observer that an Update is durable.
func (e *Engine) committed(end *ending) {
	if end.observer != nil {
		end.observer(time.Since(end.began))
	}
}

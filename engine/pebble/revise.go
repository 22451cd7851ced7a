package pebble

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/leasehold/leasehold/engine"
)

// Revise implements [engine.Engine]. It has a look at each row, on all cores,
// and finds the places of the due rows once, at the end.
func (e *Engine) Revise(ctx context.Context, prefix string, fn func(now time.Time, row engine.Row) (engine.Row, error)) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	last, err := e.revise(prefix, fn)
	if failure := last.wait(); failure != nil {
		return failure
	}
	if err == nil {
		e.hub.NotifyAll()
	}
	return err
}

// revise also gives the commit that must be durable before anything is told.
func (e *Engine) revise(prefix string, fn func(now time.Time, row engine.Row) (engine.Row, error)) (seen *commit, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	defer e.wakeCollector()
	if err := e.refusalLocked(); err != nil {
		return nil, err
	}
	now := e.clock.now()
	parts := e.mem.revisions(prefix)
	onAllCores(len(parts), func(i int) { parts[i].ask(now, fn) })
	for _, p := range parts {
		err = errors.Join(err, p.err)
	}
	if err == nil {
		onAllCores(len(parts), func(i int) { parts[i].apply() })
		for _, p := range parts {
			p.applyOther(e.mem)
		}
		e.mem.due.refill()
		e.alarm.set(e.wakeLocked(now))
	}
	return e.last, err
}

// A revision is what is to become of the rows of some leaves: nothing is changed
// before it is known of all.
type revision struct {
	prefix string
	leaves []*leaf[string, *row]
	dues   []int64 // of each of its rows, in their order
	other  []revised
	err    error
}

// A revised is a row of which more changes than when it is due.
type revised struct {
	r  *row
	is engine.Row
}

// revisions gives the leaves that have rows whose keys start with prefix, each
// once, some to a revision.
func (m *memory) revisions(prefix string) (parts []*revision) {
	const leaves = 64
	for l := m.rows.leaf(prefix); l != nil && (l.low <= prefix || strings.HasPrefix(l.low, prefix)); l = l.next {
		if n := len(parts); n == 0 || len(parts[n-1].leaves) == leaves {
			parts = append(parts, &revision{prefix: prefix, leaves: make([]*leaf[string, *row], 0, leaves)})
		}
		p := parts[len(parts)-1]
		p.leaves = append(p.leaves, l)
	}
	return parts
}

// each yields the rows in question: of a leaf all, or some at an end of it.
func (p *revision) each(yield func(*row) bool) {
	other := func(r *row) bool { return !strings.HasPrefix(r.key(), p.prefix) }
	for _, l := range p.leaves {
		rows := l.items[:l.n]
		for len(rows) > 0 && other(rows[0]) {
			rows = rows[1:]
		}
		for len(rows) > 0 && other(rows[len(rows)-1]) {
			rows = rows[:len(rows)-1]
		}
		for _, r := range rows {
			if !yield(r) {
				return
			}
		}
	}
}

func (p *revision) ask(now time.Time, fn func(time.Time, engine.Row) (engine.Row, error)) {
	p.dues = make([]int64, 0, len(p.leaves)*fullLeaf)
	for r := range p.each {
		if err := p.askAbout(r, now, fn); err != nil {
			p.err = errors.Join(p.err, err)
		}
	}
}

func (p *revision) askAbout(r *row, now time.Time, fn func(time.Time, engine.Row) (engine.Row, error)) error {
	was := r.public()
	is, err := fn(now, was)
	if err != nil {
		return err
	}
	if is.Key != was.Key {
		return fmt.Errorf("engine: row %q cannot become row %q", was.Key, is.Key)
	}
	if is.Value != was.Value || is.Owner != was.Owner {
		if err := tooLarge(is); err != nil {
			return err
		}
		p.other = append(p.other, revised{r, is})
	}
	p.dues = append(p.dues, instant(is.Due))
	return nil
}

func (p *revision) apply() {
	dues := p.dues
	for r := range p.each {
		r.due, dues = dues[0], dues[1:]
	}
}

func (p *revision) applyOther(m *memory) {
	for _, o := range p.other {
		o.r.setText(text(o.is.Key, o.is.Value), len(o.is.Key))
		m.setOwner(o.r, o.is.Owner)
	}
}

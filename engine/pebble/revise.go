package pebble

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/leasehold/leasehold/engine"
)

// Revise implements [engine.Engine]. It has a look at each row, on all cores,
// and puts the due rows in order once, at the end.
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
	if err := e.refusalLocked(); err != nil {
		return nil, err
	}
	now := e.clock.now()
	parts := e.mem.revisions(prefix)
	next := make(chan *revision, len(parts))
	for _, p := range parts {
		next <- p
	}
	close(next)
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for p := range next {
				p.ask(now, fn)
			}
		})
	}
	wg.Wait()
	for _, p := range parts {
		err = errors.Join(err, p.err)
	}
	if err == nil {
		for _, p := range parts {
			p.apply(e.mem)
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
	rows   []revised
	other  []engine.Row // of whom more changes than when they are due
	err    error
}

type revised struct {
	r     *row
	due   int64
	other int32 // 1 + its place there, or 0
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

func (p *revision) ask(now time.Time, fn func(time.Time, engine.Row) (engine.Row, error)) {
	p.rows = make([]revised, 0, len(p.leaves)*fullLeaf)
	for _, l := range p.leaves {
		for _, r := range l.items[:l.n] {
			if strings.HasPrefix(r.key(), p.prefix) {
				p.askAbout(r, now, fn)
			}
		}
	}
}

func (p *revision) askAbout(r *row, now time.Time, fn func(time.Time, engine.Row) (engine.Row, error)) {
	was := r.public()
	is, err := fn(now, was)
	switch {
	case err != nil:
	case is.Key != was.Key:
		err = fmt.Errorf("engine: row %q cannot become row %q", was.Key, is.Key)
	default:
		err = tooLarge(is)
	}
	if err != nil {
		p.err = errors.Join(p.err, err)
		return
	}
	next := revised{r: r, due: instant(is.Due)}
	if is.Value != was.Value || is.Owner != was.Owner {
		p.other = append(p.other, is)
		next.other = int32(len(p.other))
	}
	p.rows = append(p.rows, next)
}

func (p *revision) apply(m *memory) {
	for _, next := range p.rows {
		next.r.due = next.due
		if next.other != 0 {
			is := p.other[next.other-1]
			next.r.setText(text(is.Key, is.Value), len(is.Key))
			m.setOwner(next.r, is.Owner)
		}
	}
}

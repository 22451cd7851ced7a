package pebble

import (
	"context"
	"errors"
	"fmt"
	"runtime"
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
	var parts []*revision
	var rows []*row
	e.mem.rows.scan(prefix, prefix, func(r *row) bool {
		if len(rows) == cap(rows) {
			rows = make([]*row, 0, 1<<12)
			parts = append(parts, &revision{})
		}
		rows = append(rows, r)
		parts[len(parts)-1].rows = rows
		return true
	})
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
		e.alarm.set(e.pace.next(e.mem.due.earliest()))
	}
	return e.last, err
}

// A revision is some rows and what is to become of them: nothing is changed
// before it is known of all.
type revision struct {
	rows  []*row
	due   []int64
	other map[int]engine.Row // of whom more changes than when they are due
	err   error
}

func (p *revision) ask(now time.Time, fn func(time.Time, engine.Row) (engine.Row, error)) {
	p.due = make([]int64, len(p.rows))
	for i, r := range p.rows {
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
			continue
		}
		p.due[i] = instant(is.Due)
		if is.Value != was.Value || is.Owner != was.Owner {
			if p.other == nil {
				p.other = make(map[int]engine.Row)
			}
			p.other[i] = is
		}
	}
}

func (p *revision) apply(m *memory) {
	for i, r := range p.rows {
		r.due = p.due[i]
	}
	for i, is := range p.other {
		p.rows[i].setText(text(is.Key, is.Value), len(is.Key))
		m.setOwner(p.rows[i], is.Owner)
	}
}

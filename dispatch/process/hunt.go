package process

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"syscall"
	"time"
)

const (
	// settle is the time between two looks that find nothing: what was being
	// made during the first is there at the second.
	settle = 20 * time.Millisecond

	// lookAgain is how long those that were signalled are waited for before
	// somebody looks for others.
	lookAgain = time.Second

	firstPoll = 2 * time.Millisecond
	lastPoll  = 50 * time.Millisecond

	// maxFreezes bounds the looks for those that were not frozen yet, for the
	// sake of a tree that grows faster than one can look.
	maxFreezes = 20
)

// A hunt ends the processes of one tree. It remembers whom it has seen.
type hunt struct {
	mark   string
	adopts bool // what this process has adopted belongs to the tree

	known   map[identity]bool
	led     map[int]uint64 // sessions and groups by their leader, and when that started
	spared  map[identity]bool
	refused map[identity]error // to take a signal
	reached map[identity]bool
}

// newHunt hunts what has the mark, and what the roots have led.
func newHunt(mark string, roots ...identity) *hunt {
	h := &hunt{
		mark: mark, known: make(map[identity]bool), led: make(map[int]uint64),
		spared: make(map[identity]bool), refused: make(map[identity]error), reached: make(map[identity]bool),
	}
	for _, root := range roots {
		h.known[root] = true
		h.led[root.pid] = root.start
	}
	return h
}

// members are the processes that belong to the tree, its root first. See the
// package for what belongs.
func (h *hunt) members(t *table) []*entry {
	own := t.own()
	for leader, start := range h.led {
		if e, ok := t.entries[leader]; ok && e.start != start {
			delete(h.led, leader) // all it led is gone, or its pid would be taken
		}
	}
	in := make(map[int]bool)
	add := func(e *entry) {
		in[e.pid] = true
		h.known[e.identity] = true
		if e.pid == e.session || e.pid == e.group {
			h.led[e.pid] = e.start
		}
	}
	var rest []*entry
	for _, e := range t.entries {
		switch {
		case own[e.pid]:
		case h.known[e.identity] || t.marked(e.pid, h.mark):
			add(e)
		default:
			rest = append(rest, e)
		}
	}
	if h.adopts {
		for _, e := range adoptedIn(t) {
			if !own[e.pid] {
				add(e)
			}
		}
	}
	for grown := true; grown; {
		grown = false
		rest = slices.DeleteFunc(rest, func(e *entry) bool {
			_, ofSession := h.led[e.session]
			_, ofGroup := h.led[e.group]
			if !in[e.parent] && !ofSession && !ofGroup {
				return false
			}
			add(e)
			grown = true
			return true
		})
	}
	var list []*entry
	for pid := range in {
		if e := t.entries[pid]; h.mayEnd(e.identity) {
			list = append(list, e)
		}
	}
	slices.SortFunc(list, func(a, b *entry) int {
		return cmp.Or(cmp.Compare(t.depth(a), t.depth(b)), cmp.Compare(a.start, b.start), cmp.Compare(a.pid, b.pid))
	})
	return list
}

// mayEnd reports whether a process is the user's, and takes signals.
func (h *hunt) mayEnd(id identity) bool {
	if h.refused[id] != nil || h.spared[id] {
		return false
	}
	if !ofUser(id.pid, os.Getuid()) {
		if id.there() { // it became another's, as sudo does; or it will be seen to be gone
			h.spared[id] = true
		}
		return false
	}
	return true
}

// send signals processes, in this order.
func (h *hunt) send(to []*entry, s syscall.Signal) {
	for _, e := range to {
		if err := e.send(s); err != nil {
			h.refused[e.identity] = fmt.Errorf("%v to process %d: %w", s, e.pid, err)
			continue
		}
		h.reached[e.identity] = true
	}
}

// unlessGone takes it for a success that a process has ended.
func unlessGone(err error) error {
	if errors.Is(err, syscall.ESRCH) {
		return nil
	}
	return err
}

// run ends the tree, and returns how many processes it signalled.
func (h *hunt) run(ctx context.Context, grace time.Duration) (int, error) {
	left, err := h.ask(ctx, time.Now().Add(grace))
	if err == nil && left {
		err = h.kill(ctx)
	}
	for _, refusal := range h.refused {
		err = errors.Join(err, refusal)
	}
	return len(h.reached), err
}

// ask sends SIGTERM to the tree and waits until the deadline for its end. What
// the processes start when they hear of it may be what they need to come to an
// end: it is asked once they are gone.
func (h *hunt) ask(ctx context.Context, deadline time.Time) (left bool, err error) {
	asked := make(map[identity]bool)
	for nothing := 0; time.Now().Before(deadline); {
		members, err := h.look(ctx)
		if err != nil {
			return true, err
		}
		if len(members) == 0 {
			if nothing++; nothing == 2 {
				return false, nil
			}
			if err := pause(ctx, settle); err != nil {
				return true, err
			}
			continue
		}
		nothing = 0
		if !slices.ContainsFunc(members, func(e *entry) bool { return asked[e.identity] }) {
			h.send(members, syscall.SIGTERM)
			h.send(members, syscall.SIGCONT) // who is stopped cannot hear
			for _, e := range members {
				asked[e.identity] = true
			}
		}
		members = slices.DeleteFunc(members, func(e *entry) bool { return !asked[e.identity] })
		if err := await(ctx, members, earlier(deadline, time.Now().Add(lookAgain))); err != nil {
			return true, err
		}
	}
	return true, nil
}

// kill ends the tree with SIGKILL. First all of it is stopped, until no look
// finds one that runs: what is stopped starts nothing while its kin are killed.
// The leaves go first, since what loses its parent may be continued by that.
func (h *hunt) kill(ctx context.Context) error {
	for nothing := 0; ; {
		frozen := make(map[identity]bool)
		var members []*entry
		for range maxFreezes {
			var err error
			if members, err = h.look(ctx); err != nil {
				return err
			}
			fresh := slices.DeleteFunc(slices.Clone(members), func(e *entry) bool { return frozen[e.identity] })
			if len(fresh) == 0 {
				break
			}
			h.send(fresh, syscall.SIGSTOP)
			for _, e := range fresh {
				frozen[e.identity] = true
			}
		}
		if len(members) == 0 {
			if nothing++; nothing == 2 {
				return nil
			}
			if err := pause(ctx, settle); err != nil {
				return err
			}
			continue
		}
		nothing = 0
		slices.Reverse(members)
		h.send(members, syscall.SIGKILL)
		if err := await(ctx, members, time.Now().Add(lookAgain)); err != nil {
			return err
		}
	}
}

func (h *hunt) look(ctx context.Context) ([]*entry, error) {
	if ctx.Err() != nil {
		return nil, h.unfinished(ctx)
	}
	t, err := shared.look()
	if err != nil {
		return nil, err
	}
	return h.members(t), nil
}

// unfinished says that the caller has given up.
func (h *hunt) unfinished(ctx context.Context) error {
	return fmt.Errorf("gave up before all processes with %s had ended: %w", h.mark, context.Cause(ctx))
}

// await returns when the processes are gone, or at the deadline.
func await(ctx context.Context, list []*entry, deadline time.Time) error {
	for wait := firstPoll; ; wait = min(2*wait, lastPoll) {
		list = slices.DeleteFunc(list, func(e *entry) bool { return !e.there() })
		left := time.Until(deadline)
		if len(list) == 0 || left <= 0 {
			return nil
		}
		if err := pause(ctx, min(wait, left)); err != nil {
			return err
		}
	}
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("gave up waiting for processes to end: %w", context.Cause(ctx))
	}
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

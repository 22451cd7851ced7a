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
	// settle is the time between two scans that find nothing. A process that
	// was being forked during the first is visible in the second.
	settle = 20 * time.Millisecond

	// lookAgain is how long to wait for signalled processes to end before the
	// next scan.
	lookAgain = time.Second

	firstPoll = 2 * time.Millisecond
	lastPoll  = 50 * time.Millisecond

	// maxFreezes limits the scans for processes that are not stopped yet, in
	// case the tree grows faster than it can be scanned.
	maxFreezes = 20
)

// A hunt ends the processes of one tree. It remembers the processes it has
// seen.
type hunt struct {
	mark   string
	adopts bool // processes that this process has adopted belong to the tree

	known   map[identity]bool
	led     map[int]uint64 // leaders of sessions and groups, with their start times
	spared  map[identity]bool
	refused map[identity]error // why a signal could not be sent
	reached map[identity]bool
}

// newHunt returns a hunt for the processes with the mark and for the trees of
// roots.
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

// members returns the processes that belong to the tree, its root first. The
// package documentation says which ones belong.
func (h *hunt) members(t *table) []*entry {
	own := t.own()
	for leader, start := range h.led {
		if e, ok := t.entries[leader]; ok && e.start != start {
			delete(h.led, leader) // the pid was reused, so nothing it led is left
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

// mayEnd reports whether a process belongs to this user and accepts signals.
func (h *hunt) mayEnd(id identity) bool {
	if h.refused[id] != nil || h.spared[id] {
		return false
	}
	if !ofUser(id.pid, os.Getuid()) {
		if id.there() { // it changed its user, as sudo does; otherwise the next scan will miss it
			h.spared[id] = true
		}
		return false
	}
	return true
}

// send signals processes in the given order.
func (h *hunt) send(to []*entry, s syscall.Signal) {
	for _, e := range to {
		if err := e.send(s); err != nil {
			h.refused[e.identity] = fmt.Errorf("%v to process %d: %w", s, e.pid, err)
			continue
		}
		h.reached[e.identity] = true
	}
}

// unlessGone treats the error for a process that has ended as success.
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

// ask sends SIGTERM to the tree and waits until the deadline for it to end.
// Processes that are started in reaction may be needed for an orderly end, so
// they are signalled only once the processes that were asked are gone.
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
			h.send(members, syscall.SIGCONT) // a stopped process handles SIGTERM only after SIGCONT
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

// kill ends the tree with SIGKILL. First it stops all processes with SIGSTOP,
// until a scan finds none that still runs; a stopped process cannot start
// others while the tree is killed. The leaves are killed first, because the
// system may continue a stopped process that loses its parent.
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

// unfinished returns the error for a hunt whose context ended.
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

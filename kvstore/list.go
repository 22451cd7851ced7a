package kvstore

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"strings"

	"github.com/leasehold/leasehold/registry"
)

// Bounds of a listing.
const (
	DefaultList  = 100      // entries
	MaxList      = 1000     // entries
	MaxListBytes = 64 << 10 // of paths and values; one entry may be larger

	// What one listing may look at before it answers with what it has: entries,
	// and steps of matching. The next one goes on from there.
	maxListLooks = 20_000
	maxListSteps = 20_000_000

	// listPause is how many entries are looked at between two looks at whether
	// the caller is still there.
	listPause = 256
)

// A Query asks for the entries that a glob matches.
type Query struct {
	Glob   Glob
	After  string // list only paths greater than this; "": all
	Limit  int    // 1 to MaxList; zero: DefaultList
	Values bool   // whether values are wanted

	// Visible hides the paths it is false for: they are not listed, not
	// counted, and not what a listing is truncated for. It is the same for all
	// that is below one peer. Nil: all are seen.
	Visible func(Path) bool
}

// A Listing is the first entries that a [Query] matches, in the order of
// their paths.
type Listing struct {
	Entries   []Entry
	Truncated bool   // there may be more: beyond the limit, MaxListBytes or the budget of one call
	Next      string // if truncated, the After of the query that goes on
}

// List answers q. It looks at ctx between entries, and ends with its cause.
func (t Txn) List(ctx context.Context, q Query) (Listing, error) {
	if q.Limit < 0 || q.Limit > MaxList {
		return Listing{}, &registry.ArgumentError{Argument: "limit", Problem: fmt.Sprintf("must be from 1 to %d", MaxList)}
	}
	q.Limit = cmp.Or(q.Limit, DefaultList)
	l := &lister{Query: q, ctx: ctx}
	prefix := q.Glob.prefix()
	if t.listLeases(l, prefix) {
		t.listEntries(l, prefix)
	}
	if l.err != nil {
		return Listing{}, l.err
	}
	return l.Listing, nil
}

// A lister is a Listing that is being made.
type lister struct {
	Query
	Listing
	ctx   context.Context
	err   error
	bytes int64
	looks int
	steps int
	last  string // the last visible path that was looked at
}

// wants reports whether a visible path is to be listed. more is false once the
// listing has used its budget, or its caller is gone.
func (l *lister) wants(p Path) (wanted, more bool) {
	if l.looks%listPause == 0 {
		if l.err = context.Cause(l.ctx); l.err != nil {
			return false, false
		}
		runtime.Gosched() // nobody waits for a processor behind a long listing
	}
	if l.looks == maxListLooks || l.steps > maxListSteps {
		l.truncate()
		return false, false
	}
	l.looks++
	wanted, steps := l.Glob.match(p)
	l.steps += steps
	if !wanted {
		l.last = p.s
	}
	return wanted, true
}

// add takes an entry that is wanted, and reports whether there is room for
// another look.
func (l *lister) add(e Entry) bool {
	if !l.Values {
		e.Value = nil
	}
	l.bytes += int64(len(e.Path.s) + len(e.Value))
	if len(l.Entries) == l.Limit || len(l.Entries) > 0 && l.bytes > MaxListBytes {
		l.truncate()
		return false
	}
	l.Entries = append(l.Entries, e)
	l.last = e.Path.s
	return true
}

func (l *lister) truncate() { l.Truncated, l.Next = true, l.last }

func (t Txn) listEntries(l *lister, prefix string) {
	s := t.store
	from := s.keys + l.After + "\x00"
	for {
		hidden := ""
		for row := range t.tx.ScanFrom(s.keys+prefix, from) {
			p := Path{strings.TrimPrefix(row.Key, s.keys)}
			if l.Visible != nil && !l.Visible(p) {
				hidden = p.space()
				break
			}
			wanted, more := l.wants(p)
			if !more {
				return
			}
			if wanted && !l.add(t.entry(row, l.Values)) {
				return
			}
		}
		if hidden == "" {
			return
		}
		from = s.keys + hidden + "0" // which follows the slash: past all that is below
	}
}

// listLeases comes first: /leases/ sorts before the other three.
func (t Txn) listLeases(l *lister, prefix string) (more bool) {
	const root = "/" + Leases + "/"
	below := ""
	switch {
	case strings.HasPrefix(prefix, root):
		below = strings.TrimPrefix(prefix, root)
	case !strings.HasPrefix(root, prefix):
		return true
	}
	if l.Visible != nil && !l.Visible(Path{root}) || l.After >= root+"\xff" {
		return true
	}
	after, last := "", ""
	if l.After != "" {
		after = registry.BehindKey(strings.TrimPrefix(l.After, root))
	}
	for lease := range t.store.leases.Leases(t.tx, below, after) {
		if lease.Key == last {
			continue // several share it
		}
		last = lease.Key
		p := Path{root + lease.Key}
		wanted, more := l.wants(p)
		if !more {
			return false
		}
		if !wanted {
			continue
		}
		if e := leaseEntry(t.store.leases, t.tx, p); e != nil && !l.add(*e) { // nil: only reserved
			return false
		}
	}
	return l.err == nil
}

package kvstore

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"strings"

	"github.com/leasehold/leasehold/registry"
)

// Limits of a listing.
const (
	DefaultList  = 100      // entries
	MaxList      = 1000     // entries
	MaxListBytes = 24 << 10 // of entries as they are told; one may be larger; Gemini CLI cuts answers of over 40 kB

	// entryBytes is what an entry has beside its path, value and author: the
	// names of its members, its version and its time.
	entryBytes = 90

	// A listing ends after it has examined this many entries or made this many
	// matching steps. The next listing continues from there.
	maxListLooks = 20_000
	maxListSteps = 20_000_000

	// listPause is the number of entries between two checks whether the caller
	// is still there.
	listPause = 256
)

// A Query asks for the entries that match a glob.
type Query struct {
	Glob   Glob
	After  string // only paths greater than this; "": all
	Limit  int    // 1 to MaxList; zero: DefaultList
	Values bool   // whether to return values

	// Visible hides the paths for which it is false: they are neither listed
	// nor counted, and do not make a listing truncated. It must return the same
	// for all paths below one peer. Nil: all are visible.
	Visible func(Path) bool
}

// A Listing has the first entries that match a [Query], ordered by path.
type Listing struct {
	Entries   []Entry
	Truncated bool   // there may be more: the limit, MaxListBytes or the budget was reached
	Next      string // if truncated, After for the next query
}

// List answers q. It checks ctx between entries and returns its cause if it has
// ended.
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

// A lister builds a Listing.
type lister struct {
	Query
	Listing
	ctx   context.Context
	err   error
	bytes int64
	looks int
	steps int
	last  string // the last visible path that was examined
}

// wants reports whether a visible path matches. more is false if the budget of
// the listing is used up or its caller is gone.
func (l *lister) wants(p Path) (wanted, more bool) {
	if l.looks%listPause == 0 {
		if l.err = context.Cause(l.ctx); l.err != nil {
			return false, false
		}
		runtime.Gosched() // lets other goroutines run during a long listing
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

// add adds a matching entry. It returns false if the listing is full.
func (l *lister) add(e Entry) bool {
	if !l.Values {
		e.Value = nil
	}
	l.bytes += int64(entryBytes + len(e.Path.s) + len(e.Value) + len(e.UpdatedBy))
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
		from = s.keys + hidden + "0" // '0' follows '/', so this skips everything below
	}
}

// listLeases lists leases. They come first because /leases/ sorts before the
// other roots.
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
			continue // a shared lease has several rows
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
		if e := leaseEntry(t.store.leases, t.tx, p); e != nil && !l.add(*e) {
			return false
		}
	}
	return l.err == nil
}

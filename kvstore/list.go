package kvstore

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/registry"
)

// Bounds of a listing.
const (
	DefaultList  = 100     // entries
	MaxList      = 1000    // entries
	MaxListBytes = 1 << 20 // of paths and values; one entry may be larger
)

// A Query asks for the entries that a glob matches.
type Query struct {
	Glob   Glob
	Limit  int  // 1 to MaxList; zero: DefaultList
	Values bool // whether values are wanted

	// Visible hides the paths it is false for: they are not listed, not
	// counted, and not what a listing is truncated for. Nil: all are seen.
	Visible func(Path) bool
}

// A Listing is the first entries that a [Query] matches, in the order of
// their paths.
type Listing struct {
	Entries   []Entry
	Truncated bool // there are more than the limit, or than fit MaxListBytes
}

// List answers q.
func (t Txn) List(q Query) (Listing, error) {
	if q.Limit < 0 || q.Limit > MaxList {
		return Listing{}, &registry.ArgumentError{Argument: "limit", Problem: fmt.Sprintf("must be from 1 to %d", MaxList)}
	}
	q.Limit = cmp.Or(q.Limit, DefaultList)
	l := &lister{Query: q}
	prefix := q.Glob.prefix()
	if t.listLeases(l, prefix) {
		t.store.list(t.tx, l, prefix)
	}
	return l.Listing, nil
}

// A lister is a Listing on its way.
type lister struct {
	Query
	Listing
	bytes int64
}

func (l *lister) wants(p Path) bool {
	return l.Glob.Match(p) && (l.Visible == nil || l.Visible(p))
}

// add takes an entry that is wanted, and reports whether there is room for
// another look.
func (l *lister) add(e Entry) bool {
	if !l.Values {
		e.Value = nil
	}
	l.bytes += e.size()
	if len(l.Entries) == l.Limit || len(l.Entries) > 0 && l.bytes > MaxListBytes {
		l.Truncated = true
		return false
	}
	l.Entries = append(l.Entries, e)
	return true
}

func (s *Store) list(tx engine.Tx, l *lister, prefix string) {
	for row := range tx.Scan(s.keys + prefix) {
		if !l.wants(Path{strings.TrimPrefix(row.Key, s.keys)}) {
			continue
		}
		if !l.add(s.mustEntry(row, l.Values)) {
			return
		}
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
	for _, standing := range t.store.leases.List(t.tx, below) {
		p := Path{root + standing.Key}
		if l.wants(p) && !l.add(standingEntry(p, standing, t.tx.Now())) {
			return false
		}
	}
	return true
}

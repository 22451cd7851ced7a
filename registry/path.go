package registry

import (
	"iter"
	"path"
	"strings"

	"golang.org/x/text/unicode/norm"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/registry/filekey"
)

// checkPath reports what is wrong with a key that starts with filekey.Prefix.
func checkPath(key string) error {
	canonical, all, ok := filekey.Split(key)
	if !ok {
		return nil
	}
	clean := path.Clean(norm.NFC.String(canonical))
	if filekey.Of(clean, all) != key || canonical == "" || strings.HasPrefix(clean+"/", "../") || strings.Contains(clean, "*") {
		return &ArgumentError{"key", "must be canonical if it starts with file: (file:src/app.ts, file:src/**); the argument path takes any spelling"}
	}
	return nil
}

// near yields the rows of leases, places or lines whose keys overlap with key:
// first its own rows, then those of the directories above it with one look-up
// each, then those below it. The rows of one key are in row order.
func near(tx Tx, prefix, scope, key string) iter.Seq[engine.Row] {
	own := prefix + scope + "\x00" + key
	scope = strings.TrimSuffix(own, key)
	return func(yield func(engine.Row) bool) {
		if !rowsOn(tx, own, yield) || !filekey.Is(key) {
			return
		}
		dir, all, _ := filekey.Split(key)
		for at, last := dir, false; !last; at = path.Dir(at) {
			last = at == "." || at == "/"
			if over := filekey.Of(at, true); over != key && !rowsOn(tx, scope+over, yield) {
				return
			}
		}
		if !all {
			return
		}
		below := scope + filekey.Prefix // below the project is everything but absolute paths
		if dir != "." {
			below += strings.TrimSuffix(dir, "/") + "/"
			if dir != "/" && !rowsOn(tx, scope+filekey.Prefix+dir, yield) {
				return
			}
		}
		for row, ok := tx.First(below, below); ok; row, ok = next(tx, below, row) {
			if dir == "." && row.Key[len(below)] == '/' {
				if row, ok = tx.First(below, below+"0"); !ok {
					return
				}
			}
			if !onKey(row.Key, own) && !yield(row) {
				return
			}
		}
	}
}

// Overlapping returns a held lease on another key that overlaps with key, if there is
// one: whoever asks about a file must learn that somebody holds its directory.
func (r *Registry) Overlapping(tx Tx, key string) (l Lease, ok bool) {
	return overlapping(tx, r.scope, key)
}

func overlapping(tx Tx, scope, key string) (l Lease, ok bool) {
	left := MaxBelow
	for row := range near(tx, leasePrefix, scope, key) {
		if l = (Lease{}); l.read(row) && l.held() && l.Key != key {
			return l, true
		}
		if left--; left < 0 {
			break
		}
	}
	return Lease{}, false
}

// rowsOn yields the rows on one key.
func rowsOn(tx Tx, key string, yield func(engine.Row) bool) bool {
	row, ok := tx.First(key, key)
	for ok && onKey(row.Key, key) {
		if !yield(row) {
			return false
		}
		row, ok = next(tx, key, row)
	}
	return true
}

// next returns the row with a prefix that follows another row. Loops over the
// few rows of a key call it because the body of a loop over an iterator of tx
// would be allocated on the heap.
func next(tx Tx, prefix string, row engine.Row) (engine.Row, bool) {
	return tx.First(prefix, row.Key+"\x00")
}

// onKey reports whether a row belongs to exactly this key, and not to a longer
// one.
func onKey(row, key string) bool {
	return strings.HasPrefix(row, key) && (len(row) == len(key) || row[len(key)] == 0)
}

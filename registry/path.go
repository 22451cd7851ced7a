package registry

import (
	"iter"
	"path"
	"strings"

	"golang.org/x/text/unicode/norm"

	"github.com/leasehold/leasehold/engine"
)

// PathPrefix begins the keys of files and directories: file:src/app.ts,
// file:/etc/hosts, and file:. for the top of the project. A key that ends in /**
// covers a directory and everything below it: file:src/**, and file:** for the
// project.
const PathPrefix = "file:"

const tree = "/**"

// PathKey returns the key of a canonical path; with all, of the path and
// everything below it.
func PathKey(canonical string, all bool) string {
	switch {
	case !all:
		return PathPrefix + canonical
	case canonical == ".":
		return PathPrefix + strings.TrimPrefix(tree, "/")
	default:
		return PathPrefix + strings.TrimSuffix(canonical, "/") + tree
	}
}

// splitPath is the inverse of PathKey.
func splitPath(key string) (canonical string, all, ok bool) {
	canonical, ok = strings.CutPrefix(key, PathPrefix)
	switch canonical {
	case "**":
		return ".", true, true
	case tree:
		return "/", true, true
	}
	canonical, all = strings.CutSuffix(canonical, tree)
	return canonical, all, ok
}

// checkPath reports what is wrong with a key that starts with PathPrefix.
func checkPath(key string) error {
	canonical, all, ok := splitPath(key)
	if !ok {
		return nil
	}
	clean := path.Clean(norm.NFC.String(canonical))
	if PathKey(clean, all) != key || canonical == "" || strings.HasPrefix(clean+"/", "../") || strings.Contains(clean, "*") {
		return &ArgumentError{"key", "must be canonical if it starts with file: (file:src/app.ts, file:src/**); the argument path takes any spelling"}
	}
	return nil
}

func isPath(key string) bool { return strings.HasPrefix(key, PathPrefix) }

// Covers reports whether the holder of key also has other: they are the same,
// or other is below key, as src/app.ts is below src/**. Two keys overlap if one
// of them covers the other.
func Covers(key, other string) bool {
	if key == other {
		return true
	}
	dir, all, ok := splitPath(key)
	name, _, below := splitPath(other)
	switch {
	case !ok || !all || !below:
		return false
	case dir == "." || dir == "/":
		return path.IsAbs(name) == (dir == "/")
	default:
		return name == dir || strings.HasPrefix(name, dir+"/")
	}
}

// near yields the rows of leases, or of places, whose keys overlap with key:
// first its own rows, then those of the directories above it with one look-up
// each, then those below it. The rows of one key are in row order.
func near(tx Tx, prefix, scope, key string) iter.Seq[engine.Row] {
	own := prefix + scope + "\x00" + key
	scope = strings.TrimSuffix(own, key)
	return func(yield func(engine.Row) bool) {
		if !rowsOn(tx, own, yield) || !isPath(key) {
			return
		}
		dir, all, _ := splitPath(key)
		for at, last := dir, false; !last; at = path.Dir(at) {
			last = at == "." || at == "/"
			if over := PathKey(at, true); over != key && !rowsOn(tx, scope+over, yield) {
				return
			}
		}
		switch {
		case !all:
		case dir == ".": // everything but absolute paths
			within := scope + PathPrefix
			for row, ok := tx.First(within, within); ok && row.Key[len(within)] != '/'; row, ok = next(tx, within, row) {
				if !onKey(row.Key[len(within):], "**") && !yield(row) {
					return
				}
			}
			for row, ok := tx.First(within, within+"0"); ok; row, ok = next(tx, within, row) {
				if !yield(row) {
					return
				}
			}
		default:
			below := scope + PathPrefix + strings.TrimSuffix(dir, "/") + "/"
			if dir != "/" && !rowsOn(tx, scope+PathPrefix+dir, yield) {
				return
			}
			for row, ok := tx.First(below, below); ok; row, ok = next(tx, below, row) {
				if !onKey(row.Key[len(scope):], key) && !yield(row) {
					return
				}
			}
		}
	}
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

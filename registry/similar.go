package registry

import (
	"slices"
	"strings"

	"github.com/google/uuid"
	"golang.org/x/text/unicode/norm"

	"github.com/leasehold/leasehold/engine"
)

// MaxSimilar is how many keys a grant names that are like its own.
const MaxSimilar = 5

// spelling is what keys have in common that differ only in how they are written: in case,
// in Unicode's form, in spaces, _ and -, in \ and /, in ./ or file: before a path, or a /
// behind it.
func spelling(key string) string {
	s := strings.TrimPrefix(strings.TrimPrefix(key, PathPrefix), "./")
	if cut := strings.TrimRight(s, "/"); cut != "" {
		s = cut
	}
	odd := func(c rune) bool { return c == '_' || c == ' ' || c == '\\' || c >= 'A' && c <= 'Z' || c >= 0x80 }
	if !strings.ContainsFunc(s, odd) {
		return s
	}
	s = strings.ToLower(norm.NFC.String(strings.NewReplacer("_", "-", " ", "-", `\`, "/").Replace(s)))
	if len(s) > MaxKey {
		return key
	}
	return s
}

// alikeKey is the key of the row by which a key is found from its spelling. One that is
// spelt so itself, or is the path of that, is found without.
func alikeKey(scope, key string) (row string, ok bool) {
	s := spelling(key)
	if s == strings.TrimPrefix(key, PathPrefix) {
		return "", false
	}
	return alikeKeys(scope, s) + key, true
}

// noteAlike lets a key that is held be found from its spelling.
func noteAlike(tx Tx, scope, key string) {
	if row, ok := alikeKey(scope, key); ok {
		tx.Touch(engine.Row{Key: row})
	}
}

// forgetAlike is to be called when a lease on a key is gone.
func forgetAlike(tx Tx, scope, key string) {
	alike, ok := alikeKey(scope, key)
	if !ok {
		return
	}
	for row := range holders(tx, scope, key) {
		if l := (Lease{}); l.read(row) && l.ID != uuid.Nil {
			return
		}
	}
	tx.Delete(alike)
}

// similar gives the first of the keys that are held in a scope and differ from another one
// only in their spelling. It costs a few look-ups, however much is held.
func similar(tx Tx, scope, key string) (list []string) {
	add := func(other string) {
		if other == key || len(list) == MaxSimilar {
			return
		}
		if _, held := getLease(tx, scope, other); held {
			list = append(list, other)
		}
	}
	s := spelling(key)
	add(s)
	add(PathPrefix + s)
	rows := alikeKeys(scope, s)
	seen := 0
	for row, ok := tx.First(rows, rows); ok; row, ok = next(tx, rows, row) {
		if seen++; seen > 4*MaxSimilar { // those that have lapsed are there, too
			break
		}
		add(row.Key[len(rows):])
	}
	slices.Sort(list)
	return list
}

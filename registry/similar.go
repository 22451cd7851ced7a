package registry

import (
	"slices"
	"strings"

	"github.com/google/uuid"
	"golang.org/x/text/unicode/norm"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/registry/filekey"
)

// MaxSimilar is how many keys with a similar spelling a grant names.
const MaxSimilar = 5

// spelling returns a form that is the same for keys that differ only in how
// they are written: in case, in Unicode form, in spaces, _ and -, in \ and /,
// in ./ or file: before a path, or in a / after it.
func spelling(key string) string {
	s := strings.TrimPrefix(strings.TrimPrefix(key, filekey.Prefix), "./")
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

// alikeKey returns the key of the row by which a key is found from its
// spelling. A key that equals its spelling, apart from filekey.Prefix, needs no
// such row.
func alikeKey(scope, key string) (row string, ok bool) {
	s := spelling(key)
	if s == strings.TrimPrefix(key, filekey.Prefix) {
		return "", false
	}
	return alikeKeys(scope, s) + key, true
}

// noteAlike makes a held key findable by its spelling.
func noteAlike(tx Tx, scope, key string) {
	if row, ok := alikeKey(scope, key); ok {
		tx.Touch(engine.Row{Key: row})
	}
}

// forgetAlike must be called after a lease on a key was removed.
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

// similar returns the first held keys of a scope that differ from another key
// only in spelling. It costs a few look-ups, however many leases are held.
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
	add(filekey.Prefix + s)
	rows := alikeKeys(scope, s)
	seen := 0
	for row, ok := tx.First(rows, rows); ok; row, ok = next(tx, rows, row) {
		if seen++; seen > 4*MaxSimilar { // lapsed ones are among them
			break
		}
		add(row.Key[len(rows):])
	}
	slices.Sort(list)
	return list
}

package registry

import (
	"strings"

	"github.com/leasehold/leasehold/engine"
)

// The prefixes of the rows of leases and places. An [engine.Observer] can count
// both as they change.
const (
	LeasePrefix = leasePrefix
	PlacePrefix = waitPrefix
)

// ScopeOf returns the scope of the row of a lease or a place.
func ScopeOf(row engine.Row) string {
	_, rest, _ := strings.Cut(row.Key, "/")
	scope, _, _ := strings.Cut(rest, "\x00")
	return scope
}

// Held reports whether the row is of a lease that somebody holds. That is false
// for a lapsed lease and the zero Row.
func Held(row engine.Row) bool {
	var l Lease
	return l.read(row) && l.held()
}

package registry

import (
	"strings"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/record"
)

// The prefixes of the rows that tell, as they change, how many leases are held and how
// many places there are in lines, for an [engine.Observer].
const (
	LeasePrefix = leasePrefix
	PlacePrefix = waitPrefix
)

// ScopeOf is the scope of the row of a lease or of a place.
func ScopeOf(row engine.Row) string {
	_, rest, _ := strings.Cut(row.Key, "/")
	scope, _, _ := strings.Cut(rest, "\x00")
	return scope
}

// Held reports whether the row is of a lease that somebody holds: not of one that has
// lapsed, nor of a reservation. The zero Row is of none.
func Held(row engine.Row) bool {
	if len(row.Value) < 2 || row.Value[0] != leaseFormat {
		return false
	}
	var lapsed, reserved, no bool
	r := record.Read(row.Value[1:])
	r.Flags(&no, &no, &no, &no, &lapsed, &no, &reserved, &no)
	return !lapsed && !reserved
}

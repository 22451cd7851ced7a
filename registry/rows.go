package registry

import (
	"iter"
	"strings"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/record"
)

// The prefixes of the key schema in the package doc.
const (
	leasePrefix = "lease/"
	idPrefix    = "leaseid/"
	waitPrefix  = "wait/"
	placePrefix = "place/"
	lostPrefix  = "lost/"
	countPrefix = "count/"
)

func leaseKey(scope, key string) string  { return leasePrefix + scope + "\x00" + key }
func shareKeys(scope, key string) string { return leaseKey(scope, key) + "\x00" }
func idKey(id uuid.UUID) string          { return idPrefix + string(id[:]) }
func waitKeys(scope, key string) string  { return waitPrefix + scope + "\x00" + key + "\x00" }
func lostKeys(actor uuid.UUID) string    { return lostPrefix + string(actor[:]) }
func lostKey(actor, id uuid.UUID) string { return lostKeys(actor) + string(id[:]) }

// What else there is to tell of a lease is beside its loss.
func wantedKey(actor, id uuid.UUID) string { return lostKey(actor, id) + "w" }
func offerKey(actor, id uuid.UUID) string  { return lostKey(actor, id) + "o" }

func placeKey(h Holder, scope, key string) string {
	return placePrefix + string(h.Session[:]) + h.Party + "\x00" + scope + "\x00" + key
}

// The keys of the counts.
func scopeCount(scope string) string    { return countPrefix + "scope/" + scope }
func actorCount(actor uuid.UUID) string { return countPrefix + "held/" + string(actor[:]) }
func waitsCount(actor uuid.UUID) string { return countPrefix + "waits/" + string(actor[:]) }

// lostActor is whose loss a row is.
func lostActor(key string) uuid.UUID { return uuid.UUID([]byte(key[len(lostPrefix):][:16])) }

// read reads the row of a lease, part of which is in the row's key.
func (l *Lease) read(row engine.Row) (ok bool) {
	if !l.decode(row.Value, row.Due) {
		return false
	}
	l.Scope, l.Key, ok = strings.Cut(strings.TrimPrefix(row.Key, leasePrefix), "\x00")
	l.Key, _, l.Shared = strings.Cut(l.Key, "\x00")
	l.Holder.Session, l.row, l.due = row.Owner, row.Key, row.Due
	return ok
}

// rowOf is the key of the row of a lease or of a reservation. Shared ones are told
// apart by a number that only they have: their first token, or that of the place.
func rowOf(scope, key string, shared bool, n uint64) string {
	if !shared {
		return leaseKey(scope, key)
	}
	return shareKeys(scope, key) + record.Fixed(n)
}

// holders yields the rows of the leases on a key, also of those that have lapsed and
// of reservations: the one that is not shared, then the shared ones.
func holders(tx Tx, scope, key string) iter.Seq[engine.Row] {
	own := leaseKey(scope, key)
	return func(yield func(engine.Row) bool) {
		for row := range tx.Scan(own) {
			if len(row.Key) > len(own) && row.Key[len(own)] != 0 || !yield(row) {
				return // a longer key
			}
		}
	}
}

// getLease gives the lease on a key that somebody holds, the first of several.
func getLease(tx Tx, scope, key string) (l Lease, ok bool) {
	if row, ok := tx.Get(leaseKey(scope, key)); ok && l.read(row) && !l.lapsed && !l.Reserved {
		return l, true
	}
	for row := range tx.Scan(shareKeys(scope, key)) {
		if l = (Lease{}); l.read(row) && !l.lapsed && !l.Reserved {
			return l, true
		}
	}
	return Lease{}, false
}

// leaseByID finds a lease by its secret.
func leaseByID(tx Tx, id uuid.UUID) (l Lease, ok bool) {
	ref, ok := tx.Get(idKey(id))
	if !ok {
		return Lease{}, false
	}
	row, ok := tx.Get(ref.Value)
	return l, ok && l.read(row)
}

// count reads a count. Counts are kept in memory, and Recover counts again.
func count(tx Tx, key string) uint64 {
	row, ok := tx.Get(key)
	if !ok {
		return 0
	}
	return record.ReadFixed(row.Value)
}

// below refuses one more of what key counts if there are as many as may be.
func below(tx Tx, key, which string, most int) error {
	if count(tx, key) >= uint64(most) {
		return &LimitError{which, int64(most)}
	}
	return nil
}

func addCount(tx Tx, key string, n int) {
	if n += int(count(tx, key)); n <= 0 {
		tx.Delete(key)
		return
	}
	tx.Touch(engine.Row{Key: key, Value: record.Fixed(uint64(n))})
}

// addCounts counts a lease for the bounds.
func addCounts(tx Tx, l *Lease, n int) {
	addCount(tx, scopeCount(l.Scope), n)
	addCount(tx, actorCount(l.Holder.Actor), n)
}

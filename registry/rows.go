package registry

import (
	"iter"
	"strings"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/record"
)

// The prefixes of the rows; the package doc describes them.
const (
	leasePrefix = "lease/"
	idPrefix    = "leaseid/"
	waitPrefix  = "wait/"
	placePrefix = "place/"
	lostPrefix  = "lost/"
	countPrefix = "count/"

	untoldPrefix = countPrefix + "untold/"
	linePrefix   = countPrefix + "line/"
	alikePrefix  = "alike/"
	offerPrefix  = "offered/"
)

func leaseKey(scope, key string) string { return leasePrefix + scope + "\x00" + key }
func idKey(id uuid.UUID) string         { return idPrefix + string(id[:]) }
func waitKeys(scope, key string) string { return waitPrefix + scope + "\x00" + key + "\x00" }
func alikeKeys(scope, spelling string) string {
	return alikePrefix + scope + "\x00" + spelling + "\x00"
}
func lostKeys(actor uuid.UUID) string    { return lostPrefix + string(actor[:]) }
func lostKey(actor, id uuid.UUID) string { return lostKeys(actor) + string(id[:]) }

// Other notices about a lease are beside the row of its loss.
func wantedKey(actor, id uuid.UUID) string { return lostKey(actor, id) + "w" }
func offerKey(actor, id uuid.UUID) string  { return lostKey(actor, id) + "o" }

// placesKey returns the prefix of the keys of a party's places, or of an
// actor's if the holder has no session.
func placesKey(h Holder) string {
	if h.Session == uuid.Nil {
		return placePrefix + string(h.Actor[:])
	}
	return placePrefix + string(h.Actor[:]) + string(h.Session[:]) + h.Party + "\x00"
}

// placesOfSeveral returns the prefix of the keys of a party's places for several keys.
func placesOfSeveral(h Holder) string { return placesKey(h) + "\x00" }

// placeKey returns the key by which a party's place is found. It has the ticket
// if there are several keys, which together could be too long.
func placeKey(h Holder, wants []Want) string {
	if len(wants) > 1 {
		id := ticketOf(h, wants)
		return placesOfSeveral(h) + string(id[:])
	}
	return placePrefix + string(h.Actor[:]) + string(h.Session[:]) + h.Party + "\x00" + wants[0].Scope + "\x00" + wants[0].Key
}

// The keys of the counts.
func scopeCount(scope string) string     { return countPrefix + "scope/" + scope }
func actorCount(actor uuid.UUID) string  { return countPrefix + "held/" + string(actor[:]) }
func layerCount(actor uuid.UUID) string  { return countPrefix + "layer/" + string(actor[:]) }
func claimCount(actor uuid.UUID) string  { return countPrefix + "claims/" + string(actor[:]) }
func waitsCount(actor uuid.UUID) string  { return countPrefix + "waits/" + string(actor[:]) }
func lineCount(scope, key string) string { return linePrefix + scope + "\x00" + key }

// untoldKey is the key of a row that says that a notice has not been told. Told
// notices are kept for an hour, so there may be many more of those.
func untoldKey(notice string) string { return untoldPrefix + notice[len(lostPrefix):] }

// lostActor returns the actor of a row of a notice.
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

// rowOf returns the key of the row of a lease. If it is shared, its first token
// makes the key unique.
func rowOf(want Want, token uint64) string {
	if !want.Shared {
		return leaseKey(want.Scope, want.Key)
	}
	return leaseKey(want.Scope, want.Key) + "\x00" + record.Fixed(token)
}

// holders yields the rows of the leases on a key, including lapsed ones: first
// the exclusive one, then the shared ones.
func holders(tx Tx, scope, key string) iter.Seq[engine.Row] {
	return func(yield func(engine.Row) bool) { rowsOn(tx, leaseKey(scope, key), yield) }
}

// getLease returns the held lease on a key, or the first if several share it.
func getLease(tx Tx, scope, key string) (l Lease, ok bool) {
	for row := range holders(tx, scope, key) {
		if l = (Lease{}); l.read(row) && l.held() {
			return l, true
		}
	}
	return Lease{}, false
}

func leaseByID(tx Tx, id uuid.UUID) (l Lease, ok bool) {
	ref, ok := tx.Get(idKey(id))
	if !ok {
		return Lease{}, false
	}
	row, ok := tx.Get(ref.Value)
	return l, ok && l.read(row)
}

// count reads a count. Counts are kept in memory, and Recover rebuilds them.
func count(tx Tx, key string) uint64 {
	row, ok := tx.Get(key)
	if !ok {
		return 0
	}
	return record.ReadFixed(row.Value)
}

// below refuses so many more of what key counts if they would exceed the limit.
func below(tx Tx, key, which string, more, most int) error {
	if count(tx, key)+uint64(more) > uint64(most) {
		return &LimitError{Which: which, Max: int64(most)}
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

// addCounts adds n to the counts that a lease belongs to.
func addCounts(tx Tx, l *Lease, n int) {
	for _, key := range l.counts() {
		addCount(tx, key, n)
	}
}

// counts returns the keys of the counts that a lease belongs to.
func (l *Lease) counts() []string {
	switch {
	case !l.held():
		return nil
	case l.ID == uuid.Nil:
		return []string{claimCount(l.Holder.Actor)}
	case strings.HasPrefix(l.Scope, runScope):
		return []string{scopeCount(l.Scope), actorCount(l.Holder.Actor)}
	default:
		return []string{scopeCount(l.Scope), actorCount(l.Holder.Actor), layerCount(l.Holder.Actor)}
	}
}

// runScope begins the scope of what a whole run contends for.
const runScope = "run:"

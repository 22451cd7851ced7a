package registry

import "math"

// lastInLine is a number behind all places.
const lastInLine = math.MaxUint64

// maxWarned is how many of those who share a key are looked at, and told: the first.
const maxWarned = 100

// warn lets those who keep a place from being served be told that somebody waits:
// each once for its lease, in its next answer. A restart forgets who was told.
func (c *Core) warn(tx Tx, w *waiter) {
	seen := 0
	for row := range holders(tx, w.Scope, w.Key) {
		if seen++; seen > maxWarned {
			return
		}
		var l Lease
		if !l.read(row) || l.awaited || l.lapsed || l.Reserved || l.Shared && w.shared || l.Holder.same(w.Holder) {
			continue
		}
		n := Notice{
			Kind: Wanted, Scope: l.Scope, Key: l.Key, LeaseID: l.ID, Token: l.Token,
			Session: l.Holder.Session, Party: l.Holder.Party, at: tx.Now(), place: w.rowKey(),
		}
		if l.awaited = n.raise(tx, l.Holder.Actor, tx.Touch); l.awaited {
			l.touch(tx)
		}
	}
}

// waiter is who is told to wait: the one who did when the notice was written, or
// else the first in line now.
func (n *Notice) waiter(tx Tx) (w waiter, ok bool) {
	if row, ok := tx.Get(n.place); ok && w.read(row) {
		return w, true
	}
	for w := range waiters(tx, n.Scope, n.Key) {
		return w, true
	}
	return waiter{}, false
}

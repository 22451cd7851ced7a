package registry

// maxWarned is how many leases one call of warn looks at.
const maxWarned = 100

// warn writes a notice to those who keep a place waiting. Each is told once for
// its lease, in its next answer. A restart forgets who was told.
func (c *Core) warn(tx Tx, w *waiter) {
	seen := 0
	for _, want := range w.wants {
		for row := range near(tx, leasePrefix, want.Scope, want.Key) {
			if seen++; seen > maxWarned {
				return
			}
			var l Lease
			if !l.read(row) || l.awaited || !l.keepsOut(w.Holder, want) || l.gives(w.Holder, want, tx.Now()) {
				continue
			}
			n := Notice{
				Kind: Wanted, Scope: l.Scope, Key: l.Key, LeaseID: l.ID, Token: l.Token,
				Session: l.Holder.Session, Party: l.Holder.Party, at: tx.Now(), place: w.rowKey(want),
			}
			if l.awaited = n.raise(tx, l.Holder.Actor, tx.Touch); l.awaited {
				l.touch(tx)
			}
		}
	}
}

// waiter returns the place that the notice names: the one that was waiting when
// the notice was written or, if that is gone, the first in line now.
func (n *Notice) waiter(tx Tx) (w waiter, ok bool) {
	if row, ok := tx.Get(n.place); ok && w.read(row) {
		return w, true
	}
	l, ok := leaseByID(tx, n.LeaseID)
	if !ok {
		return waiter{}, false
	}
	for w := range waiters(tx, n.Scope, n.Key) {
		if l.keepsOut(w.Holder, w.line()) {
			return w, true
		}
	}
	return waiter{}, false
}

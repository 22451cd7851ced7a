package registry

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/event"
)

// Recover readies the leases of a state just opened, before anything else runs.
// Each gets its full ttl from now on; a long one gets what its stored deadline
// leaves, or once, if that is less, five minutes. Every place in a line is parked:
// its call ended with the daemon. A record that cannot be read is an
// [engine.ErrCorrupt].
func (c *Core) Recover(ctx context.Context) error {
	err := c.eng.Update(ctx, func(tx engine.Tx) error {
		for row := range tx.Scan(countPrefix) { // Recover may run again
			tx.Delete(row.Key)
		}
		highest := uint64(0) // token
		for row := range tx.Scan(leasePrefix) {
			var l Lease
			if !l.read(row) {
				return corrupt(row.Key)
			}
			highest = max(highest, l.Token)
			if l.ID != uuid.Nil {
				tx.Touch(engine.Row{Key: idKey(l.ID), Value: l.row})
				noteAlike(tx, l.Scope, l.Key)
			}
			if l.counted() {
				addCounts(tx, &l, 1)
			}
			l.recovered(tx)
		}
		for row := range tx.Scan(lostPrefix) {
			var l Notice
			if len(row.Key) < len(lostPrefix)+32 || !l.read(row) {
				return corrupt(row.Key)
			}
			highest = max(highest, l.Token)
			if !l.told {
				n := newsOf(tx, lostActor(row.Key))
				n.untold++
				n.put(tx, lostActor(row.Key))
			}
		}
		return event.Recover(tx, highest)
	})
	// All are parked before any is served: a key may be wanted in several lines.
	for _, step := range []func(Tx, waiter){c.recoverPlace, c.recoverTurn} {
		for after, more := waitPrefix, true; more && err == nil; {
			err = c.eng.Update(ctx, func(tx engine.Tx) (err error) {
				after, more, err = recoverLines(tx, after, step)
				return err
			})
		}
	}
	return err
}

// recoverStep is how many places one transaction of Recover parks: it writes each.
const recoverStep = 1024

// recovered writes the lease as a restart leaves it.
func (l *Lease) recovered(tx Tx) {
	l.awaited = false
	full, grace := tx.Now().Add(l.TTL), tx.Now().Add(longTTL)
	switch {
	case l.lapsed:
		return
	case !l.long():
		l.Deadline = full
	case l.graced: // a second restart does not prolong it again
		l.Deadline = l.stored
	case l.stored.Add(lag).Before(grace):
		l.Deadline, l.graced = grace, true
		l.put(tx)
		return
	default:
		l.Deadline = l.stored.Add(lag)
		if full.Before(l.Deadline) {
			l.Deadline = full
		}
	}
	l.touch(tx)
}

// recoverLines goes through the rows of those who wait, from behind one on, as many as
// one transaction does, and says where to go on.
func recoverLines(tx Tx, after string, step func(Tx, waiter)) (last string, more bool, err error) {
	n := 0
	for row := range tx.ScanFrom(waitPrefix, after) {
		if n == recoverStep {
			return last, true, nil
		}
		n, last = n+1, row.Key+"\x00"
		var w waiter
		if !w.read(row) {
			return "", false, corrupt(row.Key)
		}
		step(tx, w)
	}
	return last, false, nil
}

// recoverPlace parks a place.
func (c *Core) recoverPlace(tx Tx, w waiter) {
	addCount(tx, waitsCount(w.Holder.Actor), 1)
	if w.spent = false; w.first() {
		w.park(tx)
	}
}

// recoverTurn reserves a key that is free for the first in its line. A lapsed lease
// ends then: it lapsed because nobody wanted its key, and a place that had used up its
// reservation wants it again.
func (c *Core) recoverTurn(tx Tx, w waiter) {
	for row := range near(tx, leasePrefix, w.Scope, w.Key) {
		var l Lease
		if l.read(row) && l.lapsed && c.wanted(tx, &l) {
			c.free(tx, l, Expired)
		}
	}
	c.handOver(tx, w.Want)
}

func corrupt(key string) error { return fmt.Errorf("%w: %q", engine.ErrCorrupt, key) }

package registry

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/event"
)

// Recover prepares the leases of a state that was just opened, in one
// transaction; it must run before anything else. Each lease gets its full ttl
// from now on. A long lease gets what its stored deadline leaves; if that is
// less than five minutes, it gets five minutes, once. Every place in a line is
// parked, since its call ended with the daemon. If a record cannot be read, the
// error is an [engine.ErrCorrupt].
func (c *Core) Recover(ctx context.Context) error {
	return c.eng.Update(ctx, func(tx engine.Tx) error {
		for _, prefix := range []string{countPrefix, placePrefix} { // Recover may run again
			for row := range tx.Scan(prefix) {
				tx.Delete(row.Key)
			}
		}
		highest := uint64(0)           // token
		counts := make(map[string]int) // written once each, and not for each lease
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
			if l.offered() {
				tx.Touch(l.offerRow())
			}
			for _, key := range l.counts() {
				counts[key]++
			}
			l.recovered(tx)
		}
		for key, n := range counts {
			addCount(tx, key, n)
		}
		for row := range tx.Scan(lostPrefix) {
			var l Notice
			if len(row.Key) < len(lostPrefix)+32 || !l.read(row) {
				return corrupt(row.Key)
			}
			highest = max(highest, l.Token)
			if !l.told {
				markUntold(tx, row.Key)
			}
		}
		if err := event.Recover(tx, highest); err != nil {
			return err
		}
		for row := range tx.Scan(waitPrefix) {
			var w waiter
			if !w.read(row) {
				return corrupt(row.Key)
			}
			w.spent, w.reservedTo = false, time.Time{}
			if w.first() {
				w.count(tx, 1)
				w.park(tx)
			}
		}
		// All places are parked before any is served, because a key may be
		// wanted in several lines. A place whose turn was spent has it again, also
		// before a lease that has lapsed meanwhile.
		for row := range tx.Scan(waitPrefix) {
			if w := (waiter{}); w.read(row) {
				c.handOver(tx, w.line())
			}
		}
		return nil
	})
}

// recovered sets the deadline that the lease has after a restart, and writes
// it.
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

func corrupt(key string) error { return fmt.Errorf("%w: %q", engine.ErrCorrupt, key) }

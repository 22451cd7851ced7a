package registry

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
)

// recoverBatch is how many leases one transaction of Recover sees to.
const recoverBatch = 4096

// Recover readies the leases of a state just opened, before anything else runs.
// Each gets its full ttl from now on; a long one gets what its stored deadline
// leaves, or once, if that is less, five minutes. Every place in a line is parked:
// its call ended with the daemon. A record that cannot be read is an
// [engine.ErrCorrupt].
func (c *Core) Recover(ctx context.Context) error {
	highest := uint64(0)
	for from := leasePrefix; from != ""; {
		err := c.eng.Update(ctx, func(tx engine.Tx) (err error) {
			from, err = c.recoverLeases(tx, from, &highest)
			return err
		})
		if err != nil {
			return err
		}
	}
	return c.eng.Update(ctx, func(tx engine.Tx) error {
		if err := recoverLosses(tx, &highest); err != nil {
			return err
		}
		if err := recoverTokens(tx, highest); err != nil {
			return err
		}
		return c.recoverLines(tx)
	})
}

// recoverLeases sees to a batch of leases, and gives the key to go on from.
func (c *Core) recoverLeases(tx Tx, from string, highest *uint64) (next string, err error) {
	if from == leasePrefix {
		for row := range tx.Scan(countPrefix) { // Recover may run again
			tx.Delete(row.Key)
		}
	}
	n := 0
	for row := range tx.ScanFrom(leasePrefix, from) {
		if n++; n > recoverBatch {
			return row.Key, nil
		}
		var l Lease
		if !l.read(row) {
			return "", corrupt(row.Key)
		}
		*highest = max(*highest, l.Token)
		if l.ID != uuid.Nil {
			tx.Touch(engine.Row{Key: idKey(l.ID), Value: l.row})
		}
		if l.counted() {
			addCounts(tx, &l, 1)
		}
		l.recovered(tx)
	}
	return "", nil
}

// recovered writes the lease as a restart leaves it.
func (l *Lease) recovered(tx Tx) {
	now := tx.Now()
	switch {
	case l.lapsed:
	case !l.long():
		l.Deadline = now.Add(l.TTL)
		l.touch(tx)
	case l.graced: // a second restart does not prolong it again
		l.Deadline = l.stored
		l.touch(tx)
	default:
		l.Deadline = earliest(l.stored.Add(lag), now.Add(l.TTL))
		if grace := now.Add(longTTL); l.Deadline.Before(grace) {
			l.Deadline, l.graced = grace, true
			l.put(tx)
		} else {
			l.touch(tx)
		}
	}
}

func recoverLosses(tx Tx, highest *uint64) error {
	for row := range tx.Scan(lostPrefix) {
		var l Lost
		if len(row.Key) < len(lostPrefix)+32 || !l.read(row) {
			return corrupt(row.Key)
		}
		*highest = max(*highest, l.Token)
		if l.told {
			continue
		}
		actor := lostActor(row.Key)
		addCount(tx, lossCount(actor), 1)
		news{actor: actor, last: l.Token}.put(tx, l.listener(actor))
	}
	return nil
}

// recoverTokens makes sure that the next token is greater than every one before.
func recoverTokens(tx Tx, highest uint64) error {
	row, ok := tx.Get(tokenKey)
	switch {
	case ok && len(row.Value) != 16, !ok && highest > 0:
		return corrupt(tokenKey)
	case !ok:
		return nil
	}
	if last, reserved := tokens(tx); last < highest || reserved < last {
		highest = max(highest, last, reserved)
		tx.Put(tokenRow(highest, highest))
	}
	return nil
}

// recoverLines parks all who wait. A key that is free is reserved for the first of
// them. A lapsed lease ends then: it lapsed because nobody wanted its key, and a
// place that had used up its reservation wants it again.
func (c *Core) recoverLines(tx Tx) error {
	last := uint64(0)
	for row := range tx.Scan(waitPrefix) {
		var w waiter
		if !w.read(row) {
			return corrupt(row.Key)
		}
		last = max(last, w.seq)
		w.spent = false
		w.index(tx)
		w.park(tx)
	}
	setCount(tx, seqKey, last)
	for row := range tx.Scan(waitPrefix) {
		var w waiter
		w.read(row)
		l, held := getLease(tx, w.Scope, w.Key)
		switch {
		case !held:
			c.handOver(tx, w.Scope, w.Key, uuid.Nil, false)
		case l.lapsed && c.wanted(tx, w.Scope, w.Key, uuid.Nil):
			c.free(tx, l, Expired)
		}
	}
	return nil
}

func corrupt(key string) error { return fmt.Errorf("%w: %q", engine.ErrCorrupt, key) }

func earliest(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

package registry

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
)

// Recover readies the leases of a state just opened, before anything else
// runs: each gets its full ttl from now on, a long one what was left of it.
// A record that cannot be read is an [engine.ErrCorrupt].
func (c *Core) Recover(ctx context.Context) error {
	last, err := c.lastBeat(ctx)
	if err != nil {
		return err
	}
	var known []Lease // those with an id
	for from := leasePrefix; from != ""; {
		err := c.eng.Update(ctx, func(tx engine.Tx) (err error) {
			from, err = revive(tx, from, last.was, &known)
			return err
		})
		if err != nil {
			return err
		}
	}
	return c.eng.Update(ctx, func(tx engine.Tx) error {
		count := make(map[string]uint64)
		for _, l := range known {
			tx.Touch(engine.Row{Key: idKey(l.ID), Value: l.row})
			count[l.Scope]++
		}
		for scope, n := range count {
			setCount(tx, scope, n)
		}
		if !last.at.IsZero() { // go on from there
			last.at = tx.Now()
			tx.Touch(last.row(tx))
		}
		return checkRecords(tx)
	})
}

// reviveStep is how many leases one transaction revives.
const reviveStep = 1000

// revive gives the leases from a key on their full ttl again, a bounded number of
// them, and tells where the others begin, or "". It adds those with an id to known.
func revive(tx engine.Tx, from string, was time.Duration, known *[]Lease) (next string, err error) {
	n := 0
	for row := range tx.ScanFrom(leasePrefix, from) {
		if n++; n > reviveStep {
			return row.Key, nil
		}
		var l Lease
		if !l.read(row) {
			return "", corrupt(row.Key)
		}
		if l.ID != uuid.Nil {
			*known = append(*known, l)
		}
		tx.Touch(l.revived(row, tx.Now(), was))
	}
	return "", nil
}

// lastBeat gives the uptime at the last beat, if there was one.
func (c *Core) lastBeat(ctx context.Context) (u uptime, err error) {
	row, ok, err := c.eng.Get(ctx, uptimeKey)
	if err != nil || !ok {
		return uptime{}, err
	}
	if u, ok = decodeUptime(row.Value); !ok {
		return uptime{}, corrupt(uptimeKey)
	}
	return u, nil
}

// revived gives the row of a lease whose ttl begins at now. There may be very
// many, and of nearly all the value stays as it is.
func (l *Lease) revived(row engine.Row, now time.Time, known time.Duration) engine.Row {
	l.Deadline = now.Add(l.left(known))
	if l.KeepAlive {
		return leaseRow(l, now)
	}
	row.Due = l.Deadline
	return row
}

// checkRecords reads what else is of this package and outlives a restart.
func checkRecords(tx Tx) error {
	if row, ok := tx.Get(tokenKey); ok && len(row.Value) != 16 {
		return corrupt(tokenKey)
	}
	for row := range tx.Scan(requestPrefix) {
		if _, ok := decodeRequest(row.Value); !ok {
			return corrupt(row.Key)
		}
	}
	for row := range tx.Scan(lostPrefix) {
		if _, ok := decodeLost(row.Value); !ok {
			return corrupt(row.Key)
		}
	}
	return nil
}

func corrupt(key string) error { return fmt.Errorf("%w: %q", engine.ErrCorrupt, key) }

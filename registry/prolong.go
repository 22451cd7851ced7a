package registry

import (
	"context"
	"slices"

	"github.com/google/uuid"
)

// prolongStep is how many leases Prolong extends in one transaction.
const prolongStep = 100

// Prolong extends those of a party's leases that nobody else wants, each by its
// ttl, and returns the ones that the party still holds. It is for a holder that
// reports now and then that it is alive, but not what it still needs. A lease
// that others wait for is not extended, so they get their turn.
func (c *Core) Prolong(ctx context.Context, h Holder, ids []uuid.UUID) (held []uuid.UUID, err error) {
	for some := range slices.Chunk(ids, prolongStep) {
		had := len(held)
		err := c.update(ctx, h, func(tx Tx) error {
			held = held[:had]
			for _, id := range some {
				l, ok := leaseByID(tx, id)
				if !ok || !l.Holder.same(h) || c.expired(tx, &l) {
					continue
				}
				if held = append(held, id); !c.wanted(tx, &l) {
					c.extend(tx, l, l.TTL, l.Holder)
				}
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return held, nil
}

// Pass moves a lease to another party, with a new token. It is for two sessions
// of one client: a lease that one session took for a sub-agent is then held by
// the sub-agent in the other. Waiters keep waiting, and nobody is told of a
// loss. It reports false if from does not hold the lease.
func (c *Core) Pass(ctx context.Context, id uuid.UUID, from, to Holder) (passed bool, err error) {
	return passed, c.update(ctx, to, func(tx Tx) error {
		l, ok := leaseByID(tx, id)
		if passed = ok && l.Holder.same(from) && !c.expired(tx, &l) && c.opts.SessionOpen(tx, to.Session); !passed {
			return nil
		}
		c.move(tx, l, to, passedOn)
		return nil
	})
}

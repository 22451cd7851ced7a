package registry

import (
	"context"

	"github.com/google/uuid"
)

// Prolong extends those of a party's leases that nobody else wants by its
// ttl, and answers which of them it still holds. It is for a holder
// that says now and then that it is there, and not what it needs: whoever waits gets
// its turn.
func (c *Core) Prolong(ctx context.Context, h Holder, ids []uuid.UUID) (held []uuid.UUID, err error) {
	return held, c.update(ctx, h, func(tx Tx) error {
		held = held[:0]
		for _, id := range ids {
			l, ok := leaseByID(tx, id)
			if !ok || !l.Holder.same(h) || l.expired(tx.Now()) {
				continue
			}
			if held = append(held, id); !c.wanted(tx, &l) {
				c.extend(tx, l, l.TTL, l.Holder)
			}
		}
		return nil
	})
}

// Pass gives a lease to another party, with a new token. It is for two sessions of
// one client: what one has taken for a sub-agent, the sub-agent finds in the other.
// Whoever waits goes on waiting, and nobody is told of a loss. It answers false if
// from does not hold the lease.
func (c *Core) Pass(ctx context.Context, id uuid.UUID, from, to Holder) (passed bool, err error) {
	return passed, c.update(ctx, to, func(tx Tx) error {
		l, ok := leaseByID(tx, id)
		if passed = ok && l.Holder.same(from) && !l.expired(tx.Now()) && c.opts.SessionOpen(tx, to.Session); !passed {
			return nil
		}
		c.move(tx, l, to, passedOn)
		return nil
	})
}

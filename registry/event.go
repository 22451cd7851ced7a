package registry

import (
	"strings"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine/event"
)

// record writes an event about a party and a key of a scope. It records nothing
// for a scope that handles its keys itself (see [Core.OnFreed]).
func (c *Core) record(tx Tx, scope, key string, h Holder, e event.Event) {
	if _, own := c.freed[scope]; own {
		return
	}
	var run uuid.UUID
	if id, ok := strings.CutPrefix(scope, runScope); ok {
		run, _ = uuid.Parse(id)
	} else if c.opts.LayerOf != nil {
		run, e.Layer = c.opts.LayerOf(tx, scope)
	}
	e.Key, e.Actor, e.Path, e.Party = key, h.Actor, h.Path, h.Party
	event.Record(tx, run, e)
}

func (c *Core) recordLease(tx Tx, l *Lease, e event.Event) {
	e.Token, e.Shared = l.Token, l.Shared
	c.record(tx, l.Scope, l.Key, l.Holder, e)
}

// recordEnd records that a lease ended. The end of a lapsed lease was recorded
// when it lapsed.
func (c *Core) recordEnd(tx Tx, l *Lease, cause Cause) {
	kind := event.LeaseReleased
	switch {
	case strings.HasPrefix(string(cause), revoked):
		kind = event.LeaseRevoked
	case l.lapsed:
		return
	case cause == Expired:
		kind = event.LeaseExpired
	}
	c.recordLease(tx, l, event.Event{Kind: kind, Cause: string(cause), Reason: l.Reason, Took: tx.Now().Sub(l.Acquired)})
}

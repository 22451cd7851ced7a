package cluster

import (
	"cmp"
	"hash/fnv"
	"slices"

	"github.com/google/uuid"
)

// share returns the partitions that a server should take, of those without a
// leader, and those that it should give up. Servers that see the same state
// reach the same decision. If they see different states, the database refuses
// the later one. busy reports whether the server is about to take a partition,
// or has just given it up, which l may be too old to show.
func (l Look) share(self uuid.UUID, busy func(Partition) bool) (take, give []Partition) {
	led, own, taking := make(map[uuid.UUID]int), []Partition(nil), 0
	var free []Partition
	for _, p := range l.Partitions {
		switch {
		case p.Leader == self:
			own = append(own, p)
		case l.registered(p.Leader):
		case busy(p):
			taking++
		default:
			free = append(free, p)
		}
		led[p.Leader]++
	}
	quota := l.quota(self, led)
	if over := len(own) - quota; over > 0 {
		return nil, own[len(own)-over:]
	}
	// Each server begins with another partition, so that they rarely compete
	// for one.
	slices.SortFunc(free, func(a, b Partition) int { return cmp.Compare(rank(self, a), rank(self, b)) })
	return free[:min(len(free), max(0, quota-len(own)-taking))], nil
}

// LedBy returns how many partitions a server leads.
func (l Look) LedBy(id uuid.UUID) (n int) {
	for _, p := range l.Partitions {
		if p.Leader == id {
			n++
		}
	}
	return n
}

func (l Look) registered(id uuid.UUID) bool {
	return slices.ContainsFunc(l.Servers, func(s Server) bool { return s.ID == id })
}

// quota returns how many partitions a server should lead. If they cannot be
// shared evenly, the servers that already lead one more keep it. Which servers
// these are must not change while others are still giving up.
func (l Look) quota(self uuid.UUID, led map[uuid.UUID]int) int {
	able := slices.DeleteFunc(slices.Clone(l.Servers), func(s Server) bool { return s.Draining })
	if len(able) == 0 {
		able = slices.Clone(l.Servers) // some server has to
	}
	quota := len(l.Partitions) / len(able)
	many := func(s Server) int { return min(led[s.ID], quota+1) / (quota + 1) }
	slices.SortFunc(able, func(a, b Server) int {
		return cmp.Or(many(b)-many(a), slices.Compare(a.ID[:], b.ID[:]))
	})
	place := slices.IndexFunc(able, func(s Server) bool { return s.ID == self })
	if place < 0 {
		return 0
	}
	if place < len(l.Partitions)%len(able) {
		quota++
	}
	return quota
}

func rank(id uuid.UUID, p Partition) uint64 {
	h := fnv.New64a()
	_, _ = h.Write(append(id[:], byte(p.Number), byte(p.Number>>8))) // never fails
	return h.Sum64()
}

package cluster

import (
	"cmp"
	"hash/fnv"
	"slices"

	"github.com/google/uuid"
)

// share says what a server is to do about what it sees: the partitions to take, of
// those that nobody leads, and those to give up. Whoever sees the same decides the
// same, and who does not is told by the database that somebody was faster.
func (l Look) share(self uuid.UUID) (take, give []Partition) {
	led, own := make(map[uuid.UUID]int), []Partition(nil)
	var free []Partition
	for _, p := range l.Partitions {
		switch {
		case p.Leader == self:
			own = append(own, p)
		case !l.registered(p.Leader):
			free = append(free, p)
		}
		led[p.Leader]++
	}
	quota := l.quota(self, led)
	if over := len(own) - quota; over > 0 {
		return nil, own[len(own)-over:]
	}
	// Each begins elsewhere, so that few want the same.
	slices.SortFunc(free, func(a, b Partition) int { return cmp.Compare(rank(self, a), rank(self, b)) })
	return free[:min(len(free), quota-len(own))], nil
}

// LedBy is how many partitions a server leads.
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

// quota is how many partitions a server is to lead. Where they cannot be shared
// evenly, those lead one more that lead so many already. Who they are must not change
// while others still give up.
func (l Look) quota(self uuid.UUID, led map[uuid.UUID]int) int {
	able := slices.DeleteFunc(slices.Clone(l.Servers), func(s Server) bool { return s.Draining })
	if len(able) == 0 {
		able = slices.Clone(l.Servers) // somebody has to
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

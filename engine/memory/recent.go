package memory

import "hash/maphash"

// A recent is a cache of some of the cold rows that were written or read last, as
// the last transaction has left them. A task that is submitted was mostly claimed just
// before; without the cache a claim and a submit of it take a fifth longer. It is
// guarded by Engine.mu.
//
// A row has one place, and the next row that comes to that place replaces it.
type recent struct {
	seed maphash.Seed
	rows [1 << 14]recentRow
}

type recentRow struct{ key, value string }

const recentValue = 256 // bytes; longer values, and empty ones, are not kept

func newRecent() *recent { return &recent{seed: maphash.MakeSeed()} }

func (c *recent) at(key string) *recentRow {
	return &c.rows[maphash.String(c.seed, key)%uint64(len(c.rows))]
}

func (c *recent) get(key string) (value string, ok bool) {
	r := c.at(key)
	return r.value, r.key == key
}

// set notes the last write of a row. It copies key and value, which may be cut
// from something larger.
func (c *recent) set(key string, w coldWrite) {
	r := c.at(key)
	switch {
	case !w.gone && w.value != "" && len(w.value) <= recentValue:
		both := key + w.value
		*r = recentRow{both[:len(key)], both[len(key):]}
	case r.key == key:
		*r = recentRow{}
	}
}

package memory

import "hash/maphash"

// A recent is a cache of cold rows that were recently written or read, as the
// last transaction left them. A submitted task was mostly claimed just before;
// without the cache, a claim and a submit of it take a fifth longer, and in a database
// the submit makes a query with the engine locked. It is guarded by Engine.mu.
//
// Each key has one slot. Another key with the same slot replaces it.
type recent struct {
	seed maphash.Seed
	rows [1 << 14]recentRow
}

type recentRow struct{ key, value string }

const recentValue = 256 // bytes; longer and empty values are not cached

func newRecent() *recent { return &recent{seed: maphash.MakeSeed()} }

func (c *recent) at(key string) *recentRow {
	return &c.rows[maphash.String(c.seed, key)%uint64(len(c.rows))]
}

func (c *recent) get(key string) (value string, ok bool) {
	r := c.at(key)
	return r.value, r.key == key
}

// set stores a copy of the last write of a row, because its key and value may be
// parts of something larger.
func (c *recent) set(key string, w coldWrite) {
	r := c.at(key)
	switch {
	case !w.gone && w.value != "" && len(w.value) <= recentValue:
		r.key, r.value = together(key, w.value)
	case r.key == key:
		*r = recentRow{}
	}
}

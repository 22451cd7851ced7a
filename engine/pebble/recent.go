package pebble

import "hash/maphash"

// A recent has some of the cold rows that were written or read last, as the
// last commit has left them: who finishes what he just began reads it again,
// and finds it here without a look into the store. It is guarded by Engine.mu.
//
// A row has one place, and what comes there next takes it.
type recent struct {
	seed maphash.Seed
	rows [1 << 14]recentRow
}

type recentRow struct{ key, value string }

const recentValue = 256 // bytes; longer ones, and empty ones, are not kept

func newRecent() *recent { return &recent{seed: maphash.MakeSeed()} }

func (c *recent) at(key string) *recentRow {
	return &c.rows[maphash.String(c.seed, key)%uint64(len(c.rows))]
}

func (c *recent) get(key string) (value string, ok bool) {
	r := c.at(key)
	return r.value, r.key == key
}

// set notes what the row under key is now, or with gone that there is none. It
// copies both strings, which may be cut from something larger.
func (c *recent) set(key, value string, gone bool) {
	r := c.at(key)
	switch {
	case !gone && value != "" && len(value) <= recentValue:
		both := key + value
		*r = recentRow{both[:len(key)], both[len(key):]}
	case r.key == key:
		*r = recentRow{}
	}
}

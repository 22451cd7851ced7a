package pebble

import "hash/maphash"

// A table finds a row by its key. It differs from a map in that it does not
// have the keys a second time: of a row it keeps its hash and where it is.
//
// It is in parts, each of which grows alone, so that no transaction waits for
// all rows to move.
type table struct {
	seed  maphash.Seed
	parts [256]part
	n     int
}

// A part is open addressed, with linear probing. A row stands at its home, that
// is the place its hash is at when the hashes are spread over all places, or
// behind it, with no gap between.
type part struct {
	hashes []uint32 // 0 is a free place
	rows   []*row
	n      int
}

func newTable() *table { return &table{seed: maphash.MakeSeed()} }

func (t *table) find(key string) (*part, uint32) {
	h := maphash.String(t.seed, key)
	return &t.parts[h>>56], max(uint32(h), 1)
}

func (t *table) get(key string) *row {
	p, h := t.find(key)
	if at, ok := p.find(h, key); ok {
		return p.rows[at]
	}
	return nil
}

// insert adds r, whose key is not in use.
func (t *table) insert(r *row) {
	p, h := t.find(r.key())
	if p.n >= len(p.rows)-len(p.rows)/5 { // full enough: it would probe for long
		p.resize(p.n + p.n/2 + 8)
	}
	p.insert(h, r)
	t.n++
}

func (t *table) remove(r *row) {
	p, h := t.find(r.key())
	if at, ok := p.find(h, r.key()); ok {
		p.remove(at)
		t.n--
		if len(p.rows) > 64 && p.n < len(p.rows)/4 {
			p.resize(p.n + p.n/2 + 8)
		}
	}
}

// A tableLoader collects rows for a table that has none. They are put into one
// part after the other, and not all over the table as they come.
type tableLoader struct {
	t     *table
	hint  int // about how many a part will have
	parts [256][]hashed
}

type hashed struct {
	hash uint32
	r    *row
}

func (b *tableLoader) add(r *row) {
	h := maphash.String(b.t.seed, r.key())
	part := &b.parts[h>>56]
	if *part == nil {
		*part = make([]hashed, 0, b.hint+1)
	}
	*part = append(*part, hashed{max(uint32(h), 1), r})
}

// load fills a part.
func (t *table) load(i int, from []loader) {
	n := 0
	for j := range from {
		n += len(from[j].table.parts[i])
	}
	p := &t.parts[i]
	p.resize(n + n/3 + 8)
	for j := range from {
		for _, r := range from[j].table.parts[i] {
			p.insert(r.hash, r.r)
		}
	}
}

func (p *part) home(h uint32) int { return int(uint64(h) * uint64(len(p.rows)) >> 32) }

func (p *part) after(at int) int {
	if at++; at < len(p.rows) {
		return at
	}
	return 0
}

func (p *part) find(h uint32, key string) (at int, ok bool) {
	if p.n == 0 {
		return 0, false
	}
	for at = p.home(h); p.hashes[at] != 0; at = p.after(at) {
		if p.hashes[at] == h && p.rows[at].key() == key {
			return at, true
		}
	}
	return at, false
}

func (p *part) insert(h uint32, r *row) {
	at := p.home(h)
	for p.hashes[at] != 0 {
		at = p.after(at)
	}
	p.hashes[at], p.rows[at] = h, r
	p.n++
}

// remove frees a place, and moves up who would not be found behind the gap.
func (p *part) remove(gap int) {
	for at := p.after(gap); p.hashes[at] != 0; at = p.after(at) {
		home := p.home(p.hashes[at])
		between := gap < home && home <= at
		if at < gap { // the places in question go around the end
			between = gap < home || home <= at
		}
		if !between {
			p.hashes[gap], p.rows[gap] = p.hashes[at], p.rows[at]
			gap = at
		}
	}
	p.hashes[gap], p.rows[gap] = 0, nil
	p.n--
}

func (p *part) resize(places int) {
	was := *p
	*p = part{hashes: make([]uint32, places), rows: make([]*row, places)}
	for i, h := range was.hashes {
		if h != 0 {
			p.insert(h, was.rows[i])
		}
	}
}

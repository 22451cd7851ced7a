package postgres

import (
	"context"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/tidwall/btree"

	"github.com/leasehold/leasehold/engine/memory"
)

// An iterator merges overlays with the records, which it reads in pages.
type iterator struct {
	s      *store
	q      querier
	again  bool        // a page that could not be read may be requested again
	lock   *sync.Mutex // held to use q, if not nil
	space  memory.Space
	from   string
	bound  string // of the keys, or ""
	layers layers
	end    string // the first place beyond the end

	over []btree.MapIter[string, write] // one for each layer
	left []bool                         // whether each is at a record before the end

	page  []record
	at    int  // in page
	more  bool // there may be records after the page
	limit int  // of the next page; 0 before the first

	key   string
	value []byte
	err   error
}

type record struct{ key, value []byte }

const (
	firstPage = 8
	largePage = 4096
	pageBytes = 2 << 20 // about, at most, in a page
)

// Next implements [memory.Iterator].
func (i *iterator) Next() bool {
	if i.limit == 0 {
		i.begin()
	} else {
		i.pass(i.key)
	}
	return i.settle()
}

func (i *iterator) begin() {
	i.end = place(i.space, i.bound)
	if i.bound == "" {
		i.end = place(i.space+1, "")
	}
	at := place(i.space, i.from)
	for _, o := range i.layers {
		it := o.writes.Iter()
		i.left = append(i.left, it.Seek(at) && it.Key() < i.end)
		i.over = append(i.over, it)
	}
	i.limit = firstPage
	i.fetch(i.from)
}

// settle moves to the smallest record that exists.
func (i *iterator) settle() bool {
	for i.err == nil {
		if i.at == len(i.page) && i.more {
			i.fetch(string(i.page[i.at-1].key) + "\x00")
			continue
		}
		stored := i.at < len(i.page)
		if stored {
			i.key = string(i.page[i.at].key)
		}
		upper := -1
		for n := range i.over {
			if !i.left[n] {
				continue
			}
			if key := i.over[n].Key()[1:]; !stored && upper < 0 || key < i.key || key == i.key && upper < 0 {
				i.key, upper = key, n
			}
		}
		switch {
		case upper < 0 && !stored:
			return false
		case upper < 0:
			i.value = i.page[i.at].value
			return true
		}
		if w := i.over[upper].Value(); !w.gone {
			i.value = []byte(w.value)
			return true
		}
		i.pass(i.key)
	}
	return false
}

// pass moves beyond a key in all layers and in the page.
func (i *iterator) pass(key string) {
	for n := range i.over {
		if i.left[n] && i.over[n].Key()[1:] == key {
			i.left[n] = i.over[n].Next() && i.over[n].Key() < i.end
		}
	}
	if i.at < len(i.page) && string(i.page[i.at].key) == key {
		i.at++
	}
}

const (
	pageSQL   = "SELECT key, value FROM leasehold_record WHERE partition = $1 AND space = $2 AND key >= $3 ORDER BY key LIMIT $4"
	pageToSQL = "SELECT key, value FROM leasehold_record WHERE partition = $1 AND space = $2 AND key >= $3 AND key < $5 ORDER BY key LIMIT $4"
)

// fetch reads the next page. Pages grow, because a reader that has read much
// will probably read more.
func (i *iterator) fetch(from string) {
	if i.lock != nil {
		i.lock.Lock()
		defer i.lock.Unlock()
	}
	read := func(ctx context.Context) error { return i.read(ctx, from) }
	if i.again {
		i.err = i.s.mustRead(read)
	} else {
		i.err = read(i.s.ctx)
	}
	i.at, i.more = 0, i.err == nil && len(i.page) == i.limit
	size := 1
	for _, r := range i.page {
		size += len(r.key) + len(r.value)
	}
	i.limit = max(1, min(4*i.limit, largePage, pageBytes/(1+size/max(1, len(i.page)))))
}

func (i *iterator) read(ctx context.Context, from string) error {
	sql, args := pageSQL, []any{i.s.partition, int16(i.space), []byte(from), i.limit}
	if i.bound != "" {
		sql, args = pageToSQL, append(args, []byte(i.bound))
	}
	rows, err := i.q.Query(ctx, sql, args...)
	if err != nil {
		return err
	}
	i.page, err = pgx.AppendRows(i.page[:0], rows, func(row pgx.CollectableRow) (r record, err error) {
		return r, row.Scan(&r.key, &r.value)
	})
	return err
}

func (i *iterator) Key() []byte            { return []byte(i.key) }
func (i *iterator) Value() ([]byte, error) { return i.value, nil }
func (i *iterator) Err() error             { return i.err }
func (i *iterator) Close() error           { return nil }

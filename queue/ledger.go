package queue

import (
	"time"

	"github.com/leasehold/leasehold/engine"
)

// A ledger is a transaction that writes the counts of a queue once, at its end,
// and not with each task that moves. It has those of one queue at a time: what
// touches several, or looks at the rows of the counts itself, may do so after a
// close.
type ledger struct {
	Tx
	line  line // "": none
	stats Stats
	due   time.Time // when the queue wants attention next
	moved bool
}

// close writes what is open.
func (l *ledger) close() {
	if l.moved {
		writeStats(l.Tx, l.line, l.stats, l.due)
	}
	l.line, l.moved = "", false
}

// getStats gives the counts of a queue, and when it wants attention next: at the
// end of its earliest delay or retention, or before.
func getStats(tx Tx, l line) (Stats, time.Time) {
	book, ok := tx.(*ledger)
	if !ok {
		return readStats(tx, l)
	}
	if book.line != l {
		book.close()
		book.stats, book.due = readStats(book.Tx, l)
		book.line = l
	}
	return book.stats, book.due
}

func putStats(tx Tx, l line, s Stats, due time.Time) {
	book, ok := tx.(*ledger)
	if !ok {
		writeStats(tx, l, s, due)
		return
	}
	if book.line != l {
		book.close()
	}
	book.line, book.stats, book.due, book.moved = l, s, due, true
}

func readStats(tx Tx, l line) (Stats, time.Time) {
	row, ok := tx.Get(string(l))
	if !ok {
		return Stats{Queue: l.queue()}, time.Time{}
	}
	s, err := decodeStats(l.queue(), row.Value)
	if err != nil {
		panic(corrupt(row.Key, err))
	}
	return s, row.Due
}

func writeStats(tx Tx, l line, s Stats, due time.Time) {
	if s.empty() {
		tx.Delete(string(l))
		return
	}
	tx.Put(engine.Row{Key: string(l), Value: s.encode(), Due: due})
}

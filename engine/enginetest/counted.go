package enginetest

import (
	"iter"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
)

// A CountedTx counts the rows that a transaction looks at.
type CountedTx struct {
	engine.Tx
	Rows int
}

func (tx *CountedTx) Get(key string) (engine.Row, bool) {
	tx.Rows++
	return tx.Tx.Get(key)
}

func (tx *CountedTx) First(prefix, from string) (engine.Row, bool) {
	tx.Rows++
	return tx.Tx.First(prefix, from)
}

func (tx *CountedTx) Scan(prefix string) iter.Seq[engine.Row] {
	return tx.counting(tx.Tx.Scan(prefix))
}

func (tx *CountedTx) ScanFrom(prefix, from string) iter.Seq[engine.Row] {
	return tx.counting(tx.Tx.ScanFrom(prefix, from))
}

func (tx *CountedTx) Owned(owner uuid.UUID, prefix string) iter.Seq[engine.Row] {
	return tx.counting(tx.Tx.Owned(owner, prefix))
}

func (tx *CountedTx) counting(rows iter.Seq[engine.Row]) iter.Seq[engine.Row] {
	return func(yield func(engine.Row) bool) {
		for row := range rows {
			if tx.Rows++; !yield(row) {
				return
			}
		}
	}
}

package event

import (
	"encoding/binary"
	"fmt"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/record"
)

const (
	markKey = engine.Mark + "token" // also kept outside the log, as no number is to come back with it

	// NumberKey is the key of a row that changes with every number that is given,
	// and so with every event.
	NumberKey = "number"
)

// block is how many numbers one disk write reserves. A crash skips what is left of
// it: numbers rise, they need not be dense.
const block = 1024

// Numbers are the last token and the last revision that were given, and the
// greatest that may be given without another disk write.
type Numbers struct{ Token, Revision, Reserved uint64 }

// Next gives a token greater than any given before.
func Next(tx engine.Tx) uint64 {
	n := NumbersOf(tx)
	n.Token++
	n.put(tx)
	return n.Token
}

// NextBoth gives a token, as Next does, and the revision of an event that tells of it.
func NextBoth(tx engine.Tx) (token, revision uint64) {
	n := NumbersOf(tx)
	n.Token++
	n.Revision++
	n.put(tx)
	return n.Token, n.Revision
}

func nextRevision(tx engine.Tx) uint64 {
	n := NumbersOf(tx)
	n.Revision++
	n.put(tx)
	return n.Revision
}

// put writes the numbers, and reserves more if need be.
func (n Numbers) put(tx engine.Tx) {
	if last := max(n.Token, n.Revision); last > n.Reserved {
		n.Reserved = last + block
		tx.Put(engine.Row{Key: markKey, Value: record.Fixed(n.Reserved)})
		tx.Sync() // a power cut must not give them again
	}
	var b [24]byte
	binary.BigEndian.PutUint64(b[:], n.Token)
	binary.BigEndian.PutUint64(b[8:], n.Revision)
	binary.BigEndian.PutUint64(b[16:], n.Reserved)
	tx.Touch(engine.Row{Key: NumberKey, Value: string(b[:])})
}

// NumbersOf reads the numbers. A crash leaves the mark alone: then all of the block
// is spent.
func NumbersOf(tx engine.Tx) (n Numbers) {
	if row, ok := tx.Get(NumberKey); ok {
		return Numbers{record.ReadFixed(row.Value), record.ReadFixed(row.Value[8:]), record.ReadFixed(row.Value[16:])}
	}
	if row, ok := tx.Get(markKey); ok {
		n.Reserved = record.ReadFixed(row.Value)
		n.Token, n.Revision = n.Reserved, n.Reserved
	}
	return n
}

// Raise makes the next token and the next revision greater than a number.
func Raise(tx engine.Tx, above uint64) {
	if n := NumbersOf(tx); n.Token < above || n.Revision < above {
		n.Token, n.Revision = max(n.Token, above), max(n.Revision, above)
		n.put(tx)
	}
}

// Recover makes sure, before anything else runs, that the next token is greater
// than every one before, of which highest is one. A record that cannot be read is
// an [engine.ErrCorrupt].
func Recover(tx engine.Tx, highest uint64) error {
	row, ok := tx.Get(markKey)
	switch {
	// States from before there were revisions have the number twice.
	case ok && len(row.Value) != 8 && len(row.Value) != 16, !ok && highest > 0:
		return fmt.Errorf("%w: %q", engine.ErrCorrupt, markKey)
	case !ok:
		return nil
	}
	if n := NumbersOf(tx); n.Token < highest {
		n.Token = highest
		n.put(tx)
	}
	return nil
}

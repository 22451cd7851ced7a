package event

import (
	"fmt"
	"iter"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/record"
)

// A CompactedError is returned if events after the requested revision have been
// deleted.
type CompactedError struct {
	Since   uint64 // the requested revision
	Through uint64 // the last deleted revision
}

func (e *CompactedError) Error() string {
	return fmt.Sprintf("events after revision %d are no longer all kept: those up to %d are forgotten; ask without a revision for what is kept", e.Since, e.Through)
}

// Read yields the events of a run with a revision greater than since, in order.
// If since is zero, it begins with the oldest event that is kept. Otherwise it
// returns a [CompactedError] if some of these events have been deleted.
func Read(tx engine.Tx, run uuid.UUID, since uint64) (iter.Seq[Event], error) {
	through := Compacted(tx, run)
	if since > 0 && since < through {
		return nil, &CompactedError{since, through}
	}
	return func(yield func(Event) bool) {
		for row := range rows(tx, run, max(since, through)) {
			if e, ok := Parse(row); ok && !yield(e) {
				return
			}
		}
	}, nil
}

func rows(tx engine.Tx, run uuid.UUID, since uint64) iter.Seq[engine.Row] {
	return tx.ScanFrom(keysOf(run), keyOf(run, since)+"\x00")
}

// Compacted returns the last deleted revision of a run; 0: none.
func Compacted(tx engine.Tx, run uuid.UUID) uint64 {
	row, ok := tx.Get(compactedKey(run))
	if !ok || len(row.Value) != 8 {
		return 0
	}
	return record.ReadFixed(row.Value)
}

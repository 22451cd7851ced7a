package queue

import (
	"bytes"
	"iter"
	"slices"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
)

// records are the records of some tasks, read together: tasks that came together
// lie together, and mostly their claims end together, and the store reads on to
// the next row ten times faster than it finds one.
type records map[uuid.UUID]engine.Row

const (
	closeBy = 8 // rows that are passed over on the way to the next
	apart   = 2 // times in a row that a search has found nothing but what it looked for
)

// readRecords reads those of ids that lie close to others. It leaves out the
// others, and those without a record of their own.
func readRecords(tx Tx, ids []uuid.UUID) records {
	slices.SortFunc(ids, func(a, b uuid.UUID) int { return bytes.Compare(a[:], b[:]) })
	found := make(records, len(ids))
	for alone := 0; len(ids) > 1 && alone < apart; {
		before := len(found)
		ids = found.readOn(tx, ids)
		if alone++; len(found) > before+1 {
			alone = 0
		}
	}
	return found
}

// readOn reads from the first of ids on for as long as another is close, and
// gives those that it has not come to.
func (found records) readOn(tx Tx, ids []uuid.UUID) []uuid.UUID {
	passed := 0
	for row := range tx.ScanFrom(taskPrefix, taskKey(ids[0])) {
		id := idOf(row.Key, row.Key[len(taskPrefix):])
		for len(ids) > 0 && bytes.Compare(ids[0][:], id[:]) < 0 {
			ids = ids[1:] // it has none
		}
		switch {
		case len(ids) == 0:
			return nil
		case ids[0] == id:
			found[id] = row
			ids, passed = ids[1:], 0
		default:
			passed++
		}
		if len(ids) == 0 || passed > closeBy {
			return ids
		}
	}
	return nil
}

// claimsOf gives the tasks whose claims are among rows, of which it looks at no
// more than most.
func (q *Queue) claimsOf(rows iter.Seq[engine.Row], most int) (ids []uuid.UUID) {
	n := 0
	for row := range rows {
		if key, ok := q.leases.KeyOf(row); ok {
			if id, err := uuid.Parse(key); err == nil {
				ids = append(ids, id)
			}
		}
		if n++; n == most {
			break
		}
	}
	return ids
}

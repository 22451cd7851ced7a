package dispatch

import (
	"fmt"
	"strconv"

	"github.com/leasehold/leasehold/engine"
)

// Format is the format number of a state as a whole; see Versions in the
// package doc.
const Format = 1

const formatKey = "format"

// checkFormat refuses a state that a later version has written. It gives a
// state of an earlier version the current number.
func checkFormat(tx engine.Tx) error {
	row, ok := tx.Get(formatKey)
	found := 0
	if ok {
		var err error
		if found, err = strconv.Atoi(row.Value); err != nil || found < 1 {
			return fmt.Errorf("%w: %q is %q", engine.ErrCorrupt, formatKey, row.Value)
		}
	}
	switch {
	case found > Format:
		return fmt.Errorf("%w: its format is %d, and this version reads formats up to %d", engine.ErrNewer, found, Format)
	case found < Format:
		tx.Put(engine.Row{Key: formatKey, Value: strconv.Itoa(Format)})
	}
	return nil
}

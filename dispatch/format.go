package dispatch

import (
	"fmt"
	"strconv"

	"github.com/leasehold/leasehold/engine"
)

// Format is the format number of a state as a whole; see Versions in the
// package doc.
const Format = 1

// FormatKey is the key of the row that has it.
const FormatKey = "format"

// checkFormat refuses a state that a later version has written. It gives a
// state of an earlier version the current number.
func checkFormat(tx engine.Tx) error {
	row, _ := tx.Get(FormatKey)
	if err := CheckFormat(row.Value); err != nil {
		return err
	}
	if current := strconv.Itoa(Format); row.Value != current {
		tx.Put(engine.Row{Key: FormatKey, Value: current})
	}
	return nil
}

// CheckFormat returns [engine.ErrNewer] if a later version has written the value of the
// row at [FormatKey]. It is "" in a new state.
func CheckFormat(value string) error {
	if value == "" {
		return nil
	}
	switch found, err := strconv.Atoi(value); {
	case err != nil || found < 1:
		return fmt.Errorf("%w: %q is %q", engine.ErrCorrupt, FormatKey, value)
	case found > Format:
		return fmt.Errorf("%w: its format is %d, and this version reads formats up to %d", engine.ErrNewer, found, Format)
	}
	return nil
}

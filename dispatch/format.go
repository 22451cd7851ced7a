package dispatch

import (
	"fmt"
	"strconv"

	"github.com/leasehold/leasehold/engine"
)

// Format is the format of all the rows of a state: see Versions in the package doc.
const Format = 1

const formatKey = "format"

// checkFormat refuses a state that a later version has written, and marks an
// earlier one as of this.
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
		return &FormatError{found}
	case found < Format:
		tx.Put(engine.Row{Key: formatKey, Value: strconv.Itoa(Format)})
	}
	return nil
}

// A FormatError is why a state is not opened: a later version of leasehold has
// written it.
type FormatError struct{ Found int }

func (e *FormatError) Error() string {
	return fmt.Sprintf("a later version of leasehold has written this state: its format is %d, and this version reads formats up to %d", e.Found, Format)
}

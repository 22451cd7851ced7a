package work_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/dispatch/work"
	"github.com/leasehold/leasehold/engine"
)

// A damaged transaction cannot read its cold rows, and would fail after a Get.
type damaged struct{ engine.Tx }

func (damaged) Get(string) (engine.Row, bool) { panic("a Get fails the transaction") }

func (damaged) Try(string) (engine.Row, bool, error) { return engine.Row{}, false, engine.ErrCorrupt }

// Results are read in lists, of which the others are not affected.
func TestADamagedResultSaysSo(t *testing.T) {
	if got := work.Result(damaged{}, uuid.New()); !json.Valid(got) || !strings.Contains(string(got), "cannot be read") {
		t.Errorf("it is %s", got)
	}
}

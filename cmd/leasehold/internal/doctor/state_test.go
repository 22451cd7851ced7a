package doctor

import (
	"strings"
	"testing"

	"github.com/leasehold/leasehold/engine"
)

// Whoever moved a newer state away would lose it.
func TestANewerStateStays(t *testing.T) {
	if do := mend(engine.ErrNewer); !strings.Contains(do, "install") || strings.Contains(do, "move") {
		t.Errorf("advice: %s", do)
	}
}

package doctor

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/pebble"
)

// Whoever moved a newer state away would lose it.
func TestANewerStateStays(t *testing.T) {
	if do := mend(engine.ErrNewer); !strings.Contains(do, "install") || strings.Contains(do, "move") {
		t.Errorf("advice: %s", do)
	}
}

// A disk that is stuck does not keep doctor from saying so. The call to it never returns.
func TestAStuckDiskIsAFault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answer := make(chan []finding)
		defer close(answer)
		found := unlessStuck(func() []finding { return <-answer })
		if len(found) != 1 || found[0].Level != fault || !strings.Contains(found[0].Do, "stuck") {
			t.Errorf("findings: %v", found)
		}
	})
}

// Doctor reads the format of a state that no daemon has open.
func TestAStateThatThisVersionCannotOpenIsNotWell(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "leasehold")
	t.Setenv("XDG_STATE_HOME", filepath.Dir(dir))
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	write := func(format string) {
		inState(t, dir, func(eng *pebble.Engine) error {
			return eng.Update(context.Background(), func(tx engine.Tx) error {
				tx.Put(engine.Row{Key: dispatch.FormatKey, Value: format})
				return nil
			})
		})
	}
	check := func(l level, what string) {
		t.Helper()
		if found := examinePlace("", false); len(found) != 1 || found[0].Level != l || !strings.Contains(found[0].What, what) {
			t.Errorf("found %+v, not %s %q", found, l, what)
		}
	}
	write(strconv.Itoa(dispatch.Format))
	check(fine, "is yours alone")
	write(strconv.Itoa(dispatch.Format + 1))
	check(fault, "a later version of leasehold has written this state: its format is")
	if err := errors.Join(os.RemoveAll(dir+"/db"), os.Mkdir(dir+"/db", 0o700), os.WriteFile(dir+"/db/CURRENT", nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	check(fault, "it has files of another program, and no state: CURRENT")
}

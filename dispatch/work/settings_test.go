package work_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/leasehold/leasehold/dispatch/work"
)

// A setting has the same name in a manifest and in the call that sends it.
func TestSettingsHaveOneName(t *testing.T) {
	for _, table := range []any{work.Limits{}, work.Store{}, work.Sublead{}, work.Worker{}, work.Placement{}} {
		for _, f := range reflect.VisibleFields(reflect.TypeOf(table)) {
			if sent, _, _ := strings.Cut(f.Tag.Get("json"), ","); sent != f.Tag.Get("toml") || sent == "" && !f.Anonymous {
				t.Errorf("%T.%s is %q in a manifest and %q in a call", table, f.Name, f.Tag.Get("toml"), sent)
			}
		}
	}
}

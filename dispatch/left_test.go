package dispatch_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/dispatch/process"
	"github.com/leasehold/leasehold/registry"
)

// A client whose connection has ended, and that connects again as another actor, is told
// what it lost. No other client is, and not one whose sub-agents have connections of
// their own.
func TestAClientThatConnectsAgainIsToldWhatItLost(t *testing.T) {
	inHouse(t, dispatch.Options{}, func(t *testing.T, h *house) {
		shims := 100
		shim := func(client int) *dispatch.Session {
			shims++
			h.family.Store(shims, process.Running{Parent: client})
			return h.connect(dispatch.Credentials{Run: "r", Name: "shim", Origin: dispatch.Origin{PID: client}}, shims)
		}
		told := func(se *dispatch.Session, want ...string) {
			t.Helper()
			list, _, err := se.TakeNotices(t.Context(), "", dispatch.Model)
			if err != nil {
				t.Fatal(err)
			}
			var keys []string
			for _, n := range list {
				keys = append(keys, n.Key)
			}
			if !slices.Equal(keys, want) {
				t.Errorf("told of %v, want %v", keys, want)
			}
		}
		one := shim(10)
		lost := h.take(one, dispatch.RunScope, "deploy", time.Hour)
		if ok, why, err := one.Release(t.Context(), h.take(one, dispatch.RunScope, "given back", time.Hour).ID); !ok {
			t.Fatal(why, err)
		}
		h.hangUp(one)
		two := shim(20)
		told(two)
		again := shim(10)
		told(again, "deploy")
		told(again)
		if _, err := again.Renew(t.Context(), "", lost.ID, time.Minute); !errors.As(err, new(*registry.LostError)) {
			t.Errorf("it renews: %v", err)
		}

		h.take(again, dispatch.RunScope, "deploy", time.Hour)
		beside := shim(10)
		h.hangUp(again)
		sub := shim(10)
		told(sub)
		told(beside)
		h.hangUp(sub)
		h.hangUp(beside)
		time.Sleep(2 * time.Minute)
		told(shim(10))
		told(two)
	})
}

package server

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/leasehold/leasehold/dispatch/server/wire"
	"github.com/leasehold/leasehold/engine/call"
)

// A client that goes is noticed at any time: while its call runs, and in the instant in
// which its answer becomes ready. Either way somebody undoes the call, and only once.
func TestGivenUpCallIsUndoneOnce(t *testing.T) {
	for name, settled := range map[string]bool{"while it runs": false, "with its answer ready": true} {
		var rs requests
		r, err := rs.begin(t.Context(), &wire.Message{Key: "1"}, false, 1, call.Call{Name: "1"})
		if err != nil {
			t.Fatal(err)
		}
		r.open = true
		if settled && !rs.settle(r) {
			t.Fatalf("%s: the answer is not wanted", name)
		}
		undo := rs.giveUp(r, errClientGone)
		if undo != settled {
			t.Errorf("%s: the caller undoes it: %t", name, undo)
		}
		if !settled && (context.Cause(r.ctx) != errClientGone || rs.settle(r) || !rs.toUndo(r)) {
			t.Errorf("%s: it is not undone when it returns", name)
		}
		if rs.giveUp(r, errClientGone) || rs.lost(r) {
			t.Errorf("%s: it is undone again", name)
		}
	}
}

// A request of a call breaks off after its answer, and the call comes again at any time:
// before that is seen, it undoes nothing; later, it waits until the call is undone.
func TestACopyIsNotToldWhatIsTakenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, before := range map[string]bool{"before the loss is seen": true, "after it": false} {
			var rs requests
			var k marked
			m := &wire.Message{Key: "1"}
			m.Params.Meta.Call = "m"
			begin := func() *request {
				r, err := rs.begin(t.Context(), m, false, 1, call.Call{Name: "m"})
				if err != nil {
					t.Fatal(err)
				}
				return r
			}
			first := begin()
			leave := k.enter(&rs, first)
			rs.settle(first)
			leave()

			entered := make(chan func(), 1)
			again := func() {
				second := begin()
				go func() { entered <- k.enter(&rs, second) }()
				synctest.Wait()
			}
			if before {
				again()
			}
			undone := k.hold(&rs, first)
			if undo := rs.giveUp(first, errClientGone); undo == before {
				t.Errorf("%s: the call is undone: %t", name, undo)
			}
			if !before {
				again()
				if len(entered) > 0 {
					t.Errorf("%s: the copy runs while the call is undone", name)
				}
			}
			undone()
			(<-entered)()
			if len(k.calls) > 0 {
				t.Errorf("%s: %d calls are left", name, len(k.calls))
			}
		}
	})
}

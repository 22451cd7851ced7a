package server

import (
	"context"
	"testing"

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

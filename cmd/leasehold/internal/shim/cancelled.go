package shim

import (
	"fmt"
	"slices"
	"time"

	"github.com/leasehold/leasehold/dispatch/server/wire"
)

const (
	// undoTime is how long after a cancel the loss of the link may mean that the
	// daemon has not undone the call.
	undoTime = time.Minute

	maxCancelled      = 64
	maxCancelledBytes = 4 << 20 // in the messages of all of them together
)

// A cancelledCall is a call that the client has cancelled without having read its
// answer. The daemon undoes such calls. But it may have ended before it read the
// cancel, or before it could do anything about it, and what the call was granted
// would stay: the daemon keeps the effects of a call whose link was lost, because
// the shim may send it again. So the shim does that, and cancels it again.
type cancelledCall struct {
	request *request
	told    time.Time // when its cancel was last sent; zero: never
}

// cancelLater remembers a cancelled call until the daemon has certainly undone it.
// Other requests leave nothing to undo.
func (s *shim) cancelLater(c cancelledCall) {
	if c.request == nil || c.request.sends == 0 || c.request.message.Method != wire.ToolsCall {
		return
	}
	s.cancelled = append(s.cancelled, c)
	bytes := 0
	for i, c := range slices.Backward(s.cancelled) {
		bytes += len(c.request.line)
		if bytes > maxCancelledBytes || len(s.cancelled)-i > maxCancelled {
			s.cancelled = slices.Delete(s.cancelled, 0, i+1)
			return
		}
	}
}

// cancelAgain cancels on a new link what the last one may not have undone. The client
// may have used the ids again, so the calls get others.
func (s *shim) cancelAgain() {
	now := time.Now()
	for i := range s.cancelled {
		c := &s.cancelled[i]
		id := fmt.Sprint(replayID, "-", c.request.sequence)
		s.link.send(wire.Resent(wire.WithID(c.request.line, id), now.Sub(c.request.since)))
		s.link.send(wire.Notification(wire.Cancelled, map[string]string{"requestId": id}))
		c.told = now
	}
}

// forgetCancelled is called when a link was lost.
func (s *shim) forgetCancelled() {
	s.cancelled = slices.DeleteFunc(s.cancelled, func(c cancelledCall) bool {
		return !c.told.IsZero() && time.Since(c.told) > undoTime
	})
}

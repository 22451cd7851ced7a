package server_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/dispatch/server"
)

// A call that blocks, though it did not say so, holds up what its client sends
// next for an instant and no more; and it can be cancelled.
func TestABlockedCallDoesNotKeepTheNextFromBeingRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDaemon(t, server.Options{})
		b := d.addBlocker()
		p := d.dial(t, "w")
		const calls = 5
		start := time.Now()
		for i := range calls {
			p.call(i, "block", `{}`)
			<-b.began
		}
		p.call("echo", "echo", `{}`)
		if m := p.receive(); m.text() != "echo" {
			t.Errorf("answer: %+v", m)
		}
		for i := range calls {
			p.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}`, i)
			if err := <-b.ended; err == nil || err.Error() != "cancelled by the client" {
				t.Errorf("cause: %v", err)
			}
		}
		if took := time.Since(start); took > time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

// Calls that are sent together run together.
func TestCallsSentTogetherRunTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const calls = 4 // no more than an actor has turns
		d := newDaemon(t, server.Options{})
		var missing sync.WaitGroup
		missing.Add(calls)
		d.AddTestTool("meet", func(context.Context, *dispatch.Session) string {
			missing.Done()
			missing.Wait()
			return "met"
		})
		p := d.dial(t, "w")
		var lines strings.Builder
		for i := range calls {
			fmt.Fprintf(&lines, `{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"meet"}}`+"\n", i)
		}
		p.send("%s", strings.TrimSpace(lines.String()))
		for range calls {
			if m := p.receive(); m.text() != "met" {
				t.Errorf("answer: %+v", m)
			}
		}
	})
}

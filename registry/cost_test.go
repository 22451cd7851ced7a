package registry_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/leasehold/leasehold/registry"
)

// However many leases are below a directory, nobody who waits for it, leaves its
// line, or gives back one of them looks at more than a bounded number of them.
func TestAWaitForADirectoryLooksAtABoundedNumberOfLeases(t *testing.T) {
	most := func(leases int) (n int) {
		inHouse(t, registry.Options{}, func(t *testing.T, h *house) {
			a, b, c := h.party("A"), h.party("B"), h.party("C")
			var held []registry.Grant
			for n := range leases {
				held = append(held, a.acquire(registry.Request{Key: fmt.Sprint("file:src/", n), TTL: time.Hour}))
			}
			count := &countedReads{Engine: h.eng}
			ended, core := h.Core, registry.New(count, h.opts)
			h.Core = core
			defer func() { h.Core = ended }()
			_, err := b.try(registry.Request{Key: "file:src/**", Wait: time.Second})
			mustBe[*registry.WaitError](t, err)
			ctx, leave := context.WithCancel(t.Context())
			waiting := c.waitCtx(ctx, registry.Request{Key: "file:src/**"})
			a.release(held[0])
			a.mustOffer(held[1], &b, false)
			leave()
			if got := <-waiting; got.err == nil {
				t.Error("C holds what A holds")
			}
			n = count.most
		})
		return n
	}
	few, many := most(registry.MaxBelow), most(3*registry.MaxBelow)
	t.Logf("%d rows with few, %d with many", few, many)
	if many > few {
		t.Errorf("a transaction looks at %d rows with %d leases, and at %d with %d", few, registry.MaxBelow, many, 3*registry.MaxBelow)
	}
}

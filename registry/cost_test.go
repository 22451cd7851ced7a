package registry_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/enginetest"
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

// Many who wait to share a key get it at once, and none of them looks at those
// who got it before. No more get it than may share it.
func TestManyWhoWaitToShareAKeyAreServedTogether(t *testing.T) {
	if testing.Short() {
		t.Skip("has 900 waiters three times, to count rows")
	}
	most := func(held, waiting int) (n int) {
		inHouse(t, registry.Options{}, func(t *testing.T, h *house) {
			count := &countedReads{Engine: h.eng}
			h.Core = registry.New(count, h.opts)
			a, b := h.party("A"), h.party("B")
			for i := range held {
				a.as(fmt.Sprint(i)).acquire(registry.Request{Key: "x", Shared: true, TTL: time.Hour})
			}
			ctx, leave := context.WithCancel(t.Context())
			alone := b.waitCtx(ctx, registry.Request{Key: "x"})
			var shares []<-chan answer
			for i := range waiting {
				shares = append(shares, h.party(fmt.Sprint("W", i)).wait(registry.Request{Key: "x", Shared: true}))
			}
			h.view(func(registry.Tx) { count.most = 0 }) // its updates count under the lock, too
			leave()
			<-alone
			synctest.Wait()
			h.view(func(registry.Tx) { n = count.most })
			for i, got := range shares {
				if i <= registry.MaxBelow-held {
					granted(t, got)
				} else {
					waits(t, got)
				}
			}
			time.Sleep(registry.MaxWait + time.Second)
		})
		return n
	}
	few, many := most(1, 100), most(1, 900)
	if many > 10*few {
		t.Errorf("%d rows are read to serve 100, and %d to serve 900", few, many)
	}
	if full := most(800, 900); full > 10*few {
		t.Errorf("%d rows are read to serve 100, and %d to serve 200 of 900", few, full)
	}
}

// An actor that has been told of many losses in the last hour, as a program with
// thousands of sessions, is told of the next without a look at those.
func TestTellingALossLooksAtNoneThatWasTold(t *testing.T) {
	looks := func(losses int) (rows int) {
		inHouse(t, registry.Options{}, func(t *testing.T, h *house) {
			p := h.party("A")
			for i := range losses {
				p = p.again()
				p.acquire(registry.Request{Key: fmt.Sprint("k", i)})
				h.endSession(p)
				p = p.again()
				err := h.eng.Update(t.Context(), func(tx engine.Tx) error {
					counted := &enginetest.CountedTx{Tx: tx}
					untold, _ := h.CountUntold(counted, p.Holder, anyParty)
					told, more := h.TakeUntold(counted, p.Holder, 20, anyParty)
					if untold != 1 || len(told) != 1 || told[0].Key != fmt.Sprint("k", i) || more != 0 {
						t.Errorf("loss %d: there are %v to tell, and %v are told and %d left", i, untold, told, more)
					}
					rows = counted.Rows
					return nil
				})
				if err != nil {
					t.Fatal(err)
				}
			}
			h.check()
		})
		return rows
	}
	if few, many := looks(3), looks(100); many > few {
		t.Errorf("telling a loss looks at %d rows after 3 losses, and at %d after 100", few, many)
	}
}

// A restart reads each lease once, however many its holder has.
func TestARestartReadsEachLeaseOnce(t *testing.T) {
	reads := func(leases int) (n int) {
		inHouse(t, registry.Options{}, func(t *testing.T, h *house) {
			p := h.party("A")
			for i := range leases {
				p.acquire(registry.Request{Key: fmt.Sprint("k", i), TTL: time.Hour})
			}
			count := &countedReads{Engine: h.eng}
			if err := registry.New(count, h.opts).Recover(t.Context()); err != nil {
				t.Fatal(err)
			}
			n = count.most
			h.check()
		})
		return n
	}
	if few, many := reads(100), reads(200); many-few > 100 {
		t.Errorf("a restart reads %d rows for 100 leases, and %d for 200", few, many)
	}
}

// However many wait for a key, whoever is refused it, joins the line or hands the key over
// looks at a few of them; also for a file, whose directory others may hold.
func TestALongLineCostsNobodyALook(t *testing.T) {
	looks := func(key string, waiting int) (refused, joined, handed int) {
		inHouse(t, registry.Options{}, func(t *testing.T, h *house) {
			count := &countedReads{Engine: h.eng}
			h.Core = registry.New(count, h.opts)
			most := func(do func()) (n int) {
				h.view(func(registry.Tx) { count.most = 0 }) // its updates count under the lock, too
				do()
				synctest.Wait()
				h.view(func(registry.Tx) { n = count.most })
				return n
			}
			a := h.party("A")
			lease := a.acquire(registry.Request{Key: key, TTL: time.Hour})
			for i := range waiting {
				h.party(fmt.Sprint("W", i)).wait(registry.Request{Key: key})
			}
			refused = most(func() {
				_, err := h.party("X").try(registry.Request{Key: key})
				if held := mustBe[*registry.HeldError](t, err); held.Waiters != waiting {
					t.Errorf("%d wait, and a refusal counts %d", waiting, held.Waiters)
				}
			})
			joined = most(func() { h.party("Y").wait(registry.Request{Key: key}) })
			handed = most(func() { a.release(lease) })
			time.Sleep(registry.MaxWait + time.Second)
		})
		return refused, joined, handed
	}
	for _, key := range []string{"x", "file:src/x"} {
		refusedFew, joinedFew, handedFew := looks(key, 3)
		refused, joined, handed := looks(key, 60)
		if refused > refusedFew || joined > joinedFew || handed > handedFew {
			t.Errorf("%s: if 3 wait, a refusal looks at %d rows, a wait at %d, a hand-over at %d; if 60 wait, at %d, %d and %d",
				key, refusedFew, joinedFew, handedFew, refused, joined, handed)
		}
	}
}

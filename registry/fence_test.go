package registry_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/leasehold/leasehold/registry"
)

// fenced is what a write is told now that needs a grant of "x".
func (h *house) fenced(g registry.Grant, strict bool) (err error) {
	h.view(func(tx registry.Tx) {
		need := h.Registry("run:1").Requirement(g.Key, g.Token)
		err = registry.Fence{Leases: []registry.Requirement{need}, Strict: strict}.Check(tx)
	})
	return err
}

func TestAWriteNeedsTheLatestGrant(t *testing.T) {
	inHouse(t, registry.Options{}, func(t *testing.T, h *house) {
		a, b := h.party("A"), h.party("B")
		first := a.acquire(registry.Request{Key: "x", TTL: 30 * time.Second})
		allowed := func(g registry.Grant, strict bool) {
			t.Helper()
			if err := h.fenced(g, strict); err != nil {
				t.Errorf("strict %v: %v", strict, err)
			}
		}
		refused := func(g registry.Grant, strict bool, text string) *registry.StaleError {
			t.Helper()
			stale := mustBe[*registry.StaleError](t, h.fenced(g, strict))
			if stale.Error() != text {
				t.Errorf("reads\n%s\nwant\n%s", stale, text)
			}
			return stale
		}
		for _, strict := range []bool{false, true} {
			allowed(first, strict)
		}
		if _, err := a.renew(first, 0); err != nil {
			t.Fatal(err)
		}
		allowed(first, true)

		// Past its deadline it is still the latest grant.
		time.Sleep(31 * time.Second)
		allowed(first, false)
		refused(first, true, fmt.Sprintf(`lease "x" with token %d is past its deadline: renew it before you write`, first.Token))

		// Another has it: the refusal names it.
		second := b.acquire(registry.Request{Key: "x", TTL: 30 * time.Second})
		time.Sleep(2 * time.Second)
		for _, strict := range []bool{false, true} {
			stale := refused(first, strict, fmt.Sprintf(`token %d of lease "x" is stale; lease "x" held by actor %s (B), expires in 28s; its token is %d: write nothing, acquire the lease again first`,
				first.Token, b.Actor, second.Token))
			if !stale.Held || stale.Lease.Holder.Path != "B" {
				t.Errorf("names %+v", stale.Lease.Holder)
			}
		}
		allowed(second, true)
		h.crash()
		allowed(second, true)

		// Nobody has it, and its last grant is worth nothing either.
		b.release(second)
		refused(second, false, fmt.Sprintf(`token %d of lease "x" is stale; nobody holds it now: acquire it again before you write`, second.Token))

		// Nor does a token of the same holder before, or of another key.
		third := b.acquire(registry.Request{Key: "x"})
		mustBe[*registry.StaleError](t, h.fenced(second, false))
		third.Key = "y"
		mustBe[*registry.StaleError](t, h.fenced(third, false))
	})
}

// A key that is reserved is held by nobody, and its reservation is no grant.
func TestAReservationIsNoGrant(t *testing.T) {
	inHouse(t, registry.Options{}, func(t *testing.T, h *house) {
		a, b := h.party("A"), h.party("B")
		g := a.acquire(registry.Request{Key: "x", TTL: time.Hour})
		_, err := b.try(registry.Request{Key: "x", Wait: time.Second})
		mustBe[*registry.WaitError](t, err)
		a.release(g)
		mustBe[*registry.StaleError](t, h.fenced(g, false))
		g.Token = 0
		if stale := mustBe[*registry.StaleError](t, h.fenced(g, false)); stale.Held {
			t.Errorf("reserved for %s", stale.Lease.Holder.Path)
		}
	})
}

func TestRequirementsAreBoundedAndAllHold(t *testing.T) {
	inHouse(t, registry.Options{}, func(t *testing.T, h *house) {
		a := h.party("A")
		var f registry.Fence
		var last registry.Grant
		for i := range registry.MaxRequirements {
			last = a.acquire(registry.Request{Key: fmt.Sprint(i)})
			f.Leases = append(f.Leases, h.Registry("run:1").Requirement(last.Key, last.Token))
		}
		check := func() (err error) {
			h.view(func(tx registry.Tx) { err = f.Check(tx) })
			return err
		}
		if err := check(); err != nil {
			t.Error(err)
		}
		a.release(last)
		if stale := mustBe[*registry.StaleError](t, check()); stale.Key != last.Key {
			t.Errorf("names %q", stale.Key)
		}
		f.Leases = append(f.Leases, f.Leases[0])
		mustBe[*registry.LimitError](t, check())
	})
}

package registry_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/registry"
)

// TestCheckFindsEveryDisagreement plants one at a time in a state that has
// something of everything.
func TestCheckFindsEveryDisagreement(t *testing.T) {
	first := func(tx engine.Tx, prefix string) engine.Row { // by the key schema in the package doc
		for row := range tx.Scan(prefix) {
			return row
		}
		panic("no row " + prefix)
	}
	remove := func(prefix string) func(engine.Tx) {
		return func(tx engine.Tx) { tx.Delete(first(tx, prefix).Key) }
	}
	change := func(prefix string, fn func(row *engine.Row)) func(engine.Tx) {
		return func(tx engine.Tx) {
			row := first(tx, prefix)
			fn(&row)
			tx.Put(row)
		}
	}
	spoil := func(prefix string) func(engine.Tx) {
		return change(prefix, func(row *engine.Row) { row.Value = row.Value[:len(row.Value)/2] })
	}
	double := func(prefix string) func(engine.Tx) { // the same row under another key
		return change(prefix, func(row *engine.Row) { row.Key += "2" })
	}
	ended := uuid.New()
	inHouse(t, registry.Options{}, func(t *testing.T, h *house) {
		h.over.add(ended)
		a, b, c := h.party("A"), h.party("B"), h.party("C")
		g := a.acquire(registry.Request{Key: "Src/My_File.ts"})
		c.wait(registry.Request{Key: "Src/My_File.ts"})
		a.mustOffer(g, &b, false)
		for name, c := range map[string]struct {
			plant func(engine.Tx)
			finds string
		}{
			"lease unreadable":          {spoil("lease/"), "is not a lease"},
			"lease lost":                {remove("lease/"), "is of no lease"},
			"lease of an ended session": {change("lease/", func(row *engine.Row) { row.Owner = ended }), "which has ended"},
			"lease doubled":             {double("lease/"), " is on "},
			"lease never due":           {change("lease/", func(row *engine.Row) { row.Due = time.Time{} }), "its deadline is"},
			"id lost":                   {remove("leaseid/"), "is not found by its id"},
			"id of no lease":            {double("leaseid/"), "is of no lease"},
			"offer lost":                {remove("offered/"), "is offered: true, and is found as such: false"},
			"offer of no lease":         {double("offered/"), "nobody holds the lease of the offer"},
			"spelling lost":             {remove("alike/"), "is not found by its spelling"},
			"spelling of no lease":      {double("alike/"), "which is found by its spelling"},
			"count lost":                {remove("count/held/"), "is missing, and there are 1"},
			"count of nothing":          {double("count/held/"), "and there are 0"},
			"notice unreadable":         {spoil("lost/"), "is not a notice"},
			"place unreadable":          {spoil("wait/"), "is not a place"},
			"place of no line":          {remove("wait/"), "1 parties have 0 places"},
			"place of no party":         {remove("place/"), "is not its party's"},
			"place that nothing keeps":  {remove("lease/"), "and nothing keeps it"},
			"place given up too early":  {change("wait/", func(row *engine.Row) { row.Due = time.Now() }), "parked false"},
		} {
			var found error
			err := h.eng.Update(t.Context(), func(tx engine.Tx) error {
				c.plant(tx)
				found = h.Check(tx)
				return errPlanted // the state stays as it was
			})
			if !errors.Is(err, errPlanted) {
				t.Fatal(err)
			}
			if found == nil || !strings.Contains(found.Error(), c.finds) {
				t.Errorf("%s: finds %v, want %q", name, found, c.finds)
			}
		}
		h.endSession(a)
	})
}

var errPlanted = errors.New("planted")

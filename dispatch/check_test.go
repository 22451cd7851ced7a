package dispatch_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/dispatch/work"
	"github.com/leasehold/leasehold/engine"
)

// Every contradiction between a work, its sums and its run is found.
func TestCheckFindsWorksThatDisagree(t *testing.T) {
	inHouse(t, dispatch.Options{}, func(t *testing.T, h *house) {
		tr := h.dispatch(work.Settings{Limits: work.Limits{BudgetUSD: 10}})
		tr.start()
		tr.spawn("root", dispatch.Spawn{Role: dispatch.Sublead, BudgetUSD: new(4.0)})
		tr.start()
		tr.spawn("S1", dispatch.Spawn{Role: dispatch.Worker})
		tr.start()
		tr.exit("S1→W1", work.Exit{Status: work.Succeeded, Cost: money(1)})
		if err := h.Check(t.Context()); err != nil {
			t.Fatal(err)
		}
		key := func(prefix, path string) string {
			id := tr.ids[path]
			return prefix + string(id[:])
		}
		for _, c := range []struct {
			what, key string
			change    func(map[string]any)
		}{
			{"a reservation that is too small", key("work/", "root"), func(w map[string]any) { w["Reserved"] = 1 }},
			{"a cost that nobody paid", key("work/", "S1→W1"), func(w map[string]any) { w["Spent"] = 5 }},
			{"a work that is final while its actor lives", key("work/", "S1"), func(w map[string]any) { w["Status"] = "failed" }},
			{"a work that runs while its actor has ended", key("work/", "S1→W1"), func(w map[string]any) { w["Status"] = "running" }},
			{"a status that is none", key("work/", "S1"), func(w map[string]any) { w["Status"] = "asleep" }},
			{"a final work with a session", key("work/", "S1→W1"), func(w map[string]any) { w["Session"] = tr.ids["S1"] }},
			{"a work of another lead", key("work/", "S1→W1"), func(w map[string]any) { w["Lead"] = tr.ids["root"] }},
			{"a count of the unfinished", "dispatched/r", func(d map[string]any) { d["Unfinished"] = 7 }},
			{"a run of another id", "dispatched/r", func(d map[string]any) { d["RunID"] = tr.ids["S1"] }},
			{"an order that is gone", key(engine.Cold+"work/order/", "S1"), nil},
			{"an actor that is gone", key("actor/", "S1→W1"), nil},
			{"a work that is gone", key("work/", "S1"), nil},
		} {
			was := h.plant(c.key, c.change)
			if err := h.Check(t.Context()); err == nil || !strings.Contains(err.Error(), "dispatch: ") {
				t.Errorf("%s is not found: %v", c.what, err)
			}
			h.put(was)
		}
		tr.exitAll()
	})
}

// plant changes a row, or deletes it if change is nil, and returns the old row.
func (h *house) plant(key string, change func(map[string]any)) (was engine.Row) {
	h.t.Helper()
	err := h.eng.Update(h.t.Context(), func(tx engine.Tx) error {
		row, ok := tx.Get(key)
		if !ok {
			h.t.Fatalf("there is no row %q", key)
		}
		was = row
		if change == nil {
			tx.Delete(key)
			return nil
		}
		var fields map[string]any
		if err := json.Unmarshal([]byte(row.Value), &fields); err != nil {
			return err
		}
		change(fields)
		b, err := json.Marshal(fields)
		row.Value = string(b)
		tx.Put(row)
		return err
	})
	if err != nil {
		h.t.Fatal(err)
	}
	return was
}

func (h *house) put(row engine.Row) {
	h.t.Helper()
	err := h.eng.Update(h.t.Context(), func(tx engine.Tx) error {
		tx.Put(row)
		return nil
	})
	if err != nil {
		h.t.Fatal(err)
	}
}

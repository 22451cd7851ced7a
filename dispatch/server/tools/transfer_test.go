package tools_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/leasehold/leasehold/dispatch"
)

// noticesOf returns the notices in an answer.
func noticesOf(t *testing.T, answer map[string]any) (list []map[string]any) {
	t.Helper()
	told, _ := answer["notices"].([]any)
	for _, n := range told {
		list = append(list, n.(map[string]any))
	}
	return list
}

// A lease is transferred to a named actor, which is told. The waiters keep their
// places.
func TestALeaseIsTransferred(t *testing.T) {
	inHouse(t, func(t *testing.T, h *house) {
		boss, s1 := h.actor(dispatch.Root, "", "boss"), h.actor(dispatch.Sublead, "", "S1")
		w1, w2 := h.actor(dispatch.Worker, "S1", "W1"), h.actor(dispatch.Worker, "S1", "W2")
		l := w1.ok("run_lease_acquire", args{"key": "deploy", "reason": "staging is done"})
		give := args{"lease_id": l["lease_id"], "to": "S1→W2"}
		nobody := w1.refused("NOT_FOUND", "lease_transfer", args{"lease_id": l["lease_id"], "to": "S1→W9"})
		if nobody["message"] != `no living actor "S1→W9" in this run; actor_list shows whom you work with, lease_list who holds what` {
			t.Errorf("refused: %v", nobody["message"])
		}
		w1.refused("INVALID_ARGUMENT", "lease_transfer", args{"lease_id": l["lease_id"], "to": "S1→W1"})
		w2.refused("NOT_HOLDER", "lease_transfer", give)
		if got := w1.ok("lease_transfer", give); got["offered_to"] != "S1→W2" || got["accepted"] != false {
			t.Errorf("offered: %v", got)
		}
		told := noticesOf(t, w2.ok("lease_list", args{"scope": "run"}))
		if len(told) != 1 || told[0]["code"] != "LEASE_OFFERED" || told[0]["key"] != "deploy" ||
			told[0]["holder"].(map[string]any)["path"] != "S1→W1" || told[0]["reason"] != "staging is done" || told[0]["lease_id"] != nil {
			t.Errorf("W2 is told %v", told)
		}
		list := boss.ok("lease_list", args{"scope": "run"})["leases"].([]any)
		if seen := list[0].(map[string]any); seen["offered_to"] != "S1→W2" {
			t.Errorf("listed: %v", seen)
		}
		mine := w2.ok("run_lease_acquire", args{"key": "deploy"})
		if mine["token"].(float64) <= l["token"].(float64) || mine["offered_to"] != nil {
			t.Errorf("accepted: %v", mine)
		}
		if lost := w1.refused("LEASE_LOST", "lease_renew", args{"lease_id": l["lease_id"]}); lost["superseded_by"] != "S1→W2" {
			t.Errorf("W1 has lost it: %v", lost)
		}

		// A layer's lease can be offered only within the layer. The holder can
		// withdraw the offer.
		out := w1.ok("lease_acquire", args{"name": "out"})
		w1.refused("INVALID_ARGUMENT", "lease_transfer", args{"lease_id": out["lease_id"], "to": "root"})
		w1.ok("lease_transfer", args{"lease_id": out["lease_id"], "to": "S1"})
		if e := s1.ok("kv_get", args{"path": "/leases/out"})["entry"].(map[string]any)["value"].(map[string]any); e["offered_to"] != "S1" {
			t.Errorf("the entry: %v", e)
		}
		if got := w1.ok("lease_transfer", args{"lease_id": out["lease_id"], "to": ""}); got["offered_to"] != "" {
			t.Errorf("taken back: %v", got)
		}
		s1.refused("LEASE_HELD", "lease_acquire", args{"name": "out"})

		// Whoever gave a lease away is told when it is gone, and is not told to take it again.
		w1.ok("lease_transfer", args{"lease_id": out["lease_id"], "to": "S1"})
		s1.ok("lease_acquire", args{"name": "out"})
		gone, err := w1.Call(h.ctx, "lease_list", nil)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(gone.Text, `you lost lease "out" (transferred, as you offered), now held by S1`) || strings.Contains(gone.Text, "acquire what you lost") {
			t.Errorf("W1 is told %s", gone.Text)
		}
	})
}

// One of the holder's answers tells it who waits and for what, and no later one
// repeats it.
func TestAHolderReadsOnceWhoWaits(t *testing.T) {
	inHouse(t, func(t *testing.T, h *house) {
		h.actor(dispatch.Root, "", "boss")
		w1, w2 := h.actor(dispatch.Worker, "", "W1"), h.actor(dispatch.Worker, "", "W2")
		w1.ok("run_lease_acquire", args{"key": "x", "ttl_secs": 3600})
		done := make(chan struct{})
		go func() {
			defer close(done)
			w2.refused("WAIT_TIMEOUT", "run_lease_acquire", args{"key": "x", "wait_secs": 5, "reason": "fixing the build"})
		}()
		time.Sleep(time.Second)
		answer, err := w1.Call(h.ctx, "kv_get", args{"path": "/shared/none"})
		if err != nil {
			t.Fatal(err)
		}
		if want := `W2 waits for your run lease "x" ("fixing the build"): release it as soon as you can`; !strings.Contains(answer.Text, want) {
			t.Errorf("the text is %q, want it to say %q", answer.Text, want)
		}
		if !strings.Contains(string(answer.Object), `"code":"LEASE_WANTED"`) {
			t.Errorf("the object is %s", answer.Object)
		}
		if again := noticesOf(t, w1.ok("kv_get", args{"path": "/shared/none"})); again != nil {
			t.Errorf("told again: %v", again)
		}
		<-done
		if told := fmt.Sprint(w1.ok("lease_list", nil)["notices"]); told != "<nil>" {
			t.Errorf("told later: %v", told)
		}
	})
}

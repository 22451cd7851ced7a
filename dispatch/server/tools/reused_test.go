package tools_test

import (
	"strings"
	"testing"

	"github.com/leasehold/leasehold/dispatch"
)

// A request_id stands for what it was once given, also when that is gone. The answer says
// that another one gets more, because the same call would get the same answer for ever.
func TestAnswersToAUsedRequestIDSayToUseANewOne(t *testing.T) {
	inHouse(t, func(t *testing.T, h *house) {
		h.actor(dispatch.Root, "", "boss")
		w := h.actor(dispatch.Worker, "", "W1")

		lease := args{"key": "x", "request_id": "once"}
		w.ok("run_lease_release", args{"lease_id": w.ok("run_lease_acquire", lease)["lease_id"]})
		lost := w.refused("LEASE_LOST", "run_lease_acquire", lease)
		if want := `lease "x" is no longer yours: released; acquire it again, with a new request_id (or Idempotency-Key), before you touch what it guards`; lost["message"] != want {
			t.Errorf("the lease: %q, want %q", lost["message"], want)
		}
		lease["request_id"] = "again"
		w.ok("run_lease_acquire", lease)

		claim := args{"queues": []string{"q"}, "ttl_secs": 60, "request_id": "claim"}
		w.ok("task_enqueue", args{"queue": "q", "payload": 1})
		task := w.ok("task_claim", claim)["tasks"].([]any)[0].(map[string]any)
		w.ok("task_submit", args{"task_id": task["task_id"], "token": task["token"], "status": "completed"})
		w.ok("task_enqueue", args{"queue": "q", "payload": 2})
		if told, err := w.Call(h.ctx, "task_claim", claim); err != nil || !strings.Contains(told.Text, "claim with a new one") {
			t.Errorf("the claim: %q, %v", told.Text, err)
		}
	})
}

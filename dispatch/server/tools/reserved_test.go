package tools_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/dispatch/server"
	"github.com/leasehold/leasehold/registry"
)

// While a key is kept for the first in line, everybody who looks for its holder is told for whom.
func TestAReservationIsShownWhereTheHolderWouldBe(t *testing.T) {
	inHouse(t, func(t *testing.T, h *house) {
		h.actor(dispatch.Root, "", "boss")
		holder, first, other := h.actor(dispatch.Worker, "", "W1"), h.actor(dispatch.Worker, "", "W2"), h.actor(dispatch.Worker, "", "W3")
		operator := h.connect(server.Hello{Operator: true})
		key := args{"scope": "run", "key": "deploy"}
		doors := func() map[string]map[string]any {
			return map[string]map[string]any{
				"lease_list":           other.ok("lease_list", args{"prefix": "dep"}),
				"lease_get":            other.ok("lease_get", key),
				"lease_check":          other.ok("lease_check", need("run", "deploy", 1)),
				"operator_leases":      operator.ok("operator_leases", args{"run": "r"}),
				"operator_lease_check": operator.ok("operator_lease_check", args{"run": "r", "scope": "run", "key": "deploy", "token": 1}),
			}
		}
		mine := holder.ok("run_lease_acquire", args{"key": "deploy"})
		first.refused("WAIT_TIMEOUT", "run_lease_acquire", args{"key": "deploy", "wait_secs": 1})
		for door, answer := range doors() {
			if strings.Contains(fmt.Sprint(answer), "reserved") {
				t.Errorf("%s tells of a reservation while the key is held: %v", door, answer)
			}
		}
		holder.ok("run_lease_release", args{"lease_id": mine["lease_id"]})
		for door, answer := range doors() {
			kept := answer
			if list, ok := answer["reserved"].([]any); ok && len(list) == 1 {
				kept = list[0].(map[string]any)
				answer["reserved_for"] = kept["for"]
			}
			if answer["reserved_for"] != "W2" || kept["key"] != "deploy" || kept["scope"] != "run" || kept["expires_in_ms"] != float64(registry.ReserveTime.Milliseconds()) {
				t.Errorf("%s does not say for whom the key is kept: %v", door, answer)
			}
		}
		if answer, err := other.Call(h.ctx, "lease_list", args{}); err != nil || answer.Line() != `0 leases; run lease "deploy" is reserved for W2, which is first in line, for 5s` {
			t.Errorf("lease_list says %s, %v", answer.Text, err)
		}
		time.Sleep(registry.ReserveTime + 1)
		for door, answer := range doors() {
			if strings.Contains(fmt.Sprint(answer), "reserved") {
				t.Errorf("%s tells of a reservation that is over: %v", door, answer)
			}
		}
	})
}

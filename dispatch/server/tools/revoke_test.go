package tools_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/dispatch/server"
)

// A lead revokes leases within its sub-tree and nowhere else. The holder is told
// who revoked the lease and why, and its writes are refused from then on.
func TestALeadRevokesWithinItsSubTree(t *testing.T) {
	inHouse(t, func(t *testing.T, h *house) {
		root, s1, s2 := h.actor(dispatch.Root, "", "boss"), h.actor(dispatch.Sublead, "", "S1"), h.actor(dispatch.Sublead, "", "S2")
		w1, w2 := h.actor(dispatch.Worker, "S1", "W1"), h.actor(dispatch.Worker, "S2", "W2")
		token := w1.ok("run_lease_acquire", args{"key": "deploy", "keep_alive": true})["token"]
		take := args{"scope": "run", "key": "deploy", "reason": "the window is over"}

		w2.refused("FORBIDDEN", "lease_revoke", take)
		if no := s2.refused("FORBIDDEN", "lease_revoke", take); !strings.Contains(fmt.Sprint(no["message"]), "S1→W1") {
			t.Errorf("refusal: %v", no)
		}
		s2.refused("INVALID_ARGUMENT", "lease_revoke", args{"scope": "run", "key": "deploy"})
		if done := s1.ok("lease_revoke", take); done["revoked"] != true || done["holder"].(map[string]any)["path"] != "S1→W1" || done["token"].(float64) <= token.(float64) {
			t.Errorf("revoked: %v", done)
		}
		write := args{"path": "/shared/a", "value": 1, "require_leases": []args{need("run", "deploy", token)}}
		told := w1.refused("STALE_TOKEN", "kv_set", write)["notices"].([]any)
		if n := told[0].(map[string]any); len(told) != 1 || n["code"] != "LEASE_LOST" || n["reason"] != `revoked by S1: "the window is over"` {
			t.Errorf("told: %v", told)
		}
		if again := s1.ok("lease_revoke", take); again["revoked"] != false || again["holder"] != nil {
			t.Errorf("again: %v", again)
		}

		// A lead revokes leases of its own layer and of those below it.
		w1.ok("lease_acquire", args{"name": "out"})
		layered := args{"scope": "layer", "key": "/leases/out", "reason": "wrong branch"}
		if done := s2.ok("lease_revoke", layered); done["revoked"] != false {
			t.Errorf("of another layer: %v", done)
		}
		layered["layer"] = "S1"
		s2.refused("NOT_FOUND", "lease_revoke", layered)
		if done := root.ok("lease_revoke", layered); done["revoked"] != true || done["key"] != "out" {
			t.Errorf("of a layer below: %v", done)
		}

		// A lead revokes a shared lease only from holders in its sub-tree. The
		// operator revokes it from all.
		for _, c := range []caller{w1, w2, root} {
			c.ok("run_lease_acquire", args{"key": "schema", "mode": "shared"})
		}
		op := h.connect(server.Hello{Operator: true})
		shared := args{"scope": "run", "key": "schema", "reason": "it changes"}
		if done := s1.ok("lease_revoke", shared); done["count"] != 1.0 || done["spared"] != 2.0 {
			t.Errorf("of those who share it: %v", done)
		}
		shared["run"] = "r"
		if done := op.ok("operator_lease_revoke", shared); done["count"] != 2.0 || len(done["holders"].([]any)) != 2 {
			t.Errorf("by the operator: %v", done)
		}

		// Whoever asks about a file learns who holds its directory.
		w1.ok("run_lease_acquire", args{"key": "file:src/**"})
		for _, key := range []string{"file:src/deep/app.ts", "file:**", "file:lib/app.ts"} {
			done := s1.ok("lease_revoke", args{"scope": "run", "key": key, "reason": "r"})
			over, _ := done["overlap"].(map[string]any)
			if want := key != "file:lib/app.ts"; done["revoked"] != false || want != (over["key"] == "file:src/**") {
				t.Errorf("revoke of %s: %v", key, done)
			}
		}
		if held := s1.ok("lease_get", args{"scope": "run", "key": "file:src/deep/app.ts"})["leases"].([]any); len(held) != 1 || held[0].(map[string]any)["key"] != "file:src/**" {
			t.Errorf("lease_get: %v", held)
		}
		s1.refused("INVALID_ARGUMENT", "actor_message", args{"to": "holder of file:src/deep/app.ts", "text": "hello"})
		if check := s1.ok("lease_check", args{"scope": "run", "key": "file:src/deep/app.ts", "token": 1}); check["held_key"] != "file:src/**" {
			t.Errorf("check: %v", check)
		}
		stale := s1.refused("STALE_TOKEN", "kv_set", args{"path": "/shared/x", "value": 1, "require_leases": []any{args{"scope": "run", "key": "file:src/deep/app.ts", "token": 1}}})
		if text := fmt.Sprint(stale["message"]); !strings.Contains(text, `lease "file:src/**" held by`) || !strings.Contains(text, `"file:src/deep/app.ts" overlaps with it`) {
			t.Errorf("a write that needs another lease: %s", text)
		}
		op.refused("NOT_FOUND", "operator_lease_revoke", args{"run": "none", "scope": "run", "key": "x", "reason": "y"})
	})
}

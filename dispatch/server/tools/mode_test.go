package tools_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/dispatch/client"
)

// The answer to a grant says that somebody holds a key that differs only in
// spelling.
func TestKeysThatAreSpeltAlikeAreNamed(t *testing.T) {
	inHouse(t, func(t *testing.T, h *house) {
		a, b := h.actor(dispatch.Root, "", "A"), h.actor(dispatch.Worker, "", "B")
		a.ok("run_lease_acquire", args{"key": "Deploy prod"})
		a.ok("lease_acquire", args{"name": "Out.json"})
		for _, g := range []map[string]any{
			b.ok("run_lease_acquire", args{"key": "deploy-prod"}),
			b.ok("lease_acquire_many", args{"leases": []args{{"scope": "run", "key": "deploy_prod"}}})["leases"].([]any)[0].(map[string]any),
		} {
			if fmt.Sprint(g["similar"]) != "[Deploy prod deploy-prod]" && fmt.Sprint(g["similar"]) != "[Deploy prod]" {
				t.Errorf("granted %v", g)
			}
		}
		if g := b.ok("lease_acquire", args{"name": "out.json"}); fmt.Sprint(g["similar"]) != "[Out.json]" {
			t.Errorf("granted %v", g)
		}
		if g := b.ok("run_lease_acquire", args{"key": "deploy"}); g["similar"] != nil {
			t.Errorf("granted %v", g)
		}
	})
}

// Readers share a lease. Everything that shows leases tells a writer who the
// readers are and why they hold it.
func TestSharedLeasesAndReasonsAreShown(t *testing.T) {
	inHouse(t, func(t *testing.T, h *house) {
		lead := h.actor(dispatch.Root, "", "boss")
		const readers = 5
		for i := range readers {
			r := h.actor(dispatch.Worker, "", fmt.Sprint("R", i))
			g := r.ok("lease_acquire", args{"name": "x", "mode": "shared", "reason": "reading it"})
			if g["mode"] != "shared" || g["reason"] != "reading it" {
				t.Errorf("granted %v", g)
			}
			if l := r.ok("lease_renew", args{"lease_id": g["lease_id"]}); l["mode"] != "shared" || l["reason"] != "reading it" {
				t.Errorf("renewed %v", l)
			}
		}
		lead.ok("lease_acquire", args{"name": "y"})
		held := lead.refused("LEASE_HELD", "lease_acquire", args{"name": "x"})
		if held["mode"] != "shared" || held["reason"] != "reading it" || !strings.HasSuffix(held["message"].(string), `; shared; reason: "reading it"; call again with wait_secs to wait in line`) {
			t.Errorf("refused: %v", held)
		}
		if held := lead.refused("WAIT_TIMEOUT", "lease_acquire", args{"name": "x", "wait_secs": 1}); held["mode"] != "shared" {
			t.Errorf("after a wait: %v", held)
		}
		// A page may end between two readers of one key.
		modes, pages, next := map[string]int{}, 0, ""
		for more := true; more; more = next != "" {
			list := lead.ok("lease_list", args{"limit": 2, "after": next})
			pages++
			for _, l := range list["leases"].([]any) {
				l := l.(map[string]any)
				modes[fmt.Sprint(l["name"], " ", l["mode"], " ", l["reason"])]++
			}
			next, _ = list["next"].(string)
		}
		if pages < 3 || len(modes) != 2 || modes["x shared reading it"] != readers || modes["y exclusive <nil>"] != 1 {
			t.Errorf("%d pages: %v", pages, modes)
		}
		lead.refused("INVALID_ARGUMENT", "lease_list", args{"after": "x"})
		// The store shows a key once.
		entries := lead.ok("kv_list", args{"glob": "/leases/**", "values": true})["entries"].([]any)
		if len(entries) != 2 {
			t.Errorf("entries: %v", entries)
		}
		value := entries[0].(map[string]any)["value"].(map[string]any)
		if value["mode"] != "shared" || value["reason"] != "reading it" {
			t.Errorf("entry: %v", value)
		}
		if more := lead.ok("kv_list", args{"glob": "/leases/**", "after": "/leases/x"})["entries"].([]any); len(more) != 1 {
			t.Errorf("behind x: %v", more)
		}
		lead.refused("INVALID_ARGUMENT", "lease_acquire", args{"name": "z", "mode": "both"})
		lead.refused("INVALID_ARGUMENT", "lease_acquire", args{"name": "z", "reason": "two\nlines"})
		lead.refused("INVALID_ARGUMENT", "lease_acquire", args{"name": "z", "reason": strings.Repeat("x", 257)})
	})
}

// A program is told which end of a refusal says what an agent can do next, and so it can
// use words of its own for that.
func TestTheAdviceInARefusalIsMarkedForPrograms(t *testing.T) {
	inHouse(t, func(t *testing.T, h *house) {
		h.actor(dispatch.Root, "", "boss").ok("run_lease_acquire", args{"key": "a"})
		w := h.actor(dispatch.Worker, "", "W1")
		for _, wait := range []int{0, 1} {
			ask := args{"key": "a", "wait_secs": wait}
			if object := w.refused([]string{"LEASE_HELD", "WAIT_TIMEOUT"}[wait], "run_lease_acquire", ask); object["next"] != nil {
				t.Errorf("an agent is told its advice twice: %v", object)
			}
			_, err := w.Call(client.WithoutNotices(h.ctx), "run_lease_acquire", ask)
			refusal, _ := errors.AsType[*client.Refusal](err)
			var object struct{ Message, Next string }
			if err := json.Unmarshal(refusal.Object, &object); err != nil {
				t.Fatal(err)
			}
			if what, ok := strings.CutSuffix(object.Message, object.Next); !ok || strings.Contains(what, "call again") || !strings.Contains(object.Next, "call again") {
				t.Errorf("the end of %q is %q", object.Message, object.Next)
			}
		}
	})
}

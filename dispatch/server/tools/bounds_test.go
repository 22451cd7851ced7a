package tools_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/leasehold/leasehold/dispatch"
)

// No list that an agent asks for fills its context, or is cut off by its client,
// whatever has been given long names and reasons. Its pages together have
// everything once, in order.
func TestListsOfAgentsAreBoundedInBytes(t *testing.T) {
	inHouse(t, func(t *testing.T, h *house) {
		root := h.actor(dispatch.Root, "", "boss")
		long := strings.Repeat("x", 200)
		var refs []string
		for i := range 150 {
			name := fmt.Sprintf("W%03d-%s", i, long[:50])
			w := h.actor(dispatch.Worker, "", name)
			w.ok("run_lease_acquire", args{"key": fmt.Sprintf("%03d-%s", i, long), "reason": long})
			w.ok("task_enqueue", args{"queue": fmt.Sprintf("q%03d-%s", i, long[:50]), "payload": 1})
			if i < 10 {
				w.ok("actor_report", args{"result": strings.Repeat("r", 10_000)})
			}
			refs = append(refs, name)
		}
		for i := range 60 {
			root.ok("task_enqueue", args{"queue": "dead", "payload": i, "max_attempts": 3})
			for range 3 {
				claimed := root.ok("task_claim", args{"queues": []string{"dead"}, "ttl_secs": 60})["tasks"].([]any)[0].(map[string]any)
				root.ok("task_nack", args{"task_id": claimed["task_id"], "token": claimed["token"], "delay_secs": 0, "reason": long})
			}
		}
		for i := range 400 {
			root.ok("task_enqueue", args{"queue": fmt.Sprint("r", i), "payload": 1})
			root.ok("kv_set", args{"path": fmt.Sprintf("/shared/%03d", i), "value": 1})
		}

		const most = 30_000 // bytes of an answer
		for _, c := range []struct {
			tool, list, name string
			args             args
			count            int
		}{
			{"lease_list", "leases", "key", args{"limit": 200}, 150},
			{"actor_list", "actors", "path", args{"limit": 200}, 151},
			{"queue_stats", "queues", "queue", args{"limit": 1000}, 551},
			{"queue_dead", "tasks", "task_id", args{"queue": "dead", "limit": 100}, 60},
			{"kv_list", "entries", "path", args{"glob": "/shared/**", "limit": 1000, "values": false}, 400},
		} {
			seen := make(map[string]bool)
			for pages := 0; ; pages++ {
				answer, err := root.Call(h.ctx, c.tool, c.args)
				if err != nil {
					t.Fatalf("%s %v: %v", c.tool, c.args, err)
				}
				if len(answer.Object) > most || len(answer.Text) > most {
					t.Errorf("%s answers %d bytes, and %d of text", c.tool, len(answer.Object), len(answer.Text))
				}
				object, last := root.ok(c.tool, c.args), ""
				for _, e := range object[c.list].([]any) {
					last = e.(map[string]any)[c.name].(string)
					if seen[last] {
						t.Errorf("%s: %s comes twice", c.tool, last)
					}
					seen[last] = true
				}
				next, _ := object["next"].(string)
				if object["more"] == true {
					next = last
				}
				if next == "" {
					if pages == 0 {
						t.Errorf("%s: one page has it all, which tests nothing", c.tool)
					}
					break
				}
				c.args["after"] = next
			}
			if len(seen) != c.count {
				t.Errorf("%s has %d elements on its pages, want %d", c.tool, len(seen), c.count)
			}
		}

		// What does not fit is asked for again.
		results := 0
		for ask := refs[:10]; len(ask) > 0; {
			object := root.ok("actor_wait", args{"actors": ask, "wait_secs": 0})
			ask = nil
			size := 0
			for _, a := range object["actors"].([]any) {
				actor := a.(map[string]any)
				if result, ok := actor["result"].(string); ok {
					results++
					size += len(result)
				} else if actor["result_left_out"] == true {
					ask = append(ask, actor["path"].(string))
				}
			}
			if size > most {
				t.Errorf("actor_wait answers %d bytes of results", size)
			}
		}
		if results != 10 {
			t.Errorf("%d results, want 10", results)
		}
	})
}

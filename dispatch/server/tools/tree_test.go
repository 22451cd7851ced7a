package tools_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/leasehold/leasehold/dispatch/server"
)

// For every page size, the pages together are the whole list: each actor once,
// each lead before its layer, and each run before the next.
func TestPagesOfActorsAreTheWholeList(t *testing.T) {
	inHouse(t, func(t *testing.T, h *house) {
		op := h.connect(server.Hello{Operator: true})
		add := func(run, role, parent, name string) string {
			made := op.ok("operator_actor_add", args{"run": run, "role": role, "name": name, "parent": parent})
			return made["token"].(string)
		}
		var tokens []string
		for _, run := range []string{"a", "b", "c"} {
			tokens = append(tokens, add(run, "root", "", "lead"))
		}
		for i := range 3 {
			add("a", "worker", "", fmt.Sprintf("W%d", i))
			add("a", "sublead", "", fmt.Sprintf("S%d", i))
			add("a", "worker", fmt.Sprintf("S%d", i), "deep")
		}
		worker := add("b", "worker", "", "W")
		all := func(c caller, tool string, limit int, asked args) (seen []string) {
			t.Helper()
			asked = maps.Clone(asked)
			asked["limit"] = limit
			for pages := 0; ; pages++ {
				page, n := c.ok(tool, asked), 0
				count := func(run string, list any) {
					for _, a := range list.([]any) {
						seen = append(seen, run+a.(args)["path"].(string))
						n++
					}
				}
				if runs, ok := page["runs"].([]any); ok {
					for _, r := range runs {
						count(r.(args)["run"].(string)+"/", r.(args)["actors"])
					}
				} else {
					count("", page["actors"])
				}
				if n == 0 || n > limit || pages > 100 {
					t.Fatalf("%s: page %d has %d actors, of at most %d", tool, pages, n, limit)
				}
				if asked["after"] = page["next"]; page["next"] == nil {
					return seen
				}
			}
		}
		for _, list := range []struct {
			who  caller
			tool string
			args args
			want string
		}{
			{op, "operator_tree", args{}, "a/root a/S0 a/S0→deep a/S1 a/S1→deep a/S2 a/S2→deep a/W0 a/W1 a/W2 b/root b/W c/root"},
			{op, "operator_tree", args{"run": "a"}, "a/root a/S0 a/S0→deep a/S1 a/S1→deep a/S2 a/S2→deep a/W0 a/W1 a/W2"},
			{op, "operator_tree", args{"run": "c"}, "c/root"},
			{h.connect(server.Hello{Token: tokens[0]}), "actor_list", args{}, "root S0 S0→deep S1 S1→deep S2 S2→deep W0 W1 W2"},
			{h.connect(server.Hello{Token: worker}), "actor_list", args{}, "root W"},
		} {
			for limit := 1; limit <= 14; limit++ {
				if got := all(list.who, list.tool, limit, list.args); !slices.Equal(got, strings.Fields(list.want)) {
					t.Errorf("%s %v by %d: %q", list.tool, list.args, limit, got)
				}
			}
		}
		end := func(run, path string) { op.ok("operator_actor_end", args{"run": run, "path": path}) }
		end("a", "W0")
		end("a", "S1") // with the one below
		end("b", "root")
		for _, list := range []struct {
			args args
			want string
			runs int // that have ended
		}{
			{args{"ended": false}, "a/root a/S0 a/S0→deep a/S2 a/S2→deep a/W1 a/W2 c/root", 1},
			{args{"ended": false, "run": "a"}, "a/root a/S0 a/S0→deep a/S2 a/S2→deep a/W1 a/W2", 0},
			{args{"ended": false, "run": "b"}, "b/root b/W", 0}, // it is named
		} {
			for limit := 1; limit <= 9; limit++ {
				if got := all(op, "operator_tree", limit, list.args); !slices.Equal(got, strings.Fields(list.want)) {
					t.Errorf("%v by %d: %q", list.args, limit, got)
				}
				list.args["limit"] = limit
				first := op.ok("operator_tree", list.args)
				delete(list.args, "limit")
				runs, _ := first["ended"].(float64)
				actors, _ := first["runs"].([]any)[0].(args)["ended"].(float64)
				if left := map[bool]float64{true: 3}[list.args["run"] != "b"]; int(runs) != list.runs || actors != left {
					t.Errorf("%v by %d: %v runs and %v actors of the first are left out", list.args, limit, runs, actors)
				}
			}
		}
		counts := make(map[string]any)
		alone := func(asked args) (names []string) {
			asked["actors"], asked["limit"] = false, 1
			for {
				page := op.ok("operator_tree", asked)
				for _, r := range page["runs"].([]any) {
					names = append(names, r.(args)["run"].(string))
					counts[names[len(names)-1]] = r.(args)["actor_count"]
				}
				if asked["after"] = page["next"]; page["next"] == nil {
					return names
				}
			}
		}
		if got, living := alone(args{}), alone(args{"ended": false}); !slices.Equal(got, []string{"a", "b", "c"}) || !slices.Equal(living, []string{"a", "c"}) {
			t.Errorf("alone they are %q, the living %q", got, living)
		}
		if want := map[string]any{"a": 10.0, "b": 2.0, "c": 1.0}; !maps.Equal(counts, want) {
			t.Errorf("they have %v actors, want %v", counts, want)
		}
		op.refused("INVALID_ARGUMENT", "operator_tree", args{"after": "a"})
		op.refused("INVALID_ARGUMENT", "operator_tree", args{"after": "a/nobody"})
		op.refused("NOT_FOUND", "operator_tree", args{"run": "d"})
		for _, tool := range []string{"operator_leases", "operator_kv", "operator_events", "operator_run_remove"} {
			if r := op.refused("INVALID_ARGUMENT", tool, args{}); r["argument"] != "run" {
				t.Errorf("%s without a run: %v", tool, r)
			}
		}
	})
}

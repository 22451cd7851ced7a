package view_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/leasehold/leasehold/cmd/leasehold/internal/connection"
	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/dispatch/server"
)

// A tree of more actors than one answer has is shown whole.
func TestATreeOfManyPages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDaemon(t)
		add := func(a dispatch.NewActor) {
			if _, _, err := d.state.AddActor(t.Context(), a); err != nil {
				t.Fatal(err)
			}
		}
		want := map[string]int{"a": 3, "b": 1202, "c": 2}
		for run, n := range want {
			add(dispatch.NewActor{Run: run, Name: "lead", Role: dispatch.Root})
			add(dispatch.NewActor{Run: run, Name: "S", Role: dispatch.Sublead})
			for i := range n - 2 {
				add(dispatch.NewActor{Run: run, Name: fmt.Sprint("W", i), Role: dispatch.Worker, Parent: []string{"", "S"}[i%2]})
			}
		}
		answer, err := connection.Call(t.Context(), d.connect(server.Hello{Operator: true}), "operator_tree", map[string]any{})
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(answer.Object), `"next"`) {
			t.Error("the list says that there is more")
		}
		var list struct {
			Runs []struct {
				Run    string
				Actors []struct{ Path string }
			}
		}
		if err := json.Unmarshal(answer.Object, &list); err != nil || len(list.Runs) != len(want) {
			t.Fatal(len(list.Runs), err)
		}
		for _, r := range list.Runs {
			seen := make(map[string]bool)
			for _, a := range r.Actors {
				seen[a.Path] = true
			}
			if len(r.Actors) != want[r.Run] || len(seen) != want[r.Run] {
				t.Errorf("run %s has %d actors with %d paths, want %d", r.Run, len(r.Actors), len(seen), want[r.Run])
			}
		}
	})
}

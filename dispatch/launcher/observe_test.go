package launcher_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/leasehold/leasehold/dispatch/launcher"
)

// What changes between two looks is told once: what is given back before what
// is taken, and a wait in the words that the waiter would read.
func TestChangesOfLeasesBecomeEvents(t *testing.T) {
	const (
		none    = `{"leases": []}`
		held    = `{"leases": [{"scope": "run", "key": "k", "token": 1, "expires_in_ms": 27001, "holder": {"actor_id": "a", "path": "S1→W1"}, "waiters": []}]}`
		waited  = `{"leases": [{"scope": "run", "key": "k", "token": 1, "expires_in_ms": 27001, "holder": {"actor_id": "a", "path": "S1→W1"}, "waiters": [{"actor_id": "b", "path": "S2"}, {"actor_id": "b", "path": "S2"}]}]}`
		handed  = `{"leases": [{"scope": "run", "key": "k", "token": 2, "expires_in_ms": 30000, "holder": {"actor_id": "b", "path": "S2"}, "waiters": []}]}`
		renewed = `{"leases": [{"scope": "run", "key": "k", "token": 1, "expires_in_ms": 60000, "holder": {"actor_id": "a", "path": "S1→W1"}, "waiters": []}]}`
		layers  = `{"leases": [{"scope": "layer", "layer": "S1", "name": "f", "token": 3, "holder": {"path": "S1→W1"}}, {"scope": "layer", "layer": "S2", "name": "f", "token": 4, "holder": {"path": "S2→W1"}}]}`
	)
	for name, c := range map[string]struct {
		before, after string
		want          []string
	}{
		"taken":     {none, held, []string{`lease_held: S1→W1 holds run lease "k", token 1`}},
		"waited":    {held, waited, []string{`lease_waiting: S2 waits: lease "k" held by actor a (S1→W1), expires in 28s`}},
		"handed":    {waited, handed, []string{`lease_freed: S1→W1 no longer holds run lease "k"`, `lease_held: S2 holds run lease "k", token 2`}},
		"renewed":   {held, renewed, nil},
		"given up":  {waited, held, nil},
		"freed":     {held, none, []string{`lease_freed: S1→W1 no longer holds run lease "k"`}},
		"in layers": {none, layers, []string{`lease_held: S1→W1 holds layer lease "f", token 3`, `lease_held: S2→W1 holds layer lease "f", token 4`}},
	} {
		got, err := launcher.Changes(c.before, c.after)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

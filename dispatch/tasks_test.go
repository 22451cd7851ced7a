package dispatch_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/uuid"

	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/dispatch/process"
	"github.com/leasehold/leasehold/queue"
)

// TestOnlyItsEnqueuerItsClaimantAndLeadsEndATask lets each of them cancel and
// redrive a task. Another worker may only read it.
func TestOnlyItsEnqueuerItsClaimantAndLeadsEndATask(t *testing.T) {
	inHouse(t, dispatch.Options{}, func(t *testing.T, h *house) {
		who := make(map[string]dispatch.Tasks)
		for pid, a := range []struct {
			name, parent string
			role         dispatch.Role
		}{
			{"root", "", dispatch.Root},
			{"S1", "root", dispatch.Sublead},
			{"enqueuer", "root", dispatch.Worker},
			{"claimant", "root", dispatch.Worker},
			{"other", "root", dispatch.Worker},
		} {
			se := h.member(a.role, a.parent, a.name, pid+1)
			defer h.hangUp(se)
			who[a.name], _ = se.Tasks()
		}
		operator, err := h.RunTasks(t.Context(), "r")
		if err != nil {
			t.Fatal(err)
		}
		who["operator"] = operator
		claim := func(q string) queue.Claimed {
			got, err := who["claimant"].Claim(t.Context(), queue.Claim{Queues: []string{q}, TTL: time.Minute, Count: 1})
			if err != nil || len(got) != 1 {
				t.Fatal(got, err)
			}
			return got[0]
		}
		// dead returns a task of a queue whose only attempt is over.
		dead := func(q string) uuid.UUID {
			task, err := who["enqueuer"].Enqueue(t.Context(), queue.NewTask{Queue: q, Payload: json.RawMessage("1"), MaxAttempts: 1})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := who["claimant"].Abandon(t.Context(), task.ID, claim(q).Token); err != nil {
				t.Fatal(err)
			}
			return task.ID
		}
		may := func(name, what string, err error) {
			t.Helper()
			if refused := forbidden(err); refused != (name == "other") || err != nil && !refused {
				t.Errorf("%s %s: %v", name, what, err)
			}
			if name == "other" && !strings.Contains(err.Error(), "enqueuer") {
				t.Errorf("%s is not told who may: %v", name, err)
			}
		}
		for name, tasks := range who {
			id := dead(name + "1")
			if _, err := tasks.Get(t.Context(), id); err != nil {
				t.Errorf("%s looks: %v", name, err)
			}
			_, err := tasks.Redrive(t.Context(), name+"1", []uuid.UUID{id})
			may(name, "redrives the task", err)
			id = dead(name + "2")
			_, err = tasks.Redrive(t.Context(), name+"2", nil)
			may(name, "redrives what is dead", err)
			if d, _ := who["root"].Get(t.Context(), id); (d.State == queue.Dead) != (name == "other") {
				t.Errorf("after a redrive of %s the task is %s", name, d.State)
			}
			if _, err := who["root"].Redrive(t.Context(), name+"2", nil); err != nil {
				t.Fatal(err)
			}
			claim(name + "2")
			_, err = tasks.Cancel(t.Context(), id)
			may(name, "cancels the task", err)
		}
	})
}

// TestTheEndOfASessionWithManyClaimsGoesInSteps ends a session that holds 30
// 000 claims. Between any two of its transactions another caller's call
// succeeds.
func TestTheEndOfASessionWithManyClaimsGoesInSteps(t *testing.T) {
	const claims, step = 3000, 256
	synctest.Test(t, func(t *testing.T) {
		state, late, closeEngine := openLate(t, vfs.NewMem())
		defer closeEngine()
		connect := func(token string) (*dispatch.Session, dispatch.Tasks) {
			se, err := state.Connect(t.Context(), dispatch.Credentials{Token: token}, process.Peer{})
			if err != nil {
				t.Fatal(err)
			}
			tasks, err := se.Tasks()
			if err != nil {
				t.Fatal(err)
			}
			return se, tasks
		}
		_, token, err := state.AddActor(t.Context(), dispatch.NewActor{Run: "r", Name: "boss", Role: dispatch.Root})
		if err != nil {
			t.Fatal(err)
		}
		other, calls := connect(token)
		greedy, tasks := connect(token)
		for range claims {
			if _, err := calls.Enqueue(t.Context(), queue.NewTask{Queue: "q", Payload: json.RawMessage("1")}); err != nil {
				t.Fatal(err)
			}
		}
		for range claims / queue.MaxCount {
			if got, err := tasks.Claim(t.Context(), queue.Claim{Queues: []string{"q"}, TTL: time.Minute, Count: queue.MaxCount}); err != nil || len(got) != queue.MaxCount {
				t.Fatal(len(got), err)
			}
		}
		left := func() uint64 {
			list, _, err := calls.Stats(t.Context(), "q", "", 1)
			if err != nil {
				t.Fatal(err)
			}
			return list[0].InProgress
		}
		steps, was := 0, left()
		var between func()
		between = func() {
			late.after = nil // not for the calls made here
			if _, err := calls.Enqueue(t.Context(), queue.NewTask{Queue: "other", Payload: json.RawMessage("1")}); err != nil {
				t.Error(err)
			}
			now := left()
			if was-now > step {
				t.Errorf("one step gave back %d claims", was-now)
			}
			steps, was = steps+1, now
			if steps == 1 { // a check reads everything, so one must do
				if err := state.Check(context.Background()); err != nil {
					t.Errorf("between two steps: %v", err)
				}
			}
			late.after = between
		}
		late.after = between
		if err := greedy.Close(errors.New("gone")); err != nil {
			t.Fatal(err)
		}
		late.after = nil
		if steps < claims/step || left() != 0 {
			t.Errorf("%d steps, and %d claims are left", steps, left())
		}
		if err := errors.Join(other.Close(nil), state.Check(context.Background())); err != nil {
			t.Error(err)
		}
	})
}

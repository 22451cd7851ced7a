package queue_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/leasehold/leasehold/queue"
	"github.com/leasehold/leasehold/registry"
)

// as is a sub-agent of the same session.
func (w worker) as(party string) worker {
	w.Party = party
	return w
}

// Two sub-agents of a session may choose the same request_id. Neither gets the task of
// the other: both would execute it.
func TestARequestIsThatOfItsParty(t *testing.T) {
	inHouse(t, func(t *testing.T, h *house) {
		session := h.worker("W1")
		for range 2 {
			h.enqueue(queue.NewTask{})
		}
		ask := queue.Claim{RequestID: "1"}
		first := session.as("a").claim(ask)
		if got, err := session.as("b").ask(ask); err == nil {
			t.Errorf("b claims %+v, and a has %s", got, first.ID)
		}
		if again := session.as("a").claim(ask); again.ID != first.ID || again.Token != first.Token {
			t.Errorf("a claimed %s, and then %s", first.ID, again.ID)
		}
	})
}

// What a sub-agent claimed and another one goes on with is not the first one's any more: a
// claim that it sends again gets it as little as one of another session would, and taking
// back the claim leaves it alone.
func TestAClaimSentAgainGetsNothingThatAnotherPartyHas(t *testing.T) {
	inHouse(t, func(t *testing.T, h *house) {
		session := h.worker("W1")
		a, b := session.as("a"), session.as("b")
		for range 2 {
			h.enqueue(queue.NewTask{})
		}
		ask := queue.Claim{RequestID: "1", Count: 2}
		tasks, err := a.askCtx(a.named("c"), ask)
		if err != nil || len(tasks) != 2 {
			t.Fatal(tasks, err)
		}
		if _, err := h.Heartbeat(t.Context(), b.Holder, h.run, tasks[0].ID, tasks[0].Token, 0); err != nil {
			t.Fatal(err)
		}
		h.crash()
		again, err := a.askCtx(a.named("c"), ask)
		if err != nil || len(again) != 1 || again[0].ID != tasks[1].ID {
			t.Errorf("a claims %+v, %v; want %s alone", again, err, tasks[1].ID)
		}
		a.undo("c")
		h.inState(tasks[0].ID, queue.InProgress)
		h.inState(tasks[1].ID, queue.Ready)
	})
}

// What is no name elsewhere is none in a claim: nothing that is done for the party later
// would find it.
func TestAClaimChecksTheNameOfItsParty(t *testing.T) {
	inHouse(t, func(t *testing.T, h *house) {
		h.enqueue(queue.NewTask{})
		for _, name := range []string{"a\nb", "\xff", strings.Repeat("a", registry.MaxParty+1)} {
			got, err := h.worker("W1").as(name).ask(queue.Claim{})
			if wrong, ok := errors.AsType[*registry.ArgumentError](err); !ok || wrong.Argument != "as" {
				t.Errorf("%q claims %+v: %v", name, got, err)
			}
		}
	})
}

// Whoever extends a claim continues the task. The claim stays when the party that had
// it ends, also after a restart, and ends with the party that has it now. What the
// session extends for its sub-agent stays the sub-agent's.
func TestAHeartbeatContinuesTheTask(t *testing.T) {
	inHouse(t, func(t *testing.T, h *house) {
		session := h.worker("W1")
		another := session.again()
		a := session.as("a")
		for name, c := range map[string]struct{ by, has worker }{
			"the session":     {session, a},
			"another party":   {session.as("b"), session.as("b")},
			"another session": {another, another},
			"a party of it":   {another.as("b"), another.as("b")},
		} {
			task := h.enqueue(queue.NewTask{})
			claimed := a.claim(queue.Claim{TTL: time.Hour})
			if _, err := h.Heartbeat(t.Context(), c.by.Holder, h.run, task.ID, claimed.Token, 0); err != nil {
				t.Fatal(err)
			}
			h.crash()
			for _, ends := range slices.Compact([]worker{a, c.has}) {
				if d := h.get(task.ID); ends == c.has && d.State != queue.InProgress {
					t.Errorf("extended by %s: %s before its end", name, d.State)
				}
				if err := h.core.EndParty(t.Context(), ends.Holder); err != nil {
					t.Fatal(err)
				}
			}
			h.inState(task.ID, queue.Ready)
			if err := a.submit(a.claim(queue.Claim{})); err != nil {
				t.Fatal(err)
			}
		}
	})
}

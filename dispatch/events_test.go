package dispatch_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/call"
	"github.com/leasehold/leasehold/engine/event"
	"github.com/leasehold/leasehold/queue"
	"github.com/leasehold/leasehold/registry"
)

// events describes the events of run r.
func (h *house) events(q dispatch.EventQuery) (list []string) {
	h.t.Helper()
	page, err := h.RunEvents(h.t.Context(), "r", q)
	if err != nil {
		h.t.Fatal(err)
	}
	for _, e := range page.Events {
		s := fmt.Sprint(e.Kind, " ", e.Path)
		if e.Kind != event.SessionBegan && e.Kind != event.SessionEnded && e.Queue == "" && e.Key != "" {
			s += " " + e.Layer + ":" + e.Key
		}
		if e.By != "" {
			s += " by " + e.By
		}
		if e.Cause != "" {
			s += " (" + e.Cause + ")"
		}
		list = append(list, s)
	}
	return list
}

func TestWhatHappensInARunIsOnRecord(t *testing.T) {
	inHouse(t, dispatch.Options{}, func(t *testing.T, h *house) {
		h.add(dispatch.Root, "", "boss")
		h.add(dispatch.Sublead, "", "S1")
		_, token := h.add(dispatch.Worker, "S1", "W1")
		w1 := h.connect(dispatch.Credentials{Token: token}, 50)
		acquire := func(scope dispatch.Scope, key string) registry.Grant {
			g, err := w1.Acquire(t.Context(), scope, registry.Request{Key: key})
			if err != nil {
				t.Fatal(err)
			}
			return g
		}
		g := acquire(dispatch.LayerScope, "x")
		if _, _, err := w1.Release(t.Context(), "", g.ID); err != nil {
			t.Fatal(err)
		}
		acquire(dispatch.RunScope, "y")
		need, err := w1.Requirement(dispatch.LayerScope, "x", g.Token)
		if err != nil {
			t.Fatal(err)
		}
		tasks, _ := w1.Tasks()
		_, err = tasks.Enqueue(t.Context(), queue.NewTask{
			Queue: "q", Payload: []byte("1"), Fence: registry.Fence{Leases: []registry.Requirement{need}},
		})
		if err := w1.NoteRefused(t.Context(), "", "task_enqueue", err); err != nil {
			t.Fatal(err)
		}
		if err := w1.NoteRefused(t.Context(), "", "task_enqueue", errors.New("another")); err != nil {
			t.Fatal(err)
		}
		if _, err := tasks.Enqueue(t.Context(), queue.NewTask{Queue: "q", Payload: []byte("1")}); err != nil {
			t.Fatal(err)
		}
		if _, err := tasks.Claim(t.Context(), queue.Claim{Queues: []string{"q"}, TTL: time.Minute}); err != nil {
			t.Fatal(err)
		}
		if err := h.EndActor(t.Context(), "r", "S1", "enough"); err != nil {
			t.Fatal(err)
		}
		want := []string{
			"actor_began root (root)",
			"actor_began S1 by root (sublead)",
			"actor_began S1→W1 by S1 (worker)",
			"session_began S1→W1",
			"lease_granted S1→W1 S1:x",
			"lease_released S1→W1 S1:x (released)",
			"lease_granted S1→W1 :y",
			"write_refused S1→W1 S1:x (task_enqueue: the token is stale)",
			"task_enqueued S1→W1",
			"task_claimed S1→W1",
			"actor_ended S1 by operator (enough)",
			"session_ended S1→W1 (its actor ended)",
			"actor_ended S1→W1 by operator (enough)",
		}
		// What it held is released in the order of its rows.
		got := h.events(dispatch.EventQuery{})
		rest := got[min(len(got), len(want)):]
		slices.Sort(rest)
		if !slices.Equal(got[:min(len(got), len(want))], want) || !slices.Equal(rest, []string{
			"lease_released S1→W1 :y (session ended)", "task_returned S1→W1 (session ended)",
		}) {
			t.Errorf("on record is\n%q\nnot\n%q", got, want)
		}
		if got := h.events(dispatch.EventQuery{Key: "x"}); len(got) != 3 {
			t.Errorf("of x: %q", got)
		}
		if got := h.events(dispatch.EventQuery{Key: "x", Scope: dispatch.RunScope}); len(got) != 0 {
			t.Errorf("of the run's x: %q", got)
		}
		if got := h.events(dispatch.EventQuery{Key: "x", Scope: dispatch.LayerScope, Layer: "S1"}); len(got) != 3 {
			t.Errorf("of the layer's x: %q", got)
		}
		if got := h.events(dispatch.EventQuery{Actor: "S1"}); len(got) != 3 {
			t.Errorf("of S1: %q", got)
		}
		if typed, got := h.events(dispatch.EventQuery{Actor: "S1/W1"}), h.events(dispatch.EventQuery{Actor: "S1→W1"}); len(got) == 0 || !slices.Equal(typed, got) {
			t.Errorf("of S1→W1: %q, and with a slash: %q", got, typed)
		}
	})
}

// The record of a write names who was in its way, also if the writer has already gone.
func TestARefusedWriteIsOnRecordWithItsReason(t *testing.T) {
	inHouse(t, dispatch.Options{}, func(t *testing.T, h *house) {
		h.add(dispatch.Root, "", "boss")
		_, token := h.add(dispatch.Worker, "", "W1")
		w1 := h.connect(dispatch.Credentials{Token: token}, 50)
		since := event.Numbers{}
		err := h.eng.View(t.Context(), func(tx engine.Tx) error { since = event.NumbersOf(tx); return nil })
		if err != nil {
			t.Fatal(err)
		}
		other := registry.Lease{Holder: registry.Holder{Path: "S1"}}
		other.Key = "x"
		lease := func(s registry.TokenStanding) error { return &registry.StaleError{TokenStanding: s} }
		claim := func(state queue.State) error {
			return &queue.StaleError{Task: queue.Task{Queue: "q", State: state, Attempts: []queue.Attempt{{Path: "S2"}}}}
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for _, refusal := range []error{
			lease(registry.TokenStanding{Held: true, Current: true, Lease: other}), lease(registry.TokenStanding{Held: true, Lease: other}),
			lease(registry.TokenStanding{}), claim(queue.InProgress), claim(queue.Ready),
		} {
			if err := w1.NoteRefused(ctx, "", "kv_set", refusal); err != nil {
				t.Fatal(err)
			}
		}
		if err := w1.NoteOverruled(ctx, "helper", "it has to be", &registry.HeldError{Lease: other}); err != nil {
			t.Fatal(err)
		}
		want := []string{
			"write_refused W1 (kv_set: the lease is past its deadline)",
			"write_refused W1 by S1 (kv_set: the token is stale)",
			"write_refused W1 (kv_set: the token is stale)",
			"write_refused W1 by S2 (kv_set: the token is stale)",
			"write_refused W1 (kv_set: the token is stale)",
			"write_overruled W1 :x by S1",
		}
		q := dispatch.EventQuery{Since: since.Revision}
		if got := h.events(q); !slices.Equal(got, want) {
			t.Errorf("on record is\n%q\nnot\n%q", got, want)
		}
		page, err := h.RunEvents(t.Context(), "r", q)
		if err != nil {
			t.Fatal(err)
		}
		if last := page.Events[len(page.Events)-1]; last.Party != "helper" || last.Reason != "it has to be" {
			t.Errorf("overruled: %+v", last)
		}
	})
}

// Every kind of event occurs, and is recorded with its data.
func TestEveryKindOfEventOccurs(t *testing.T) {
	inHouse(t, dispatch.Options{}, func(t *testing.T, h *house) {
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		h.add(dispatch.Root, "", "boss")
		_, t1 := h.add(dispatch.Worker, "", "W1")
		_, t2 := h.add(dispatch.Worker, "", "W2")
		w1, w2 := h.connect(dispatch.Credentials{Token: t1}, 50), h.connect(dispatch.Credentials{Token: t2}, 51)
		acquire := func(se *dispatch.Session, key string, ttl, wait time.Duration) (registry.Grant, error) {
			return se.Acquire(t.Context(), dispatch.RunScope, registry.Request{Key: key, TTL: ttl, Wait: wait})
		}
		hold := func(se *dispatch.Session, key string, ttl time.Duration) registry.Grant {
			t.Helper()
			g, err := acquire(se, key, ttl, 0)
			must(err)
			return g
		}
		release := func(g registry.Grant) {
			t.Helper()
			_, _, err := w1.Release(t.Context(), "", g.ID)
			must(err)
		}

		// Leases: handed over to a waiter, given up by another waiter, expired
		// and revived, adopted, offered, revoked.
		a := hold(w1, "a", time.Hour)
		var waiting sync.WaitGroup
		waiting.Go(func() { _, _ = acquire(w2, "a", time.Hour, 10*time.Second) })
		synctest.Wait()
		release(a)
		waiting.Wait()
		b := hold(w1, "b", time.Hour)
		if _, err := acquire(w2, "b", time.Hour, time.Second); err == nil {
			t.Fatal("both hold b")
		}
		time.Sleep(time.Minute)
		c := hold(w1, "c", time.Second)
		time.Sleep(2 * time.Second)
		_, err := w1.Renew(t.Context(), "", c.ID, time.Hour)
		must(err)
		_, err = h.connect(dispatch.Credentials{Token: t1}, 52).Renew(t.Context(), "", c.ID, time.Hour)
		must(err)
		_, err = w1.Transfer(t.Context(), b.ID, "W2")
		must(err)
		_, err = h.Revoke(t.Context(), "r", dispatch.Revocation{Scope: dispatch.RunScope, Key: "b", Reason: "why"})
		must(err)

		// Writes that required a lease, and one that the guard let through.
		need, err := w1.Requirement(dispatch.RunScope, "b", b.Token)
		must(err)
		must(w1.NoteRefused(t.Context(), "", "kv_set", &registry.StaleError{Requirement: need}))
		must(w1.NoteOverruled(t.Context(), "", "", &registry.HeldError{Lease: registry.Lease{Key: "a"}}))
		_, err = w1.NoteChanged(t.Context(), "", 0, &registry.HeldError{Lease: registry.Lease{Key: "a", Holder: w2.Holder()}}, "it changed")
		must(err)

		// Two actors that would wait for each other.
		hold(w1, "d", time.Hour)
		waiting.Go(func() { _, _ = acquire(w1, "a", time.Hour, 5*time.Second) })
		synctest.Wait()
		if _, err := acquire(w2, "d", time.Hour, time.Second); err == nil {
			t.Fatal("both hold d")
		}
		waiting.Wait()

		// Messages, one of them retracted.
		_, err = w1.Send(t.Context(), "", "W2", "hello", uuid.Nil)
		must(err)
		asked := call.Call{Session: w1.ID(), Name: "1", Print: 1, Log: w1.CallLog()}
		_, err = w1.Send(call.With(t.Context(), asked), "", "W2", "never mind", uuid.Nil)
		must(err)
		must(w1.Undo(t.Context(), asked))

		// Tasks.
		tasks, err := w1.Tasks()
		must(err)
		enqueue := func(delay time.Duration) queue.Task {
			t.Helper()
			task, err := tasks.Enqueue(t.Context(), queue.NewTask{Queue: "q", Payload: []byte("1"), Delay: delay, MaxAttempts: 2})
			must(err)
			return task
		}
		claim := func() queue.Claimed {
			t.Helper()
			list, err := tasks.Claim(t.Context(), queue.Claim{Queues: []string{"q"}, TTL: time.Minute, Wait: 10 * time.Second})
			must(err)
			return list[0]
		}
		enqueue(time.Second)
		for range 2 {
			got := claim()
			_, err = tasks.Nack(t.Context(), got.ID, got.Token, new(time.Duration), "no luck")
			must(err)
		}
		_, err = tasks.Redrive(t.Context(), "q", nil)
		must(err)
		for _, state := range []queue.State{queue.Completed, queue.Failed} {
			got := claim()
			_, err = tasks.Submit(t.Context(), queue.Submission{ID: got.ID, Token: got.Token, State: state})
			must(err)
			enqueue(0)
		}
		_, err = tasks.Cancel(t.Context(), enqueue(time.Hour).ID)
		must(err)

		ofRun, err := h.RunTasks(t.Context(), "r")
		must(err)
		_, err = ofRun.Pause(t.Context(), "q", "they fail")
		must(err)
		_, err = ofRun.Resume(t.Context(), "q")
		must(err)

		must(h.EndActor(t.Context(), "r", "root", "done"))
		page, err := h.RunEvents(t.Context(), "r", dispatch.EventQuery{})
		must(err)
		for kind := range event.Kinds() {
			if !slices.ContainsFunc(page.Events, func(e event.Event) bool { return e.Kind == kind }) {
				t.Errorf("no %s is on record", kind)
			}
		}
	})
}

// A reader that reads page by page, or waits for events, misses nothing and
// sees nothing twice.
func TestEventsAreReadInPages(t *testing.T) {
	inHouse(t, dispatch.Options{}, func(t *testing.T, h *house) {
		h.add(dispatch.Root, "", "boss")
		w1 := h.member(dispatch.Worker, "", "W1", 50)
		all := h.events(dispatch.EventQuery{})
		var got []string
		since := uint64(0)
		for more := true; more; {
			page, err := h.RunEvents(t.Context(), "r", dispatch.EventQuery{Since: since, Limit: 1})
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, h.events(dispatch.EventQuery{Since: since, Limit: 1})...)
			since, more = page.Next, page.More
		}
		if !slices.Equal(got, all) {
			t.Errorf("in pages %q, and at once %q", got, all)
		}
		came := make(chan dispatch.EventPage, 1)
		go func() {
			page, err := h.RunEvents(t.Context(), "r", dispatch.EventQuery{Since: since, Wait: 50 * time.Second, Key: "x"})
			if err != nil {
				t.Error(err)
			}
			came <- page
		}()
		synctest.Wait()
		for _, key := range []string{"w", "x"} {
			if _, err := w1.Acquire(t.Context(), dispatch.RunScope, registry.Request{Key: key}); err != nil {
				t.Fatal(err)
			}
		}
		if page := <-came; len(page.Events) != 1 || page.Events[0].Key != "x" {
			t.Errorf("waited for %+v", page)
		}
		began := time.Now()
		page, err := h.RunEvents(t.Context(), "r", dispatch.EventQuery{Since: since, Wait: 5 * time.Second, Key: "z"})
		if err != nil || len(page.Events) > 0 || time.Since(began) != 5*time.Second {
			t.Errorf("waited %v for what does not come: %+v, %v", time.Since(began), page, err)
		}
		all = h.events(dispatch.EventQuery{})
		for back, want := range map[uint64]int{1: 1, page.Next: len(all), page.Next + 1: len(all)} {
			if got := h.events(dispatch.EventQuery{Back: back}); !slices.Equal(got, all[len(all)-want:]) {
				t.Errorf("%d revisions back: %q", back, got)
			}
		}
		for argument, q := range map[string]dispatch.EventQuery{
			"limit": {Limit: -1}, "wait_secs": {Wait: registry.MaxWait + 1}, "since": {Since: page.Next + 1},
		} {
			_, err := h.RunEvents(t.Context(), "r", q)
			if wrong, ok := errors.AsType[*registry.ArgumentError](err); !ok || wrong.Argument != argument {
				t.Errorf("%+v: %v", q, err)
			}
		}

		const many = 2 * dispatch.MaxEventBytes / registry.MaxKey
		for range many {
			g, err := w1.Acquire(t.Context(), dispatch.RunScope, registry.Request{Key: strings.Repeat("k", registry.MaxKey)})
			if err != nil {
				t.Fatal(err)
			}
			if _, _, err := w1.Release(t.Context(), "", g.ID); err != nil {
				t.Fatal(err)
			}
		}
		if page, err = h.RunEvents(t.Context(), "r", dispatch.EventQuery{Since: page.Next}); err != nil || len(page.Events) >= many || !page.More {
			t.Errorf("%d events of at least %d bytes are one page, and more follow: %v, %v", len(page.Events), registry.MaxKey, page.More, err)
		}
	})
}

// A run keeps a limited number of events. The events of a removed run are
// deleted.
func TestEventsAreForgotten(t *testing.T) {
	keep := dispatch.Retention{Events: event.Retention{Count: 100}}
	inHouse(t, dispatch.Options{Keep: keep}, func(t *testing.T, h *house) {
		h.add(dispatch.Root, "", "boss")
		w1 := h.member(dispatch.Worker, "", "W1", 50)
		for range 1000 {
			g, err := w1.Acquire(t.Context(), dispatch.RunScope, registry.Request{Key: "x"})
			if err != nil {
				t.Fatal(err)
			}
			if _, _, err := w1.Release(t.Context(), "", g.ID); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if n := len(h.events(dispatch.EventQuery{})); n < 100 || n > 100+1100 {
			t.Errorf("%d are kept", n)
		}
		var compacted *event.CompactedError
		if _, err := h.RunEvents(t.Context(), "r", dispatch.EventQuery{Since: 5}); !errors.As(err, &compacted) {
			t.Errorf("%v, where events are missing", err)
		}
		h.events(dispatch.EventQuery{Back: 1999}) // from the first one that is kept
		if err := h.EndActor(t.Context(), "r", "root", "done"); err != nil {
			t.Fatal(err)
		}
		if err := h.RemoveRun(t.Context(), "r"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		err := h.eng.View(t.Context(), func(tx engine.Tx) error {
			for row := range tx.Scan("~event/") {
				t.Errorf("row %q is left", row.Key)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	})
}

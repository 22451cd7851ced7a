package dispatch_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/dispatch/mail"
	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/call"
	"github.com/leasehold/leasehold/registry"
)

// correspondents are a root, a sub-lead with a worker, and a worker of the root.
func correspondents(h *house) (root, sub, deep, worker *dispatch.Session) {
	_, r := h.add(dispatch.Root, "", "boss")
	_, s := h.add(dispatch.Sublead, "", "S1")
	_, d := h.add(dispatch.Worker, "S1", "W2")
	_, w := h.add(dispatch.Worker, "", "W1")
	at := func(token string, pid int) *dispatch.Session {
		return h.connect(dispatch.Credentials{Token: token}, pid)
	}
	return at(r, 1), at(s, 2), at(d, 3), at(w, 4)
}

func (h *house) send(from *dispatch.Session, to, text string) dispatch.Sent {
	h.t.Helper()
	sent, err := from.Send(h.t.Context(), "", to, text, uuid.Nil)
	if err != nil {
		h.t.Fatalf("%s writes to %s: %v", from.Actor().Path, to, err)
	}
	return sent
}

// inbox reads what there is, as "from: text".
func (h *house) inbox(se *dispatch.Session) (texts []string) {
	h.t.Helper()
	list, _, err := se.Inbox(h.t.Context(), "", 0)
	if err != nil {
		h.t.Fatal(err)
	}
	return texted(list)
}

// noticed is what another answer tells.
func (h *house) noticed(se *dispatch.Session) (texts []string) {
	h.t.Helper()
	list, _, err := se.TakeMessages(h.t.Context(), "")
	if err != nil {
		h.t.Fatal(err)
	}
	return texted(list)
}

func texted(list []mail.Message) (texts []string) {
	for _, m := range list {
		texts = append(texts, m.From+": "+m.Text)
	}
	return texts
}

func expect(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}

func TestEverybodyOfARunWritesToEverybodyInOrder(t *testing.T) {
	inHouse(t, dispatch.Options{}, func(t *testing.T, h *house) {
		root, sub, deep, worker := correspondents(h)
		first := h.send(root, "S1→W2", "one")
		h.send(worker, "S1→W2", "two")
		h.send(sub, "W2", "three") // a name in the layer that it leads
		h.send(worker, deep.Actor().ID.String(), "four")
		reply, err := deep.Send(t.Context(), "", "root", "five", first.ID)
		if err != nil || !slices.Equal(reply.To, []string{"root"}) {
			t.Errorf("reply: %+v %v", reply, err)
		}
		expect(t, "the worker of the sub-lead", h.inbox(deep), "root: one", "W1: two", "S1: three", "W1: four")
		expect(t, "told once", append(h.inbox(deep), h.noticed(deep)...))
		list, _, err := root.Inbox(t.Context(), "", 0)
		if err != nil || len(list) != 1 || list[0].ReplyTo != first.ID || list[0].ID != reply.ID {
			t.Errorf("the root reads %+v %v", list, err)
		}
		for to, want := range map[string]func(error) bool{
			"W2":         is(dispatch.ErrNotFound), // of another layer
			"W1":         names("to"),              // itself
			"S1→W9":      is(dispatch.ErrNotFound),
			"holder of ": is(dispatch.ErrNotFound),
		} {
			if _, err := worker.Send(t.Context(), "", to, "x", uuid.Nil); !want(err) {
				t.Errorf("to %q: %v", to, err)
			}
		}
		if err := h.EndActor(t.Context(), "r", "S1→W2", "over"); err != nil {
			t.Fatal(err)
		}
		if _, err := worker.Send(t.Context(), "", "S1→W2", "x", uuid.Nil); !is(dispatch.ErrNotFound)(err) {
			t.Errorf("to an actor that has ended: %v", err)
		}
		operator := h.connect(dispatch.Credentials{Operator: true}, 9)
		if _, err := operator.Send(t.Context(), "", "root", "x", uuid.Nil); !forbidden(err) {
			t.Errorf("an operator writes: %v", err)
		}
		if _, _, err := operator.Inbox(t.Context(), "", 0); !forbidden(err) {
			t.Errorf("an operator reads: %v", err)
		}
	})
}

func TestAMessageToTheHolderOfALease(t *testing.T) {
	inHouse(t, dispatch.Options{}, func(t *testing.T, h *house) {
		root, sub, deep, worker := correspondents(h)
		h.take(deep, dispatch.RunScope, "port 3000", time.Hour)
		h.take(root, dispatch.LayerScope, "plan", time.Hour)
		h.take(deep, dispatch.LayerScope, "plan", time.Hour)
		for _, se := range []*dispatch.Session{sub, deep} {
			if _, err := se.Acquire(t.Context(), dispatch.RunScope, registry.Request{Key: "docs", TTL: time.Hour, Shared: true, Holder: registry.Holder{Party: "reader"}}); err != nil {
				t.Fatal(err)
			}
		}
		for _, c := range []struct {
			from *dispatch.Session
			to   string
			want []string
		}{
			{worker, "holder of port 3000", []string{"S1→W2"}},
			{worker, "holder of plan", []string{"root"}}, // of its own layer
			{sub, "holder of /leases/plan", []string{"S1→W2"}},
			{worker, "holder of docs", []string{"S1", "S1→W2"}},
			{sub, "holder of docs", []string{"S1→W2"}},
		} {
			sent := h.send(c.from, c.to, "how long?")
			slices.Sort(sent.To)
			expect(t, c.from.Actor().Path+" to "+c.to, sent.To, c.want...)
		}
		list, _, err := deep.Inbox(t.Context(), "", 0)
		if err != nil || len(list) != 4 || list[0].About != "port 3000" || list[1].About != "plan" || list[2].Party != "reader" {
			t.Errorf("the holder reads %+v %v", list, err)
		}
		for agent, want := range map[string]string{"": "you hold", "sub": "another agent of your own actor holds"} {
			_, err := deep.Send(t.Context(), agent, "holder of port 3000", "x", uuid.Nil)
			if want = "must be another actor: " + want; !names("to")(err) || !strings.Contains(err.Error(), want) {
				t.Errorf("%q writes to the holder, itself or one beside it: %v", agent, err)
			}
		}
	})
}

func TestAnInboxIsBounded(t *testing.T) {
	inHouse(t, dispatch.Options{}, func(t *testing.T, h *house) {
		root := h.member(dispatch.Root, "", "boss", 1)
		over := func(which string, err error) {
			t.Helper()
			var limit *registry.LimitError
			if !errors.As(err, &limit) || !strings.Contains(limit.Which, which) {
				t.Errorf("%v, want the limit of %s", err, which)
			}
		}
		var writers []*dispatch.Session
		for i := range mail.MaxUnread/mail.MaxFrom + 1 {
			writers = append(writers, h.member(dispatch.Worker, "", fmt.Sprint("W", i), 2+i))
		}
		_, err := writers[0].Send(t.Context(), "", "root", strings.Repeat("x", mail.MaxText+1), uuid.Nil)
		over("bytes", err)
		for i, w := range writers[:len(writers)-1] {
			for n := range mail.MaxFrom {
				h.send(w, "root", fmt.Sprint(n))
			}
			if _, err = w.Send(t.Context(), "", "root", "x", uuid.Nil); i+2 < len(writers) {
				over("from one actor", err)
			}
		}
		_, err = writers[len(writers)-1].Send(t.Context(), "", "root", "x", uuid.Nil)
		over("unread messages of one actor", err)
		total := 0
		for n := 1; n > 0; total += n {
			n = len(h.inbox(root))
		}
		if total != mail.MaxUnread {
			t.Errorf("read %d messages", total)
		}
		h.send(writers[0], "root", "there is room again")

		// What was told goes in time, with the texts.
		time.Sleep(call.Keep + time.Second)
		expect(t, "after a while", h.inbox(root), "W0: there is room again")
		if n := h.texts(); n != 1 {
			t.Errorf("%d texts are kept, want that of the last message", n)
		}
	})
}

// texts counts the texts of messages that are kept.
func (h *house) texts() (n int) {
	h.t.Helper()
	err := h.eng.View(h.t.Context(), func(tx engine.Tx) error {
		for range tx.Scan(engine.Cold + "mail/") {
			n++
		}
		return nil
	})
	if err != nil {
		h.t.Fatal(err)
	}
	return n
}

func TestAWaitForMessagesIsWokenAndEndsWithItsCaller(t *testing.T) {
	inHouse(t, dispatch.Options{}, func(t *testing.T, h *house) {
		root, _, _, worker := correspondents(h)
		begun := time.Now()
		got := make(chan []string, 1)
		wait := func(ctx context.Context) {
			list, _, err := worker.Inbox(ctx, "", 50*time.Second)
			if err != nil {
				list = []mail.Message{{From: "error", Text: err.Error()}}
			}
			got <- texted(list)
		}
		go wait(t.Context())
		time.Sleep(7 * time.Second)
		h.send(root, "W1", "wake up")
		expect(t, "woken", <-got, "root: wake up")
		if took := time.Since(begun); took != 7*time.Second {
			t.Errorf("woken after %v", took)
		}
		go wait(t.Context())
		expect(t, "over", <-got)
		if took := time.Since(begun); took != 57*time.Second {
			t.Errorf("over after %v", took)
		}
		ctx, cancel := context.WithCancel(t.Context())
		go wait(ctx)
		synctest.Wait()
		cancel()
		expect(t, "cancelled", <-got, "error: context canceled")
		go wait(t.Context())
		synctest.Wait()
		h.hangUp(worker)
		expect(t, "its session ends", <-got, "error: gone")
	})
}

// A call that is sent again gets its messages again, one that is undone leaves them
// to the next, and so does any other answer that nobody reads.
func TestALostAnswerLosesNoMessage(t *testing.T) {
	inHouse(t, dispatch.Options{}, func(t *testing.T, h *house) {
		root, _, _, worker := correspondents(h)
		named := func(se *dispatch.Session, name string) (call.Call, context.Context) {
			c := call.Call{Session: se.ID(), Name: name, Print: 1, Log: se.CallLog()}
			return c, call.With(t.Context(), c)
		}
		read := func(ctx context.Context) []string {
			t.Helper()
			list, _, err := worker.Inbox(ctx, "", 0)
			if err != nil {
				t.Fatal(err)
			}
			return texted(list)
		}
		c, ctx := named(root, "send")
		for range 2 { // sent again, it is one message
			if _, err := root.Send(ctx, "", "W1", "once", uuid.Nil); err != nil {
				t.Fatal(err)
			}
		}
		if err := root.Undo(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		expect(t, "sent by a call that was undone", read(t.Context()))
		if n := h.texts(); n != 0 {
			t.Errorf("%d texts are kept of it", n)
		}

		h.send(root, "W1", "one")
		c, ctx = named(worker, "read")
		expect(t, "read", read(ctx), "root: one")
		h.send(root, "W1", "two")
		expect(t, "sent again", read(ctx), "root: one")
		if err := worker.Undo(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		_, ctx = named(worker, "read again")
		expect(t, "after the undo", read(ctx), "root: one", "root: two")

		h.send(root, "W1", "three")
		expect(t, "beside an answer", h.noticed(worker), "root: three")
		if err := worker.Retell(t.Context()); err != nil {
			t.Fatal(err)
		}
		h.send(root, "W1", "four")
		expect(t, "beside the next", h.noticed(worker), "root: three", "root: four")

		// The daemon is killed: who asks again gets the same, and nobody misses what
		// an answer told that may not have been sent.
		handle := worker.Handle()
		h.send(root, "W1", "five")
		expect(t, "before the restart", h.noticed(worker), "root: five")
		h.send(root, "W1", "six")
		_, ctx = named(worker, "last")
		expect(t, "before the restart", read(ctx), "root: six")
		h.crash()
		worker = h.connect(dispatch.Credentials{Handle: handle}, 4)
		_, ctx = named(worker, "last")
		expect(t, "asked again", read(ctx), "root: six")
		after := h.noticed(worker)
		if !slices.Contains(after, "root: five") || slices.Contains(after, "root: six") {
			t.Errorf("beside an answer after the restart: %q", after)
		}
	})
}

// A message that is too long for an answer to something else waits to be asked for,
// and nobody overtakes it.
func TestALongMessageIsAskedFor(t *testing.T) {
	inHouse(t, dispatch.Options{}, func(t *testing.T, h *house) {
		root, _, deep, worker := correspondents(h)
		long := strings.Repeat("x", mail.MaxText)
		h.send(root, "W1", "short")
		h.send(root, "W1", long)
		h.send(root, "W1", "last")
		for i, want := range []int{2, 0, 0} { // is said once
			list, more, err := worker.TakeMessages(t.Context(), "")
			if err != nil || more != want || len(list) != max(0, 1-i) {
				t.Errorf("answer %d tells %q and %d more: %v", i, texted(list), more, err)
			}
		}
		expect(t, "asked for", h.inbox(worker), "root: "+long, "root: last")

		h.send(root, "S1→W2", long)
		for _, when := range []string{"at first", "after an answer that nobody read"} {
			if list, more, err := deep.TakeMessages(t.Context(), ""); err != nil || more != 1 || len(list) > 0 {
				t.Errorf("%s: it is told %q and %d more: %v", when, texted(list), more, err)
			}
			if err := deep.Retell(t.Context()); err != nil {
				t.Error(err)
			}
		}
	})
}

// An empty inbox, too, says how many messages are left: the next long one is told, although no
// more are unread than before.
func TestALongMessageAfterAnEmptyInboxIsTold(t *testing.T) {
	inHouse(t, dispatch.Options{}, func(t *testing.T, h *house) {
		root, _, _, _ := correspondents(h)
		_, token := h.add(dispatch.Worker, "", "W3")
		one, other := h.connect(dispatch.Credentials{Token: token}, 5), h.connect(dispatch.Credentials{Token: token}, 6)
		for _, when := range []string{"the first", "the next"} {
			h.send(root, "W3", strings.Repeat("x", mail.MaxText))
			if _, more, err := one.TakeMessages(t.Context(), ""); more != 1 || err != nil {
				t.Errorf("%s: %d are unread, %v", when, more, err)
			}
			if got := h.inbox(other); len(got) != 1 {
				t.Errorf("%s: the other session reads %d messages", when, len(got))
			}
			expect(t, when, h.inbox(one))
		}
		h.hangUp(one)
		h.hangUp(other)
	})
}

// An answer that is still being made when its session ends takes no message from the actor's
// other sessions.
func TestASessionThatHasEndedTakesNoMessages(t *testing.T) {
	inHouse(t, dispatch.Options{}, func(t *testing.T, h *house) {
		root, _, _, _ := correspondents(h)
		_, token := h.add(dispatch.Worker, "", "W3")
		ended, next := h.connect(dispatch.Credentials{Token: token}, 5), h.connect(dispatch.Credentials{Token: token}, 6)
		h.send(root, "W3", "one")
		h.hangUp(ended)
		if list, _, err := ended.TakeMessages(t.Context(), ""); !errors.Is(err, registry.ErrSessionEnded) || len(list) > 0 {
			t.Errorf("it takes %q: %v", texted(list), err)
		}
		expect(t, "the other session", h.noticed(next), "root: one")
		h.hangUp(next)
	})
}

func TestTheMessagesOfAnActorGoWithIt(t *testing.T) {
	inHouse(t, dispatch.Options{}, func(t *testing.T, h *house) {
		root, _, _, _ := correspondents(h)
		guest := h.connect(dispatch.Credentials{Run: "r", Name: "guest"}, 7)
		h.send(root, "guest", "stay")
		h.send(root, "W1", "work")
		h.hangUp(guest)
		synctest.Wait()
		if n := h.texts(); n != 1 {
			t.Errorf("%d texts are kept after the guest left, want that for W1", n)
		}
		if err := h.EndActor(t.Context(), "r", "root", "over"); err != nil {
			t.Fatal(err)
		}
		if err := h.RemoveRun(t.Context(), "r"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if n := h.texts(); n != 0 {
			t.Errorf("%d texts are kept after the run was removed", n)
		}
	})
}

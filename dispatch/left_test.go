package dispatch_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/dispatch/process"
	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/registry"
)

// A client whose connection has ended, and that connects again as another actor, is told
// what it lost. No other client is, and not one whose sub-agents have connections of
// their own.
func TestAClientThatConnectsAgainIsToldWhatItLost(t *testing.T) {
	inHouse(t, dispatch.Options{}, func(t *testing.T, h *house) {
		shims := 100
		shim := func(client int) *dispatch.Session {
			shims++
			h.family.Store(shims, process.Running{Parent: client})
			return h.connect(dispatch.Credentials{Run: "r", Name: "shim", Origin: dispatch.Origin{PID: client}}, shims)
		}
		told := func(se *dispatch.Session, want ...string) {
			t.Helper()
			list, _, err := se.TakeNotices(t.Context(), "", dispatch.Model)
			if err != nil {
				t.Fatal(err)
			}
			var keys []string
			for _, n := range list {
				keys = append(keys, n.Key)
			}
			if !slices.Equal(keys, want) {
				t.Errorf("told of %v, want %v", keys, want)
			}
		}
		one := shim(10)
		lost := h.take(one, dispatch.RunScope, "deploy", time.Hour)
		if ok, why, err := one.Release(t.Context(), "", h.take(one, dispatch.RunScope, "given back", time.Hour).ID); !ok {
			t.Fatal(why, err)
		}
		h.hangUp(one)
		two := shim(20)
		told(two)
		again := shim(10)
		told(again, "deploy")
		told(again)
		if _, err := again.Renew(t.Context(), "", lost.ID, time.Minute); !errors.As(err, new(*registry.LostError)) {
			t.Errorf("it renews: %v", err)
		}

		h.take(again, dispatch.RunScope, "port", time.Hour)
		h.hangUp(again)
		time.Sleep(10 * time.Minute) // until its user notices
		again = shim(10)
		told(again, "port")

		h.take(again, dispatch.RunScope, "deploy", time.Hour)
		beside := shim(10)
		h.hangUp(again)
		sub := shim(10)
		told(sub)
		told(beside)
		h.hangUp(sub)
		h.hangUp(beside)
		time.Sleep(20 * time.Minute)
		told(shim(10))
		told(two)
	})
}

// Whoever cannot know what it has lost is told so once, in its next answer, and whoever has
// lost nothing is told nothing.
func TestWhatASessionIsToldThatDoesNotKnowWhatItLost(t *testing.T) {
	shim := dispatch.Credentials{Run: "r", Name: "shim", Origin: dispatch.Origin{PID: 10}}
	again := func(h *house, was *dispatch.Session, c dispatch.Credentials) *dispatch.Session {
		c.Handle = was.Handle()
		return h.connect(c, 100)
	}
	withToken := func(h *house) dispatch.Credentials {
		_, token := h.add(dispatch.Worker, "", "W1")
		return dispatch.Credentials{Token: token}
	}
	const unknown, copied = "the daemon does not know your earlier session", "the daemon went on with a copy of its state"
	for _, c := range []struct {
		name  string
		story func(h *house) *dispatch.Session
		want  []string // key of the lease, or the beginning of the reason
	}{
		{"another state is served", func(h *house) *dispatch.Session {
			was := h.connect(shim, 100)
			h.take(was, dispatch.RunScope, "deploy", time.Hour)
			h.close()
			h.fs = vfs.NewCrashableMem()
			h.open()
			return again(h, was, shim)
		}, []string{unknown}},
		{"another state is served, and goes on as another", func(h *house) *dispatch.Session {
			was := h.connect(shim, 100)
			h.close()
			h.fs = vfs.NewCrashableMem()
			h.open()
			h.hangUp(again(h, was, shim))
			return h.connect(shim, 101)
		}, []string{unknown}},
		{"it was quiet for hours, and comes back as another", func(h *house) *dispatch.Session {
			was := h.connect(shim, 100)
			h.take(was, dispatch.RunScope, "deploy", time.Minute)
			time.Sleep(2 * time.Hour)
			h.hangUp(was)
			back := again(h, was, shim)
			time.Sleep(time.Minute) // what is due is removed
			return back
		}, []string{"deploy"}},
		{"it was away for hours", func(h *house) *dispatch.Session {
			was := h.connect(shim, 100)
			h.take(was, dispatch.RunScope, "deploy", time.Hour)
			h.hangUp(was)
			time.Sleep(2 * time.Hour)
			return again(h, was, shim)
		}, []string{unknown}},
		{"its run was removed", func(h *house) *dispatch.Session {
			was := h.connect(shim, 100)
			if err := errors.Join(h.EndActor(h.t.Context(), "r", "root", ""), h.RemoveRun(h.t.Context(), "r")); err != nil {
				h.t.Fatal(err)
			}
			time.Sleep(time.Minute) // its records are removed
			return again(h, was, shim)
		}, []string{unknown}},
		{"the state is a copy, which knows the session", func(h *house) *dispatch.Session {
			was := h.connect(withToken(h), 100)
			h.restore()
			h.crash()
			return again(h, was, dispatch.Credentials{})
		}, []string{copied}},
		{"the state is a copy, which knows the actor", func(h *house) *dispatch.Session {
			c := withToken(h)
			h.restore()
			h.crash()
			return h.connect(c, 100)
		}, []string{copied}},
		{"it comes back long after its session has ended", func(h *house) *dispatch.Session {
			was := h.connect(shim, 100)
			h.take(was, dispatch.RunScope, "deploy", time.Hour)
			h.hangUp(was)
			time.Sleep(50 * time.Minute)
			return again(h, was, shim)
		}, []string{"deploy"}},
		{"it calls nothing for days", func(h *house) *dispatch.Session {
			se := h.connect(shim, 100)
			h.take(se, dispatch.RunScope, "deploy", time.Minute)
			time.Sleep(50 * time.Hour)
			return se
		}, []string{"deploy"}},
		{"its session ends long after its lease", func(h *house) *dispatch.Session {
			c := withToken(h)
			was := h.connect(c, 100)
			h.take(was, dispatch.RunScope, "deploy", time.Minute)
			time.Sleep(time.Hour)
			h.hangUp(was)
			time.Sleep(50 * time.Minute)
			return again(h, was, c)
		}, []string{"deploy"}},
		{"the daemon is restarted", func(h *house) *dispatch.Session {
			was := h.connect(shim, 100)
			h.take(was, dispatch.RunScope, "deploy", time.Hour)
			h.crash()
			return again(h, was, shim)
		}, nil},
		{"it ends, and held nothing", func(h *house) *dispatch.Session {
			was := h.connect(shim, 100)
			h.hangUp(was)
			return again(h, was, shim)
		}, nil},
		{"it ends, and held nothing, and its client has had others since", func(h *house) *dispatch.Session {
			was := h.connect(shim, 100)
			h.hangUp(was)
			h.take(h.connect(shim, 101), dispatch.RunScope, "deploy", time.Hour)
			return again(h, was, shim)
		}, nil},
		{"the session of a token was away for hours", func(h *house) *dispatch.Session {
			c := withToken(h)
			was := h.connect(c, 100)
			h.take(was, dispatch.RunScope, "deploy", time.Hour)
			h.hangUp(was)
			time.Sleep(2 * time.Hour)
			return again(h, was, c)
		}, []string{unknown}},
		{"the session of a token ends, and held nothing", func(h *house) *dispatch.Session {
			c := withToken(h)
			was := h.connect(c, 100)
			h.hangUp(was)
			return again(h, was, c)
		}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			inHouse(t, dispatch.Options{}, func(t *testing.T, h *house) {
				h.t = t
				h.add(dispatch.Root, "", "lead")
				h.family.Store(100, process.Running{Parent: 10})
				h.family.Store(101, process.Running{Parent: 10})
				se := c.story(h)
				other := h.connect(dispatch.Credentials{Run: "r", Name: "other", Origin: dispatch.Origin{PID: 20}}, 200)
				for i, want := range [][]string{c.want, nil} {
					list, _, err := se.TakeNotices(t.Context(), "", dispatch.Model)
					if err != nil {
						t.Fatal(err)
					}
					told := func(n registry.Notice, want string) bool {
						return n.Key == want || n.Key == "" && strings.HasPrefix(n.Reason, want)
					}
					if !slices.EqualFunc(list, want, told) {
						t.Errorf("answer %d told %v, want %q", i+1, list, want)
					}
				}
				if list, _, err := other.TakeNotices(t.Context(), "", dispatch.Model); err != nil || len(list) > 0 {
					t.Errorf("another client was told %v (%v)", list, err)
				}
			})
		})
	}
}

// restore makes the state a copy, as it is after a restore.
func (h *house) restore() {
	h.t.Helper()
	err := h.eng.Update(h.t.Context(), func(tx engine.Tx) error {
		tx.Put(engine.CopyRow(tx.Wall()))
		return nil
	})
	if err != nil {
		h.t.Fatal(err)
	}
}

// The hooks of a client tell once that its actor was ended, and again if nobody read the answer.
func TestAnEndIsToldAgainIfItsAnswerIsNotRead(t *testing.T) {
	inHouse(t, dispatch.Options{}, func(t *testing.T, h *house) {
		h.add(dispatch.Root, "", "boss")
		_, token := h.add(dispatch.Worker, "", "W1")
		h.connect(dispatch.Credentials{Token: token, Origin: dispatch.Origin{PID: 10}}, 100)
		if err := h.EndActor(t.Context(), "r", "W1", "over"); err != nil {
			t.Fatal(err)
		}
		hook := h.connect(dispatch.Credentials{Operator: true}, 50)
		defer h.hangUp(hook)
		for _, round := range []string{"at first", "again"} {
			for i, want := range []int{1, 0} {
				ends, err := hook.TakeDismissals(t.Context(), 10, "", "")
				if err != nil || len(ends) != want {
					t.Errorf("%s, answer %d tells %v: %v", round, i, ends, err)
				}
			}
			if err := hook.Retell(t.Context()); err != nil {
				t.Error(err)
			}
		}
	})
}

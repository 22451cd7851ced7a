package call_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/call"
	"github.com/leasehold/leasehold/engine/pebble"
	"github.com/leasehold/leasehold/engine/record"
)

const kind call.Kind = "test"

// A desk is an engine on which calls are answered.
type desk struct {
	t   testing.TB
	fs  *vfs.MemFS
	eng *pebble.Engine
}

func open(t testing.TB) *desk {
	d := &desk{t: t, fs: vfs.NewCrashableMem()}
	d.open()
	return d
}

func (d *desk) open() {
	eng, err := pebble.Open(pebble.Options{Dir: "state", FS: d.fs})
	if err != nil {
		d.t.Fatal(err)
	}
	d.eng = eng
}

func (d *desk) crash() {
	left := d.fs.CrashClone(vfs.CrashCloneCfg{})
	d.close()
	d.fs = left
	d.open()
}

func (d *desk) close() {
	if err := d.eng.Close(); err != nil {
		d.t.Fatal(err)
	}
}

func (d *desk) update(fn func(tx engine.Tx)) {
	err := d.eng.Update(context.Background(), func(tx engine.Tx) error { fn(tx); return nil })
	if err != nil {
		d.t.Fatal(err)
	}
}

// do answers c from its row or, like a rule, with value.
func (d *desk) do(c call.Call, value string) (got string, again bool, err error) {
	d.update(func(tx engine.Tx) {
		if got, again, err = c.Answered(tx, kind); err != nil {
			return
		}
		if again {
			return
		}
		got = value
		c.Record(tx, kind, value, 0)
	})
	return got, again, err
}

func (d *desk) take(c call.Call) (a call.Answer, ok bool) {
	d.update(func(tx engine.Tx) { a, ok = c.Take(tx, kind) })
	return a, ok
}

func (d *desk) rows() (n int) {
	d.update(func(tx engine.Tx) {
		for range tx.Scan(call.Prefix) {
			n++
		}
	})
	return n
}

func inBubble(t *testing.T, story func(t *testing.T, d *desk)) {
	synctest.Test(t, func(t *testing.T) {
		d := open(t)
		defer d.close()
		story(t, d)
	})
}

func TestACallThatIsSentAgainGetsItsAnswerAlsoAfterARestart(t *testing.T) {
	inBubble(t, func(t *testing.T, d *desk) {
		session := uuid.New()
		for _, c := range []call.Call{
			{Session: session, Name: "1", Print: 7, Log: new(call.Log)},
			call.Call{Session: session, Name: "2", Print: 7}.Requested(session, "r", 9),
			call.Call{}.Requested(session, "r2", 9),
		} {
			if got, again, err := d.do(c, "first"); got != "first" || again || err != nil {
				t.Fatalf("first: %q %v %v", got, again, err)
			}
			d.crash()
			c.Log = new(call.Log) // as in the next daemon
			if got, again, err := d.do(c, "second"); got != "first" || !again || err != nil {
				t.Errorf("again: %q %v %v", got, again, err)
			}
			if a, ok := d.take(c); ok == (c.Name == "") {
				t.Errorf("undone: %v, %+v; the same call may be undone, another that shares the answer not", ok, a)
			}
		}
	})
}

// A client may use one id for all its calls, each of which is a new one.
func TestADeliveredNameIsFreeForTheNextCall(t *testing.T) {
	inBubble(t, func(t *testing.T, d *desk) {
		c := call.Call{Session: uuid.New(), Name: "1", Print: 7, Log: new(call.Log)}
		for i := range 5 {
			value := fmt.Sprint(i)
			if got, again, err := d.do(c, value); got != value || again || err != nil {
				t.Fatalf("call %d: %q %v %v", i, got, again, err)
			}
			c.Log.Delivered(c)
			if _, ok := d.take(c); ok {
				t.Fatal("a delivered call was undone")
			}
		}
		if n := d.rows(); n != 1 {
			t.Errorf("%d rows, want the last", n)
		}
	})
}

func TestAnotherRequestUnderANameIsNewAndUnderARequestIDAnError(t *testing.T) {
	inBubble(t, func(t *testing.T, d *desk) {
		c := call.Call{Session: uuid.New(), Name: "1", Print: 7}
		d.do(c, "first")
		c.Print = 8
		if got, again, err := d.do(c, "second"); got != "second" || again || err != nil {
			t.Errorf("another request under the name: %q %v %v", got, again, err)
		}
		d.do(c.Requested(c.Session, "r", 1), "third")
		if _, _, err := d.do(c.Requested(c.Session, "r", 2), "fourth"); !errors.Is(err, call.ErrReused) {
			t.Errorf("another request under the request_id: %v", err)
		}
		other := uuid.New()
		if got, _, err := d.do(call.Call{}.Requested(other, "r", 2), "fifth"); got != "fifth" || err != nil {
			t.Errorf("another session's request_id: %q %v", got, err)
		}
	})
}

// The transport knows a call only by its name, even if the model gave it a
// request_id.
func TestACallWithARequestIDIsUndoneByItsName(t *testing.T) {
	inBubble(t, func(t *testing.T, d *desk) {
		log := new(call.Log)
		named := call.Call{Session: uuid.New(), Name: "1", Print: 7, Log: log}
		requested := named.Requested(named.Session, "r", 9)
		d.do(requested, "first")
		if !named.HasAnswer() {
			t.Error("the log does not know of it")
		}
		if a, ok := d.take(named); !ok || a.Kind != kind || a.Value != "first" {
			t.Errorf("took %+v %v", a, ok)
		}
		if n := d.rows(); n != 0 {
			t.Errorf("%d rows are left", n)
		}
		if got, again, err := d.do(requested, "second"); got != "second" || again || err != nil {
			t.Errorf("after the undo: %q %v %v", got, again, err)
		}
	})
}

// After a restart of the daemon a call that is sent again can be undone before it has
// looked for its answer.
func TestAnAnswerIsUndoneThatTheLogDoesNotKnow(t *testing.T) {
	inBubble(t, func(t *testing.T, d *desk) {
		c := call.Call{Session: uuid.New(), Name: "1", Print: 7, Log: new(call.Log)}
		d.do(c, "first")
		c.Log = new(call.Log)
		if a, ok := d.take(c); !ok || a.Value != "first" {
			t.Errorf("took %+v %v", a, ok)
		}
	})
}

// A call that nobody else can ask for has no row and is undone once. An answer
// under its request_id stays if another call was told of it.
func TestACallAloneHasNoRow(t *testing.T) {
	inBubble(t, func(t *testing.T, d *desk) {
		c := call.Alone(uuid.New())
		if c.HasAnswer() {
			t.Error("it has an answer before it did anything")
		}
		d.do(c, "first")
		if n := d.rows(); n != 0 || !c.HasAnswer() {
			t.Errorf("%d rows, has an answer: %v", n, c.HasAnswer())
		}
		if a, ok := d.take(c); !ok || a.Kind != kind || a.Value != "first" {
			t.Errorf("took %+v %v", a, ok)
		}
		if a, ok := d.take(c); ok {
			t.Errorf("took %+v again", a)
		}
		for _, shared := range []bool{false, true} {
			named := call.Alone(c.Session)
			d.do(named.Requested(c.Session, "r", 9), "second")
			if shared {
				if got, again, err := d.do(call.Alone(c.Session).Requested(c.Session, "r", 9), "third"); got != "second" || !again || err != nil {
					t.Errorf("the other call: %q %v %v", got, again, err)
				}
			} else if got, again, err := d.do(named.Requested(c.Session, "r", 9), "third"); got != "second" || !again || err != nil {
				t.Errorf("the same call: %q %v %v", got, again, err)
			}
			if a, ok := d.take(named); ok == shared || ok && a.Value != "second" {
				t.Errorf("shared %v: took %+v %v", shared, a, ok)
			}
		}
	})
}

func TestAnswersAreForgottenWhenDue(t *testing.T) {
	inBubble(t, func(t *testing.T, d *desk) {
		waited := make(chan error)
		ctx, stop := context.WithCancel(t.Context())
		go func() { waited <- d.eng.WaitDue(ctx) }()
		defer func() { stop(); <-waited }()
		c := call.Call{Session: uuid.New(), Name: "1"}
		kept := call.Call{}.Requested(c.Session, "r", 1)
		d.update(func(tx engine.Tx) {
			c.Record(tx, kind, "", 0)
			kept.Record(tx, kind, "", call.Forever)
		})
		tend := func() {
			time.Sleep(call.Keep + 1)
			d.update(func(tx engine.Tx) {
				for row := range tx.Due() {
					if !call.Tend(tx, row) {
						t.Errorf("row %q is nobody's", row.Key)
					}
				}
			})
		}
		tend()
		if n := d.rows(); n != 1 {
			t.Errorf("%d answers, want the one that is kept", n)
		}
		d.update(func(tx engine.Tx) { kept.Expire(tx, time.Minute) })
		tend()
		if n := d.rows(); n != 0 {
			t.Errorf("%d answers, want none", n)
		}
	})
}

// TestEveryCallHasOneEffect compares the package with a model: a counter that
// each call increments and an undo decrements.
func TestEveryCallHasOneEffect(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		d := open(t)
		defer d.close()
		session, log := uuid.New(), new(call.Log)
		type made struct {
			call.Call
			request string
			value   string         // what it did; "" if it was undone
			told    map[*made]bool // calls that were answered with it and may be undone
			done    bool           // its client has received the answer
		}
		var calls []*made
		requests := make(map[string]*made)
		effects := make(map[string]bool)
		perform := func(m *made) {
			c := m.Call
			c.Log = log
			if m.request != "" {
				c = c.Requested(session, m.request, 1)
			}
			value := uuid.NewString()
			got, again, err := d.do(c, value)
			owner := m
			if m.request != "" && requests[m.request] != nil {
				owner = requests[m.request]
			}
			switch {
			case err != nil:
				rt.Fatal(err)
			case again && got != owner.value:
				rt.Fatalf("answered %q, and it did %q", got, owner.value)
			case !again && owner.value != "":
				rt.Fatalf("had an effect again")
			case !again:
				effects[value] = true
				owner.value = value
				owner.told = make(map[*made]bool)
				if m.request != "" {
					requests[m.request] = owner
				}
			}
			owner.told[m] = true
		}
		rt.Repeat(map[string]func(*rapid.T){
			"new": func(rt *rapid.T) {
				m := &made{Call: call.Call{Session: session, Name: fmt.Sprint(len(calls)), Print: 1}}
				if rapid.Bool().Draw(rt, "requested") {
					m.request = rapid.SampledFrom([]string{"a", "b", "c"}).Draw(rt, "request_id")
				}
				calls = append(calls, m)
				perform(m)
			},
			"again": func(rt *rapid.T) {
				if m := pick(rt, calls); m != nil && !m.done {
					perform(m)
				}
			},
			"delivered": func(rt *rapid.T) {
				if m := pick(rt, calls); m != nil {
					m.done = true
					c := m.Call
					log.Delivered(c)
				}
			},
			"undo": func(rt *rapid.T) {
				m := pick(rt, calls)
				if m == nil || m.done {
					return
				}
				c := m.Call
				c.Log = log
				if _, ok := d.take(c); ok {
					owner := m
					if m.request != "" {
						owner = requests[m.request]
						delete(requests, m.request)
					}
					if len(owner.told) != 1 || !owner.told[m] {
						rt.Fatalf("undid what %d calls were told of", len(owner.told))
					}
					delete(effects, owner.value)
					owner.value = ""
				}
			},
			"crash": func(*rapid.T) {
				d.crash()
				log = new(call.Log)
				for i := range calls {
					calls[i].done = true // calls in progress ended with the daemon
				}
			},
			"": func(rt *rapid.T) {
				n := 0
				for _, m := range calls {
					if m.value != "" {
						n++
					}
				}
				if n != len(effects) {
					rt.Fatalf("%d effects of %d calls", len(effects), n)
				}
			},
		})
	})
}

func pick[T any](rt *rapid.T, list []*T) *T {
	if len(list) == 0 {
		return nil
	}
	return rapid.SampledFrom(list).Draw(rt, "call")
}

// A program may send a call under an Idempotency-Key whose request_id a model chose. Its
// answer is found under both, undone by either, and neither is free for another request.
func TestACallMayHaveARequestIDAndAnIdempotencyKey(t *testing.T) {
	inBubble(t, func(t *testing.T, d *desk) {
		session := uuid.New()
		n := 0
		named := func() call.Call { // each request has a name of its own
			n++
			return call.Call{Session: session, Name: fmt.Sprint(n)}.Requested(session, "key", 7)
		}
		requested := func() call.Call { return named().Requested(session, "r", 9) }
		if got, again, err := d.do(requested(), "first"); got != "first" || again || err != nil {
			t.Fatalf("first: %q %v %v", got, again, err)
		}
		if got, again, err := d.do(requested(), "second"); got != "first" || !again || err != nil {
			t.Errorf("again: %q %v %v", got, again, err)
		}
		for what, c := range map[string]call.Call{
			"another request under the request_id":                named().Requested(session, "r", 8),
			"another request under the key":                       call.Call{}.Requested(session, "key", 8),
			"another request under the key with a new request_id": call.Call{}.Requested(session, "key", 8).Requested(session, "s", 1),
		} {
			if _, _, err := d.do(c, "other"); !errors.Is(err, call.ErrReused) {
				t.Errorf("%s: %v", what, err)
			}
		}
		if a, ok := d.take(call.Known(session, "key")); ok {
			t.Errorf("two requests were told of it, and it was undone: %+v", a)
		}

		for what, by := range map[string]func(c call.Call) call.Call{
			"the transport, which knows the key":   func(call.Call) call.Call { return named() },
			"the rule, which knows the request_id": func(c call.Call) call.Call { return c },
			"whoever knows nothing but the key":    func(call.Call) call.Call { return call.Known(session, "key") },
		} {
			d.update(func(tx engine.Tx) {
				for row := range tx.Scan(call.Prefix) {
					tx.Delete(row.Key)
				}
			})
			c := requested()
			d.do(c, "first")
			if a, ok := d.take(by(c)); !ok || a.Value != "first" {
				t.Errorf("undone by %s: %+v %v", what, a, ok)
			}
			d.update(func(tx engine.Tx) {
				for row := range tx.Scan(call.Prefix + string(session[:]) + "r") {
					t.Errorf("undone by %s: %q is left", what, row.Key)
				}
			})
			if got, again, err := d.do(requested(), "second"); got != "second" || again || err != nil {
				t.Errorf("undone by %s, and sent again: %q %v %v", what, got, again, err)
			}
		}
	})
}

// All requests under a key are one call for its client. What could not be undone keeps
// its answer.
func TestAKnownCallIsUndoneHoweverOftenItWasSent(t *testing.T) {
	inBubble(t, func(t *testing.T, d *desk) {
		session := uuid.New()
		request := func(name string) call.Call {
			return call.Call{Session: session, Name: name}.Requested(session, "key", 7)
		}
		d.do(request("1"), "first")
		d.do(request("2"), "second")
		known := call.Known(session, "key")
		a, ok := d.take(known)
		if !ok || a.Value != "first" {
			t.Fatalf("took %+v %v", a, ok)
		}
		d.update(func(tx engine.Tx) { known.Restore(tx, a) })
		if got, again, err := d.do(request("3"), "third"); got != "first" || !again || err != nil {
			t.Errorf("it could not be undone, and is sent again: %q %v %v", got, again, err)
		}
		if _, ok := d.take(call.Known(uuid.New(), "key")); ok {
			t.Error("another session's call was undone")
		}
	})
}

// TestACancelUndoesNoOtherRequestOfItsName, as a client may use the id of a request again.
func TestACancelUndoesNoOtherRequestOfItsName(t *testing.T) {
	inBubble(t, func(t *testing.T, d *desk) {
		session := uuid.New()
		earlier, now := call.Call{Session: session, Name: "1", Print: 7}, call.Call{Session: session, Name: "1", Print: 8}
		d.do(now, "done")
		if a, ok := d.take(earlier); ok {
			t.Errorf("undone by a cancel of an earlier request: %+v", a)
		}
		if a, ok := d.take(now); !ok || a.Value != "done" {
			t.Errorf("not undone by its own: %+v %v", a, ok)
		}
	})
}

// TestACallIsReadBackWithItsIDs, its request_id and its Idempotency-Key.
func TestACallIsReadBackWithItsIDs(t *testing.T) {
	inBubble(t, func(t *testing.T, d *desk) {
		session := uuid.New()
		c := call.Call{Session: session, Name: "1", Print: 3}.Requested(session, "key", 7).Requested(session, "r", 9)
		w := record.New(0)
		c.Append(w)
		r := record.Read(w.String())
		back := call.Read(&r)
		if !r.Done() {
			t.Error("more was written than read")
		}
		d.do(back, "first")
		if got, again, err := d.do(c, "second"); got != "first" || !again || err != nil {
			t.Errorf("the call finds %q %v %v", got, again, err)
		}
		if _, _, err := d.do(call.Call{}.Requested(session, "key", 8), "other"); !errors.Is(err, call.ErrReused) {
			t.Errorf("another request under the key: %v", err)
		}
		if a, ok := d.take(call.Known(session, "key")); !ok || a.Value != "first" {
			t.Errorf("undone by the key: %+v %v", a, ok)
		}
	})
}

// TestACallWithoutANameHasNoRowUnderIt.
func TestACallWithoutANameHasNoRowUnderIt(t *testing.T) {
	inBubble(t, func(t *testing.T, d *desk) {
		d.do(call.Call{}.Requested(uuid.New(), "r", 7), "done")
		if n := d.rows(); n != 1 {
			t.Errorf("%d rows, want that of the request_id", n)
		}
	})
}

func TestAnIDUnderwayIsOfOneRequest(t *testing.T) {
	const other call.Kind = "other"
	session := uuid.New()
	c := call.Call{}.Requested(session, "r", 7)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var u call.Underway
	enter := func(ctx context.Context, kind call.Kind, c call.Call) (leave func()) {
		t.Helper()
		leave, err := u.Enter(ctx, kind, c)
		if err != nil {
			t.Fatal(err)
		}
		return leave
	}
	refused := func(want bool) {
		t.Helper()
		for what, try := range map[string]struct {
			kind call.Kind
			call.Call
		}{"other parameters": {kind, call.Call{}.Requested(session, "r", 8)}, "another tool": {other, call.Call{}.Requested(session, "r", 7)}} {
			leave, err := u.Enter(t.Context(), try.kind, try.Call)
			if errors.Is(err, call.ErrReused) != want {
				t.Errorf("%s: %v", what, err)
			}
			if err == nil {
				leave()
			}
		}
	}
	refused(false)
	first, copied := enter(ctx, kind, c), enter(ctx, kind, c)
	refused(true)
	enter(t.Context(), other, call.Call{}.Requested(uuid.New(), "r", 1))()
	enter(t.Context(), other, call.Call{Session: session, Name: "r"})()
	first()
	refused(true)
	cancel() // nobody waits for it any more
	refused(false)
	copied()
	refused(false)
}

// The next call of a session removes the answers that its client has received.
func TestDeliveredAnswersAreRemovedWithTheNextRecord(t *testing.T) {
	inBubble(t, func(t *testing.T, d *desk) {
		c := call.Call{Session: uuid.New(), Log: new(call.Log)}
		for i := range 5 {
			c.Name = fmt.Sprint(i)
			d.do(c, "done")
			c.Log.Delivered(c)
		}
		if n := d.rows(); n != 1 {
			t.Errorf("%d answers, want the last", n)
		}
	})
}

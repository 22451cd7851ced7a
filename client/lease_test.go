package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/client"
	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/dispatch/process"
)

func acquire(t *testing.T, c *client.Client, key string, o client.LeaseOptions) *client.Lease {
	t.Helper()
	l, err := c.Acquire(t.Context(), key, o)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestALeaseRenewsItselfUntilItIsReleased(t *testing.T) {
	inHouse(t, func(t *testing.T, h *house) {
		one, two := h.client("one"), h.client("two")
		l := acquire(t, one, "port 80", client.LeaseOptions{TTL: 3 * time.Second, Reason: "tests"})
		for range 20 {
			time.Sleep(10 * time.Second)
			if _, err := two.TryAcquire(t.Context(), "port 80", client.LeaseOptions{}); client.CodeOf(err) != "LEASE_HELD" || !strings.Contains(err.Error(), "(one)") {
				t.Fatalf("another gets it: %v", err)
			}
			if l.Left() < time.Second {
				t.Errorf("%v is left of it", l.Left())
			}
		}
		if err := l.Release(t.Context()); err != nil || !errors.Is(context.Cause(l.Context()), client.ErrReleased) {
			t.Errorf("released: %v, and %v", err, context.Cause(l.Context()))
		}
		if err := l.Release(t.Context()); err != nil {
			t.Errorf("released again: %v", err)
		}
		if _, err := l.Gate(); !errors.Is(err, client.ErrReleased) {
			t.Errorf("a gate after the release: %v", err)
		}
		other, err := two.TryAcquire(t.Context(), "port 80", client.LeaseOptions{})
		if err != nil || other.Token() <= l.Token() {
			t.Errorf("the next: %v %v", other, err)
		}
	})
}

// A program may act for the actor of a model. Messages are for the model.
func TestMessagesAreLeftForTheModel(t *testing.T) {
	inHouse(t, func(t *testing.T, h *house) {
		connect := func(name string) (*dispatch.Session, string) {
			_, token, err := h.state.AddActor(t.Context(), dispatch.NewActor{Run: "r", Name: name, Role: dispatch.Worker})
			if err != nil {
				t.Fatal(err)
			}
			se, err := h.state.Connect(t.Context(), dispatch.Credentials{Token: token}, process.Peer{PID: os.Getpid()})
			if err != nil {
				t.Fatal(err)
			}
			return se, token
		}
		model, token := connect("one")
		other, _ := connect("two")
		m := h.machine()
		c, err := client.OpenAt(t.Context(), client.Options{Servers: []string{"http://localhost"}, Token: token}, m.clock(), m.dial)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := other.Send(t.Context(), "", "one", "when are you done?", uuid.Nil); err != nil {
			t.Fatal(err)
		}
		if err := acquire(t, c, "deploy", client.LeaseOptions{}).Release(t.Context()); err != nil {
			t.Error(err)
		}
		if list, _, err := model.TakeMessages(t.Context(), ""); err != nil || len(list) != 1 {
			t.Errorf("the model is told %+v %v", list, err)
		}
	})
}

// A key, a queue or a value must not become another one in JSON.
func TestTextThatIsNotUTF8IsRefused(t *testing.T) {
	inHouse(t, func(t *testing.T, h *house) {
		c := h.client("one")
		const bad = "caf\xe9"
		for what, call := range map[string]func() error{
			"key":  func() error { _, err := c.TryAcquire(t.Context(), bad, client.LeaseOptions{}); return err },
			"name": func() error { _, err := c.Acquire(t.Context(), bad, client.LeaseOptions{Layer: true}); return err },
			"queue": func() error {
				_, err := c.Enqueue(t.Context(), client.NewTask{Queue: bad, Payload: 1})
				return err
			},
			"value": func() error { return c.Store(t.Context(), "/shared/x", bad) },
			"deep":  func() error { return c.Store(t.Context(), "/shared/x", map[string]any{"deep": []string{bad}}) },
			"the payload: payload": func() error {
				_, err := c.Enqueue(t.Context(), client.NewTask{Queue: "q", Payload: bad})
				return err
			},
			"reason": func() error { return c.Do(t.Context(), "POST", "/tasks/x/nack", map[string]any{"reason": bad}, nil) },
		} {
			if err := call(); client.CodeOf(err) != "INVALID_ARGUMENT" || err.Error() != what+" must be valid UTF-8" {
				t.Errorf("%s: %v", what, err)
			}
		}
		const good = "\ufffd \\ufffd"
		var got string
		if err := c.Store(t.Context(), "/shared/x", good); err != nil {
			t.Error(err)
		}
		if _, err := c.Load(t.Context(), "/shared/x", &got); err != nil || got != good {
			t.Errorf("%q: %v", got, err)
		}
	})
}

// Of those who write what they have read, none overwrites what another wrote since.
func TestAnEntryIsStoredIfItIsUnchanged(t *testing.T) {
	inHouse(t, func(t *testing.T, h *house) {
		c := h.client("one")
		store := func(version uint64, v int) string {
			return client.CodeOf(c.StoreIf(t.Context(), "/shared/n", version, v))
		}
		var n int
		version, err := c.LoadVersion(t.Context(), "/shared/n", &n)
		if version != 0 || err != nil {
			t.Fatal(version, err)
		}
		if err := c.StoreIf(t.Context(), "/shared/n", version, 1); err != nil {
			t.Fatal(err)
		}
		if code := store(0, 2); code != "VERSION_MISMATCH" {
			t.Errorf("there is an entry: %s", code)
		}
		version, err = c.LoadVersion(t.Context(), "/shared/n", &n)
		if version == 0 || n != 1 || err != nil {
			t.Fatal(version, n, err)
		}
		if err := c.StoreIf(t.Context(), "/shared/n", version, 2); err != nil {
			t.Fatal(err)
		}
		if code := store(version, 3); code != "VERSION_MISMATCH" {
			t.Errorf("it has changed: %s", code)
		}
		if found, err := c.Load(t.Context(), "/shared/n", &n); !found || n != 2 || err != nil {
			t.Errorf("%v %d %v", found, n, err)
		}
	})
}

// The first in line has it in the instant in which it is released.
func TestAcquireWaitsInLine(t *testing.T) {
	inHouse(t, func(t *testing.T, h *house) {
		one, two := h.client("one"), h.client("two")
		l := acquire(t, one, "a", client.LeaseOptions{TTL: 2 * time.Second})
		granted := make(chan time.Time)
		go func() {
			other := acquire(t, two, "a", client.LeaseOptions{TTL: 2 * time.Second})
			granted <- time.Now()
			time.Sleep(time.Minute)
			if other.Left() < time.Second {
				t.Error("after a wait it is not renewed")
			}
			close(granted)
		}()
		time.Sleep(100 * time.Second) // longer than any one call waits
		released := time.Now()
		if err := l.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		if at := <-granted; at.Sub(released) > 10*time.Millisecond {
			t.Errorf("it is granted after %v", at.Sub(released))
		}
		<-granted

		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		if _, err := one.Acquire(ctx, "a", client.LeaseOptions{}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("whoever waits no longer: %v", err)
		}
		synctest.Wait()
		if n := h.line(t, "a"); n != 0 {
			t.Errorf("it left %d places in the line", n)
		}
	})
}

// line is how many wait for a lease.
func (h *house) line(t *testing.T, key string) int {
	t.Helper()
	page, err := h.state.RunLeases(t.Context(), "r", "", dispatch.LeaseQuery{Scopes: []dispatch.Scope{dispatch.RunScope}, Prefix: key})
	if err != nil || len(page.Leases) != 1 {
		t.Fatalf("leases: %v %v", page, err)
	}
	return page.Leases[0].InLine
}

// Whatever the instant at which the server falls silent: the context of the holder ends
// before another can have the lease.
func TestAStalledServerEndsTheContextBeforeAnotherHasTheLease(t *testing.T) {
	for silent := range 10 {
		inHouse(t, func(t *testing.T, h *house) {
			const ttl = 3 * time.Second
			here := h.machine()
			here.answers(func([]byte) time.Duration { return 400 * time.Millisecond })
			one, two := here.open("one"), h.client("two")
			var warned atomic.Int64
			l := acquire(t, one, "a", client.LeaseOptions{TTL: ttl, Jeopardy: func(left time.Duration, err error) {
				if warned.Add(1); left <= 0 || left > ttl || err == nil {
					t.Errorf("jeopardy: %v left, %v", left, err)
				}
			}})
			ended := make(chan time.Time, 1)
			context.AfterFunc(l.Context(), func() { ended <- time.Now() })
			granted := make(chan time.Time, 1)
			go func() {
				other := acquire(t, two, "a", client.LeaseOptions{TTL: ttl})
				granted <- time.Now()
				_ = other.Release(t.Context())
			}()
			time.Sleep(10*time.Second + time.Duration(silent)*130*time.Millisecond)
			here.pull()
			pulled := time.Now()
			end, grant := <-ended, <-granted
			if !end.Before(grant) {
				t.Errorf("its context ended %v after another had the lease", end.Sub(grant))
			}
			if held := end.Sub(pulled); held < ttl/3 {
				t.Errorf("it was given up after %v of %v", held, ttl)
			}
			if warned.Load() == 0 {
				t.Error("nobody was told of jeopardy")
			}
			if !errors.Is(context.Cause(l.Context()), client.ErrDeadline) {
				t.Errorf("its context ended because %v", context.Cause(l.Context()))
			}
			if err := l.Release(t.Context()); !errors.Is(err, client.ErrLost) {
				t.Errorf("released after it was lost: %v", err)
			}
			here.plug()
			synctest.Wait()
		})
	}
}

// A machine that has slept through the deadline writes nothing under the lease, though
// none of its timers has fired.
func TestAGateKnowsOfASleep(t *testing.T) {
	inHouse(t, func(t *testing.T, h *house) {
		here := h.machine()
		l := acquire(t, here.open("one"), "a", client.LeaseOptions{TTL: 10 * time.Second})
		if gate, err := l.Gate(); err != nil || gate.Token != l.Token() {
			t.Fatalf("gate: %v %v", gate, err)
		}
		here.slept.Add(int64(time.Hour))
		if _, err := l.Gate(); !errors.Is(err, client.ErrDeadline) || l.Context().Err() == nil || l.Left() != 0 {
			t.Errorf("gate after a sleep: %v, context %v", err, l.Context().Err())
		}

		l = acquire(t, here.open("two"), "b", client.LeaseOptions{TTL: time.Hour})
		here.slept.Add(int64(2 * time.Hour))
		time.Sleep(1100 * time.Millisecond) // nobody asks for a gate
		if l.Context().Err() == nil {
			t.Error("the context lasts a second after the sleep")
		}
	})
}

func TestARevokedLeaseEndsItsContextAtOnce(t *testing.T) {
	inHouse(t, func(t *testing.T, h *house) {
		one := h.client("one")
		l := acquire(t, one, "a", client.LeaseOptions{TTL: time.Hour})
		gate, err := l.Gate()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := one.Enqueue(t.Context(), client.NewTask{Queue: "q", Payload: 1, Gates: []client.Gate{gate}}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if _, err := h.state.Revoke(t.Context(), "r", dispatch.Revocation{Scope: dispatch.RunScope, Key: "a", Reason: "maintenance"}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		cause := context.Cause(l.Context())
		if !errors.Is(cause, client.ErrLost) || !strings.Contains(cause.Error(), "maintenance") {
			t.Errorf("its context: %v", cause)
		}
		_, err = one.Enqueue(t.Context(), client.NewTask{Queue: "q", Payload: 2, Gates: []client.Gate{gate}})
		if client.CodeOf(err) != "STALE_TOKEN" {
			t.Errorf("a write under the lost lease: %v", err)
		}
	})
}

// A session ends whose client cannot be reached; the client learns it when it can.
func TestALostSessionLosesItsLeases(t *testing.T) {
	inHouse(t, func(t *testing.T, h *house) {
		here := h.machine()
		one, two := here.open("one"), h.client("two")
		l := acquire(t, one, "a", client.LeaseOptions{TTL: time.Hour})
		for _, away := range []time.Duration{time.Second, time.Minute} {
			synctest.Wait()
			here.pull()
			here.cut() // the server sees its end
			time.Sleep(away)
			here.plug()
			time.Sleep(3 * time.Second)
			_, err := two.TryAcquire(t.Context(), "a", client.LeaseOptions{})
			if short := away < 4*time.Second; short != (l.Context().Err() == nil) || short != (client.CodeOf(err) == "LEASE_HELD") {
				t.Errorf("away for %v: context %v, and another: %v", away, context.Cause(l.Context()), err)
			}
		}
		if cause := context.Cause(l.Context()); !errors.Is(cause, client.ErrLost) {
			t.Errorf("its context: %v", cause)
		}
		acquire(t, one, "b", client.LeaseOptions{}) // in another session
	})
}

// What is granted just as its session ends went back with it: it is not the holder's, at
// whatever instant the client learns of the one and of the other.
func TestAGrantInASessionThatHasEndedIsNone(t *testing.T) {
	inHouse(t, func(t *testing.T, h *house) {
		for reads := range int64(2) { // of the clock: before the lease is asked for, and before it is kept
			reads++
			here := h.machine()
			one := here.open(fmt.Sprint("one", reads))
			synctest.Wait()
			key := fmt.Sprint("key ", reads)
			here.onRead(reads, func() {
				here.pull()
				here.cut()
				time.Sleep(time.Minute) // the server ends the session
				here.plug()
				time.Sleep(3 * time.Second) // and the client opens another
				synctest.Wait()
			})
			l, err := one.TryAcquire(t.Context(), key, client.LeaseOptions{TTL: time.Hour})
			if here.reads.Load() < reads {
				t.Fatalf("the clock was read %d times", here.reads.Load())
			}
			_, other := h.client(fmt.Sprint("two", reads)).TryAcquire(t.Context(), key, client.LeaseOptions{})
			switch held := err == nil && l.Context().Err() == nil; {
			case held != (client.CodeOf(other) == "LEASE_HELD"):
				t.Errorf("at read %d the client has it: %v (%v), and another is told %v", reads, held, err, other)
			case err != nil && !errors.Is(err, client.ErrLost):
				t.Errorf("at read %d: %v", reads, err)
			}
		}
	})
}

// A daemon that starts again ends no lease, and of several servers one that answers is
// enough.
func TestTheNextServerIsTried(t *testing.T) {
	inHouse(t, func(t *testing.T, h *house) {
		h.open("localhost:81")
		one := h.machine().open("one", "http://localhost:9", "http://localhost", "http://localhost:81")
		l := acquire(t, one, "a", client.LeaseOptions{TTL: 10 * time.Second})
		for range 5 {
			h.doors["localhost:80"].shut()
			time.Sleep(20 * time.Second)
			if _, err := one.Enqueue(t.Context(), client.NewTask{Queue: "q", Payload: 1}); err != nil {
				t.Fatal(err)
			}
			h.open("localhost:80")
			h.doors["localhost:81"].shut()
			time.Sleep(20 * time.Second)
			if _, err := l.Gate(); err != nil {
				t.Fatal(err)
			}
			h.open("localhost:81")
		}
	})
}

// To the server the goroutines of a client are one holder. Whatever it grants to one of
// them, and however late that one learns of it, another has not had it and let it go.
func TestALateGrantIsNotHeldTwice(t *testing.T) {
	inHouse(t, func(t *testing.T, h *house) {
		here := h.machine()
		var late atomic.Int64
		here.answers(func(answer []byte) time.Duration {
			if bytes.Contains(answer, []byte(`"reentrant":false`)) && late.Add(1) == 1 {
				return time.Second
			}
			return 0
		})
		one := here.open("one")
		first := acquire(t, h.client("two"), "a", client.LeaseOptions{})
		tokens := make(chan uint64, 2)
		for range 2 {
			go func() {
				l := acquire(t, one, "a", client.LeaseOptions{})
				time.Sleep(100 * time.Millisecond)
				if _, err := l.Gate(); err != nil {
					t.Error(err)
				}
				if err := l.Release(t.Context()); err != nil {
					t.Error(err)
				}
				tokens <- l.Token()
			}()
		}
		synctest.Wait()
		if err := first.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		if a, b := <-tokens, <-tokens; a == b {
			t.Errorf("both held token %d", a)
		}
		if late.Load() < 1 {
			t.Error("nothing was late")
		}
	})
}

// To the server the goroutines of a client are one holder, which gets its own lease again.
// They exclude one another all the same, also while one of them releases.
func TestGoroutinesOfAClientExcludeOneAnother(t *testing.T) {
	inHouse(t, func(t *testing.T, h *house) {
		one, two := h.client("one"), h.client("two")
		first := acquire(t, one, "a", client.LeaseOptions{})
		if _, err := one.TryAcquire(t.Context(), "a", client.LeaseOptions{}); client.CodeOf(err) != "LEASE_HELD" {
			t.Errorf("another goroutine gets it: %v", err)
		}
		soon, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := one.Acquire(soon, "a", client.LeaseOptions{}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a goroutine that waits for a minute gets it: %v", err)
		}
		if first.Context().Err() != nil {
			t.Errorf("the lease has ended: %v", context.Cause(first.Context()))
		}
		if err := first.Release(t.Context()); err != nil {
			t.Error(err)
		}

		var inside, most, rounds atomic.Int64
		tokens := make(map[uint64]bool)
		var wg sync.WaitGroup
		for i := range 12 {
			c := []*client.Client{one, two}[i%2]
			wg.Go(func() {
				for range 5 {
					l, err := c.Acquire(t.Context(), "a", client.LeaseOptions{TTL: 5 * time.Second})
					if err != nil {
						t.Error(err)
						return
					}
					most.Store(max(most.Load(), inside.Add(1)))
					tokens[l.Token()] = true // only one at a time is here
					rounds.Add(1)
					time.Sleep(time.Duration(i) * time.Second) // some for longer than the ttl
					if err := l.Context().Err(); err != nil {
						t.Errorf("lost: %v", context.Cause(l.Context()))
					}
					inside.Add(-1)
					if err := l.Release(t.Context()); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		if most.Load() != 1 || rounds.Load() != 60 || len(tokens) != 60 {
			t.Errorf("%d at once, %d grants with %d tokens", most.Load(), rounds.Load(), len(tokens))
		}
	})
}

// Keys of files that overlap are one thing to goroutines of a client, too. Those that
// do not overlap are held at once, and whoever came first is first.
func TestGoroutinesExcludeOneAnotherFromWhatOverlaps(t *testing.T) {
	inHouse(t, func(t *testing.T, h *house) {
		one := h.machine().open("one")
		whole := acquire(t, one, "file:src/**", client.LeaseOptions{})
		other := acquire(t, one, "file:doc/a.md", client.LeaseOptions{})
		if _, err := one.TryAcquire(t.Context(), "file:src/a.go", client.LeaseOptions{}); client.CodeOf(err) != "LEASE_HELD" {
			t.Errorf("a file of a directory that another goroutine holds: %v", err)
		}
		var mu sync.Mutex
		var order []string
		var wg sync.WaitGroup
		for _, key := range []string{"file:src/a.go", "file:**", "file:doc/b.md"} {
			wg.Go(func() {
				l := acquire(t, one, key, client.LeaseOptions{})
				mu.Lock()
				order = append(order, key)
				mu.Unlock()
				time.Sleep(time.Second) // others that can have theirs have them
				if err := l.Release(t.Context()); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
		}
		if len(order) > 0 {
			t.Errorf("%s beside file:src/** and file:doc/a.md, and before file:**", order)
		}
		for _, l := range []*client.Lease{whole, other} {
			if err := l.Release(t.Context()); err != nil {
				t.Error(err)
			}
		}
		wg.Wait()
		if want := []string{"file:src/a.go", "file:**", "file:doc/b.md"}; !slices.Equal(order, want) {
			t.Errorf("the order is %q, want %q", order, want)
		}
	})
}

package client_test

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold/client"
	"github.com/leasehold/leasehold/dispatch"
)

// lateOnce has the first answer with some text come late.
func lateOnce(text string, late time.Duration) func(answer []byte) time.Duration {
	var done atomic.Bool
	return func(answer []byte) time.Duration {
		if bytes.Contains(answer, []byte(text)) && !done.Swap(true) {
			return late
		}
		return 0
	}
}

// The server may not have got the release, or may get it later. The next goroutine does
// not continue with that lease: it has one with another token.
func TestAfterAReleaseWithoutAnswerTheNextHasAnotherToken(t *testing.T) {
	inHouse(t, func(t *testing.T, h *house) {
		here := h.machine()
		one := here.open("one")
		for _, o := range []client.LeaseOptions{{}, {Shared: true}, {Layer: true}} {
			l := acquire(t, one, "a", o)
			here.pull()
			soon, cancel := context.WithTimeout(t.Context(), time.Second)
			if err := l.Release(soon); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("released: %v", err)
			}
			cancel()
			here.plug()
			next := acquire(t, one, "a", o)
			if next.Token() <= l.Token() {
				t.Errorf("the token is %d after %d", next.Token(), l.Token())
			}
			if err := next.Release(t.Context()); err != nil {
				t.Error(err)
			}
		}
	})
}

// A lease that is revoked before the answer that grants it has come is not held.
func TestANoticeMayComeBeforeTheGrant(t *testing.T) {
	inHouse(t, func(t *testing.T, h *house) {
		here := h.machine()
		here.answers(lateOnce(`"reentrant":false`, 2*time.Second))
		one := here.open("one")
		synctest.Wait() // the stream of notices is open
		time.AfterFunc(time.Second, func() {
			if _, err := h.state.Revoke(t.Context(), "r", dispatch.Revocation{Scope: dispatch.RunScope, Key: "a", Reason: "maintenance"}); err != nil {
				t.Error(err)
			}
		})
		l, err := one.TryAcquire(t.Context(), "a", client.LeaseOptions{TTL: time.Hour})
		if !errors.Is(err, client.ErrLost) {
			t.Errorf("it has the lease: %v %v", l, err)
		}
		acquire(t, one, "a", client.LeaseOptions{})
	})
}

// A grant that came late is renewed before it is used, also if the first try fails.
func TestALateGrantIsRenewedUntilThatSucceeds(t *testing.T) {
	inHouse(t, func(t *testing.T, h *house) {
		here := h.machine()
		grant, renewal := lateOnce(`"reentrant":false`, 4*time.Second), lateOnce(`"lease_id":`, -1)
		here.answers(func(answer []byte) time.Duration {
			if bytes.Contains(answer, []byte(`"reentrant":`)) {
				return grant(answer)
			}
			return renewal(answer)
		})
		l := acquire(t, here.open("one"), "a", client.LeaseOptions{TTL: 9 * time.Second})
		if l.Left() < 8*time.Second {
			t.Errorf("%v is left of it", l.Left())
		}
	})
}

// Acquire returns when its context ends, also if it has been granted what it then cannot
// renew or give back.
func TestAcquireReturnsWhenItsContextEnds(t *testing.T) {
	inHouse(t, func(t *testing.T, h *house) {
		here := h.machine()
		late := lateOnce(`"reentrant":false`, 4*time.Second)
		here.answers(func(answer []byte) time.Duration {
			d := late(answer)
			if d > 0 {
				time.AfterFunc(d+1, here.pull)
			}
			return d
		})
		one := here.open("one")
		here.onRead(2, func() { time.Sleep(time.Second) }) // when the grant has come
		ctx, cancel := context.WithTimeout(t.Context(), 6*time.Second)
		defer cancel()
		began := time.Now()
		l, err := one.Acquire(ctx, "a", client.LeaseOptions{TTL: 9 * time.Second})
		if took := time.Since(began); !errors.Is(err, context.DeadlineExceeded) || took > 6*time.Second {
			t.Errorf("after %v: %v %v", took, l, err)
		}
		here.plug()
		time.Sleep(10 * time.Second)
		if _, err := h.client("two").TryAcquire(t.Context(), "a", client.LeaseOptions{}); err != nil {
			t.Errorf("it is still held: %v", err)
		}
	})
}

// A lease of the layer has two names, and the goroutines of a client exclude one another
// by either.
func TestGoroutinesExcludeOneAnotherByEitherName(t *testing.T) {
	inHouse(t, func(t *testing.T, h *house) {
		one := h.client("one")
		l := acquire(t, one, "a", client.LeaseOptions{Layer: true})
		if _, err := one.TryAcquire(t.Context(), "/leases/a", client.LeaseOptions{Layer: true}); client.CodeOf(err) != "LEASE_HELD" {
			t.Errorf("another goroutine gets it: %v", err)
		}
		if err := l.Release(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A proxy answers for a server that does not. The stream of notices goes to the next one.
func TestTheStreamOfNoticesGoesToTheNextServer(t *testing.T) {
	inHouse(t, func(t *testing.T, h *house) {
		h.open("localhost:81")
		l := acquire(t, h.machine().open("one", "http://localhost", "http://localhost:81"), "a", client.LeaseOptions{TTL: time.Hour})
		h.refuse("localhost:80")
		time.Sleep(time.Minute)
		if _, err := h.state.Revoke(t.Context(), "r", dispatch.Revocation{Scope: dispatch.RunScope, Key: "a", Reason: "maintenance"}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if l.Context().Err() == nil {
			t.Error("it has heard nothing")
		}
	})
}

// A call goes to the next server if a proxy answers for one, or an answer breaks off. If
// there is no other server, the call is sent again until the server is back.
func TestACallGoesToAServerThatAnswers(t *testing.T) {
	inHouse(t, func(t *testing.T, h *house) {
		h.open("localhost:81")
		one := h.machine().open("one", "http://localhost", "http://localhost:81")
		for _, broken := range []http.HandlerFunc{
			func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) },
			func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Length", "100") },
			func(w http.ResponseWriter, r *http.Request) { // to calls alone: the stream of notices goes on
				if r.Header.Get("Accept") != "text/event-stream" {
					w.WriteHeader(http.StatusServiceUnavailable)
					return
				}
				w.(http.Flusher).Flush()
				<-r.Context().Done()
			},
		} {
			h.replace("localhost:80", broken)
			if err := one.Store(t.Context(), "/shared/a", 1); err != nil {
				t.Errorf("another server is there: %v", err)
			}
			h.doors["localhost:80"].shut()
			h.open("localhost:80")
			h.replace("localhost:81", broken)
			if err := one.Store(t.Context(), "/shared/a", 1); err != nil {
				t.Errorf("the first server is back: %v", err)
			}
			h.doors["localhost:81"].shut()
			h.open("localhost:81")
		}
		h.doors["localhost:81"].shut()
		h.refuse("localhost:80")
		time.AfterFunc(10*time.Second, func() {
			h.doors["localhost:80"].shut()
			h.open("localhost:80")
		})
		if err := one.Store(t.Context(), "/shared/a", 1); err != nil {
			t.Errorf("a server is back: %v", err)
		}
	})
}

// A server that stands still keeps its connections. A call that waits there goes to the
// next server, and so does the stream of notices, long before either would have ended.
func TestACallLeavesAServerThatStandsStill(t *testing.T) {
	inHouse(t, func(t *testing.T, h *house) {
		h.open("localhost:81")
		here := h.machine()
		one := here.open("one", "http://localhost", "http://localhost:81")
		held := acquire(t, h.client("two"), "a", client.LeaseOptions{TTL: time.Hour})
		kept := acquire(t, one, "b", client.LeaseOptions{TTL: time.Hour})
		granted := make(chan *client.Lease, 1)
		go func() { granted <- acquire(t, one, "a", client.LeaseOptions{TTL: time.Hour}) }()
		synctest.Wait()
		began := time.Now()
		here.pullFrom("localhost:80")
		if err := held.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		<-granted
		if took := time.Since(began); took > 20*time.Second {
			t.Errorf("the call took %v", took)
		}
		time.Sleep(30*time.Second - time.Since(began))
		if _, err := h.state.Revoke(t.Context(), "r", dispatch.Revocation{Scope: dispatch.RunScope, Key: "b", Reason: "maintenance"}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if kept.Context().Err() == nil {
			t.Error("the stream has not moved")
		}
	})
}

// A session that is being opened when its client is closed is ended, too.
func TestCloseLeavesNoSessionThatIsBeingOpened(t *testing.T) {
	inHouse(t, func(t *testing.T, h *house) {
		const ends = "DELETE /api/v1/session"
		here := h.machine()
		one := here.open("one")
		here.answers(lateOnce(`"session":`, 3*time.Second))
		if err := one.Do(t.Context(), http.MethodDelete, "/session", nil, nil); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second) // the stream has ended, and another session is being opened
		if err := one.Close(); err != nil {
			t.Error(err)
		}
		time.Sleep(10 * time.Second)
		if here.requests(ends) != 2 || here.requests("POST /api/v1/sessions") != 2 {
			t.Errorf("%d sessions were opened, and %d ended", here.requests("POST /api/v1/sessions"), here.requests(ends))
		}
	})
}

func TestCloseTriesTheNextServer(t *testing.T) {
	inHouse(t, func(t *testing.T, h *house) {
		h.open("localhost:81")
		here := h.machine()
		one := here.open("one", "http://localhost", "http://localhost:81")
		here.answers(lateOnce("204 No Content", -1))
		if err := one.Close(); err != nil || here.requests("DELETE /api/v1/session") != 2 {
			t.Errorf("%v, after %d requests", err, here.requests("DELETE /api/v1/session"))
		}
	})
}

// A call is cancelled after its answer was read from the connection, and before it reached
// whoever made the call. The server cannot see that nobody has the answer.
func TestACancelledCallLeavesNothingThoughItsAnswerWasRead(t *testing.T) {
	inHouse(t, func(t *testing.T, h *house) {
		m := h.machine()
		one, two := m.open("one"), h.client("two")
		id := enqueue(t, two, client.NewTask{Queue: "q", Payload: 1})
		m.answers(func(answer []byte) time.Duration {
			if bytes.Contains(answer, []byte("lease_id")) || bytes.Contains(answer, []byte("payload")) {
				return time.Second
			}
			return 0
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second/2)
		defer cancel()
		if l, err := one.Acquire(ctx, "a", client.LeaseOptions{TTL: time.Hour}); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("%v, %v", l, err)
		}
		ctx, cancel = context.WithTimeout(t.Context(), time.Second/2)
		defer cancel()
		if err := one.Work(ctx, client.Worker{Queues: []string{"q"}, TTL: time.Hour, Handle: func(context.Context, *client.Task) (any, error) {
			t.Error("it works")
			return nil, nil
		}}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if _, err := two.TryAcquire(t.Context(), "a", client.LeaseOptions{}); err != nil {
			t.Error(err)
		}
		var task struct{ State string }
		if err := two.Do(t.Context(), http.MethodGet, "/tasks/"+id, nil, &task); err != nil || task.State != "ready" {
			t.Errorf("the task is %s (%v)", task.State, err)
		}
	})
}

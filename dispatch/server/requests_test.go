package server

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"net"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/dispatch/server/fair"
	"github.com/leasehold/leasehold/dispatch/server/wire"
	"github.com/leasehold/leasehold/engine/call"
)

// A client that goes is noticed at any time: while its call runs, and in the instant in
// which its answer becomes ready. Either way somebody undoes the call, and only once.
func TestGivenUpCallIsUndoneOnce(t *testing.T) {
	for name, settled := range map[string]bool{"while it runs": false, "with its answer ready": true} {
		rs := requests{share: newShare(t)}
		r, err := rs.begin(t.Context(), &wire.Message{Key: "1"}, false, 1, call.Call{Name: "1"})
		if err != nil {
			t.Fatal(err)
		}
		r.open = true
		if settled && !rs.settle(r) {
			t.Fatalf("%s: the answer is not wanted", name)
		}
		undo := rs.giveUp(r, errClientGone)
		if undo != settled {
			t.Errorf("%s: the caller undoes it: %t", name, undo)
		}
		if !settled && (context.Cause(r.ctx) != errClientGone || rs.settle(r) || !rs.toUndo(r)) {
			t.Errorf("%s: it is not undone when it returns", name)
		}
		if rs.giveUp(r, errClientGone) || rs.lost(r) {
			t.Errorf("%s: it is undone again", name)
		}
	}
}

// A proxy sends a request again whose connection broke with its answer. Until the call is
// undone, the same request waits: it would be told what is just being taken back.
func TestARequestWaitsUntilItsLostAnswerIsUndone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, lost := range map[string]func(*requests, *request) bool{
			"given up": func(rs *requests, r *request) bool { return rs.giveUp(r, errClientGone) },
			"unread":   (*requests).lost,
		} {
			rs := requests{share: newShare(t)}
			begin := func() (*request, error) {
				return rs.begin(t.Context(), &wire.Message{Key: "1"}, false, 1, call.Call{Name: "1"})
			}
			first, _ := begin()
			rs.settle(first)
			if !lost(&rs, first) {
				t.Fatalf("%s: it is not undone", name)
			}
			if _, err := begin(); err != (duplicateError{first}) {
				t.Errorf("%s: while the call is undone, it begins again: %v", name, err)
			}
			undone := make(chan bool, 1)
			go func() { undone <- rs.awaitBroken(t.Context(), first) }()
			synctest.Wait()
			if len(undone) > 0 {
				t.Errorf("%s: it does not wait", name)
			}
			rs.forget(first)
			if !<-undone {
				t.Errorf("%s: it is refused", name)
			}
			if _, err := begin(); err != nil {
				t.Errorf("%s: when the call is undone: %v", name, err)
			}
		}
	})
}

// newShare returns the share of an actor that uses nothing else.
func newShare(t *testing.T) *fair.Share {
	t.Helper()
	sh, err := fair.New(fair.Limits{ActorConns: 1}).Take(uuid.New(), fair.SocketConn)
	if err != nil {
		t.Fatal(err)
	}
	return sh
}

// entered is marked.enter for a call that is not refused.
func entered(t *testing.T, k *marked, in *requests, r *request) (leave func()) {
	t.Helper()
	leave = k.enter(in, r)
	if err := context.Cause(r.ctx); err == call.ErrReused {
		t.Error(err)
	}
	return leave
}

// beginMarked begins a request of a call that its client has marked.
func beginMarked(t *testing.T, in *requests) *request {
	t.Helper()
	m := &wire.Message{Key: "1"}
	m.Params.Meta.Call = "m"
	r, err := in.begin(t.Context(), m, false, 1, call.Call{Name: "m"})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// A request of a call breaks off after its answer, and the call comes again at any time:
// before that is seen, it undoes nothing; later, it waits until the call is undone.
func TestACopyIsNotToldWhatIsTakenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, before := range map[string]bool{"before the loss is seen": true, "after it": false} {
			rs := requests{share: newShare(t)}
			var k marked
			begin := func() *request { return beginMarked(t, &rs) }
			first := begin()
			leave := entered(t, &k, &rs, first)
			rs.settle(first)
			leave()

			ran := make(chan func(), 1)
			again := func() {
				second := begin()
				go func() { ran <- entered(t, &k, &rs, second) }()
				synctest.Wait()
			}
			if before {
				again()
			}
			undone := k.hold(&rs, first)
			if undo := rs.giveUp(first, errClientGone); undo == before {
				t.Errorf("%s: the call is undone: %t", name, undo)
			}
			if !before {
				again()
				if len(ran) > 0 {
					t.Errorf("%s: the copy runs while the call is undone", name)
				}
			}
			undone()
			(<-ran)()
			if len(k.calls) > 0 {
				t.Errorf("%s: %d calls are left", name, len(k.calls))
			}
		}
	})
}

// The connection of an answered request breaks off, and its client may have sent the call
// again before that is seen. Then it was there after that request, but not after the last
// one.
func TestOnlyTheLastRequestOfACallShowsThatItsClientIsGone(t *testing.T) {
	rs := requests{share: newShare(t)}
	begin := func() *request { return beginMarked(t, &rs) }
	first := begin()
	rs.settle(first)
	if rs.sentAgain(first) {
		t.Error("the call was sent once")
	}
	second := begin()
	if !rs.sentAgain(first) {
		t.Error("it was sent again, and runs")
	}
	rs.settle(second)
	if !rs.sentAgain(first) || rs.sentAgain(second) {
		t.Errorf("it was sent again after the first request: %v, after the second: %v", rs.sentAgain(first), rs.sentAgain(second))
	}
}

// Two copies of a call never run at the same time, whoever is still there: what one of
// them undoes could be what the other has answered. A copy whose connection is over
// does not cut off one that runs.
func TestCopiesOfACallRunOneAfterTheOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var k marked
		begin := func(ctx context.Context) (*requests, *request) {
			rs := &requests{share: newShare(t)}
			r, err := rs.begin(ctx, &wire.Message{Key: "1"}, false, 1, call.Call{Name: "m"})
			if err != nil {
				t.Fatal(err)
			}
			return rs, r
		}
		first, runs := begin(t.Context())
		leave := entered(t, &k, first, runs)

		over, end := context.WithCancel(t.Context())
		end()
		in, dead := begin(over)
		in.giveUp(dead, errClientGone)
		entered(t, &k, in, dead)()
		if runs.ctx.Err() != nil {
			t.Errorf("the one that runs is cut off: %v", context.Cause(runs.ctx))
		}
		if in.settle(dead) || in.toUndo(dead) {
			t.Error("the copy whose connection is over is answered, or undoes something")
		}

		ctx, end := context.WithCancel(t.Context())
		in, next := begin(ctx)
		ran := false
		go func() {
			entered(t, &k, in, next)()
			ran = true
		}()
		synctest.Wait()
		if context.Cause(runs.ctx) != errSentAgain {
			t.Errorf("the earlier one is not cut off: %v", context.Cause(runs.ctx))
		}
		if first.settle(runs) || first.toUndo(runs) {
			t.Error("the earlier one is answered, or undoes something")
		}
		end()
		synctest.Wait()
		if ran {
			t.Error("two copies run at the same time")
		}
		leave()
		synctest.Wait()
		if !ran {
			t.Error("the second copy does not run")
		}
	})
}

// A server that is killed resets its connections to others. That says nothing of the
// answers that passed through it.
func TestTheResetOfAServerIsNoneOfAClient(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	door, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	leader, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer leader.Close()
	if err := door.(*net.TCPConn).SetLinger(0); err != nil { // so that Close resets it
		t.Fatal(err)
	}
	door.Close()
	web := &webConn{Conn: &passedWeb{passed: passed{Conn: leader, in: bufio.NewReader(leader)}}}
	web.taken, web.unread = func() {}, func() { t.Error("its answer counts as unread") }
	if _, err := web.Read(make([]byte, 1)); !errors.Is(err, errDoorLost) || !web.doorLost() {
		t.Errorf("the way ends with %v, lost: %t", err, web.doorLost())
	}
}

// net/http ends the read beside each request by a deadline, at any byte of what another
// server says of the client. What was read by then is not lost: whether the client has
// read its answer is known in the end.
func TestAReadThatIsEndedByADeadlineLosesNothing(t *testing.T) {
	for _, end := range []webEnd{{Written: 5}, {Written: 5, Reset: true}, {Written: 4}} {
		text, err := binary.Append([]byte{0, 0, 0, 2, 'h', 'i', 0, 0, 0, 0}, binary.BigEndian, end)
		if err != nil {
			t.Fatal(err)
		}
		for cut := range text {
			door, leader := net.Pipe()
			web := &passedWeb{passed: passed{Conn: leader, in: bufio.NewReader(leader)}, written: 5}
			var got []byte
			var last error
			read := func() {
				for last == nil {
					p := make([]byte, 10)
					var n int
					n, last = web.Read(p)
					got = append(got, p[:n]...)
				}
			}
			ended := make(chan struct{})
			go func() { defer close(ended); read() }()
			if _, err := door.Write(text[:cut]); err != nil { // returns when it is read
				t.Fatal(err)
			}
			_ = leader.SetReadDeadline(time.Unix(1, 0))
			<-ended
			if !errors.Is(last, os.ErrDeadlineExceeded) {
				t.Fatalf("after %d bytes: %v", cut, last)
			}
			_ = leader.SetReadDeadline(time.Time{})
			last, ended = nil, make(chan struct{})
			go func() { defer close(ended); read() }()
			if _, err := door.Write(text[cut:]); err != nil {
				t.Fatal(err)
			}
			door.Close()
			<-ended
			if unread := end != (webEnd{Written: 5}); string(got) != "hi" || web.lost || errors.Is(last, syscall.ECONNRESET) != unread {
				t.Errorf("%+v, cut after %d bytes: read %q, then %v; its server is lost: %t", end, cut, got, last, web.lost)
			}
			leader.Close()
		}
	}
}

// A request that is refused counts for nobody, and one that is served counts for its
// actor until it is freed.
func TestRequestCountsForItsActorUntilFreed(t *testing.T) {
	rs := requests{share: newShare(t)}
	for range fair.MaxActorWaits - 1 {
		if err := rs.share.Begin(0, true); err != nil {
			t.Fatal(err)
		}
	}
	m := &wire.Message{Key: "1"}
	r, err := rs.begin(t.Context(), m, true, fair.MaxActorArrivedWaits, call.Call{Name: "1"})
	if err != nil {
		t.Fatal(err)
	}
	const left = fair.MaxArrived - fair.MaxActorArrivedWaits
	if rs.share.Begin(0, true) == nil || rs.share.Begin(left+1, false) == nil {
		t.Error("it does not count")
	}
	rs.settle(r)
	if rs.share.Begin(0, true) == nil || rs.share.Begin(left+1, false) == nil {
		t.Error("it does not count until its answer is written")
	}
	rs.free(r)
	if _, err := rs.begin(t.Context(), m, true, 1, call.Call{Name: "1"}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := rs.begin(t.Context(), m, false, fair.MaxArrived-1, call.Call{Name: "2"}); err == nil {
			t.Fatal("its id is taken twice")
		}
	}
	if err := rs.share.Begin(fair.MaxArrived-1, false); err != nil {
		t.Errorf("a refused request counts: %v", err)
	}
}

// Two copies of a call come over one session. The first breaks off when the second has
// replaced it, so what the first has done is left to the second.
func TestARequestThatWasReplacedUndoesNothing(t *testing.T) {
	rs := requests{share: newShare(t)}
	first := beginMarked(t, &rs)
	beginMarked(t, &rs)
	if rs.giveUp(first, errClientGone) || rs.settle(first) || rs.toUndo(first) {
		t.Error("the first one is answered, or undoes something")
	}
}

// A call that waits on a newer connection goes first, but only until its client has left.
func TestACopyDoesNotYieldToOneThatNobodyReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var k marked
		newer, older := &requests{conn: 2, share: newShare(t)}, &requests{conn: 1, share: newShare(t)}
		left, stays := beginMarked(t, newer), beginMarked(t, older)
		leave := entered(t, &k, newer, left)
		newer.giveUp(left, errClientGone)
		go func() { entered(t, &k, older, stays)() }()
		synctest.Wait()
		leave()
		synctest.Wait()
		if !older.settle(stays) {
			t.Error("the copy whose client is there is not answered")
		}
	})
}

package fair

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/registry"
)

func take(t *testing.T, s *Shares, actor uuid.UUID, u Use) *Share {
	t.Helper()
	sh, err := s.Take(actor, u)
	if err != nil {
		t.Fatal(err)
	}
	return sh
}

func refused(t *testing.T, err error, limit int64) {
	t.Helper()
	if over, ok := errors.AsType[*registry.LimitError](err); !ok || over.Max != limit {
		t.Errorf("got %v, not a refusal above %d", err, limit)
	}
}

func TestEachUseIsBoundedByItself(t *testing.T) {
	s := New(Limits{ProcessConns: 2, ActorConns: 2, ActorHTTPConns: 2, ActorHTTPSessions: 2})
	actor, other := uuid.New(), uuid.New()
	uses := []Use{WebBody, WebBody, WebBody, SocketConn, SocketConn, WebSession, WebSession, WebConn, WebConn}
	for _, u := range uses {
		take(t, s, actor, u)
	}
	for _, u := range []Use{SocketConn, WebSession, WebConn} {
		_, err := s.Take(actor, u)
		refused(t, err, 2)
		take(t, s, other, u).GiveBack(u)
		s.actors[actor].GiveBack(u)
		take(t, s, actor, u)
	}
	for _, u := range slices.Backward(uses) {
		s.actors[actor].GiveBack(u)
	}
	if len(s.actors) > 0 {
		t.Errorf("%d actors are kept that use nothing", len(s.actors))
	}

	leave, err := s.EnterProcess(1)
	again, err2 := s.EnterProcess(1)
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	_, err = s.EnterProcess(1)
	refused(t, err, 2)
	leave()
	if leave, err = s.EnterProcess(1); err != nil {
		t.Fatal(err)
	}
	leave()
	again()
	if len(s.processes) > 0 {
		t.Errorf("%d processes are kept that have no connection", len(s.processes))
	}
}

// A refused call counts for nothing, and one alone may be as large as it likes.
func TestTheBytesOfCallsAreBounded(t *testing.T) {
	s := New(Limits{ActorConns: 1})
	sh := take(t, s, uuid.New(), SocketConn)
	begin := func(bytes int) {
		t.Helper()
		if err := sh.Begin(bytes, false); err != nil {
			t.Fatal(err)
		}
	}
	begin(MaxArrived + 1)
	sh.Done(MaxArrived+1, false)
	begin(MaxArrived - 1)
	refused(t, sh.Begin(2, false), MaxArrived)
	begin(1)
}

// Calls that wait take nothing that a renewal or a release could need.
func TestTheBytesOfWaitingCallsAreBounded(t *testing.T) {
	s := New(Limits{ActorConns: 1})
	var sh *Share
	for range MaxArrivedWaits / MaxActorArrivedWaits {
		sh = take(t, s, uuid.New(), SocketConn)
		if err := sh.Begin(MaxActorArrivedWaits, true); err != nil {
			t.Fatal(err)
		}
		refused(t, sh.Begin(1, true), MaxActorArrivedWaits)
	}
	later := func(err error) { // for the calls of others, of which it can end none
		t.Helper()
		if err == nil || !strings.HasSuffix(err.Error(), "; try again later") {
			t.Errorf("another actor is told %v", err)
		}
	}
	other := take(t, s, uuid.New(), SocketConn)
	refused(t, other.Begin(1, true), MaxArrivedWaits)
	later(other.Begin(1, true))
	if err := other.Begin(MaxArrived-MaxArrivedWaits, false); err != nil {
		t.Errorf("a call that does not wait: %v", err)
	}
	later(take(t, s, uuid.New(), SocketConn).Begin(1, false))
	sh.Done(MaxActorArrivedWaits, true)
	other.Done(MaxArrived-MaxArrivedWaits, false)
	if err := other.Begin(MaxActorArrivedWaits, true); err != nil {
		t.Errorf("there is room again: %v", err)
	}
	if n := s.arrived.Load(); n != MaxArrivedWaits {
		t.Errorf("calls of %d bytes wait, and count for %d", MaxArrivedWaits, n)
	}
}

func TestWaitingCallsAreBounded(t *testing.T) {
	s := New(Limits{ActorConns: 1})
	var sh *Share
	for range MaxWaits / MaxActorWaits {
		sh = take(t, s, uuid.New(), SocketConn)
		for range MaxActorWaits {
			if err := sh.Begin(1, true); err != nil {
				t.Fatal(err)
			}
		}
		refused(t, sh.Begin(1, true), MaxActorWaits)
	}
	other := take(t, s, uuid.New(), SocketConn)
	refused(t, other.Begin(1, true), MaxWaits)
	if n := s.arrived.Load(); n != MaxWaits {
		t.Errorf("%d calls of one byte run, and count for %d bytes", MaxWaits, n)
	}
	sh.Done(1, true)
	if err := other.Begin(1, true); err != nil {
		t.Errorf("one no longer waits, and another may not: %v", err)
	}
	other.Done(1, true)
	if err := sh.Begin(1, true); err != nil {
		t.Errorf("one no longer waits, and its actor may not wait again: %v", err)
	}
}

// A client that reads gets its answers until others have left twice the limit unread.
func TestUnreadAnswersAreBounded(t *testing.T) {
	for _, c := range []struct {
		others, bytes, behind int64
		room                  bool
	}{
		{0, MaxClientUnread + 1, 0, true},
		{0, MaxClientUnread - 1, 1, true},
		{0, MaxClientUnread, 1, false},
		{MaxUnread - 1, 1, 1, true},
		{MaxUnread, 1, 1, false},
		{MaxUnread, MaxUnread, 0, true},
		{MaxUnread, MaxUnread + 1, 0, false},
	} {
		s := New(Limits{})
		s.Queue(c.others, 0)
		if room := s.Queue(c.bytes, c.behind); room != c.room {
			t.Errorf("%+v: room is %v", c, room)
		}
	}
}

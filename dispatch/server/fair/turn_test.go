package fair

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
)

func turnOf(t *testing.T, ctx context.Context, sh *Share, long bool) *Turn {
	t.Helper()
	_, turn, err := sh.Turn(ctx, long)
	if err != nil {
		t.Fatal(err)
	}
	return turn
}

// took runs do, and checks how long that takes.
func took(t *testing.T, want time.Duration, do func()) {
	t.Helper()
	start := time.Now()
	if do(); time.Since(start) != want {
		t.Errorf("took %v, not %v", time.Since(start), want)
	}
}

// isFree checks that no turn was kept, and none given back twice.
func isFree(t *testing.T, sh *Share) {
	t.Helper()
	synctest.Wait()
	if n := len(sh.turns) + len(sh.reader) + len(sh.of.reads) + len(sh.of.long); n != 0 {
		t.Errorf("turns that nobody has are taken: %d of the actor, %d to read, %d snapshots, %d long ones",
			len(sh.turns), len(sh.reader), len(sh.of.reads), len(sh.of.long))
	}
}

// A call that gives up has no turn, and takes none from others.
func TestACallThatGivesUpHasNoTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Limits{ActorConns: 9})
		sh := take(t, s, uuid.New(), SocketConn)
		ctx, giveUp := context.WithCancelCause(t.Context())
		gone := errors.New("its client is gone")
		one := turnOf(t, ctx, sh, false)
		one.Pause()
		var others []*Turn
		for range MaxTurns {
			others = append(others, turnOf(t, t.Context(), sh, false))
		}
		giveUp(gone)
		if err := one.Resume(); !errors.Is(err, gone) {
			t.Errorf("a call that gave up got its turn back: %v", err)
		}
		one.GiveBack()
		if len(sh.turns) != MaxTurns {
			t.Errorf("%d calls have a turn, and %d count", MaxTurns, len(sh.turns))
		}
		for _, other := range others {
			other.GiveBack()
		}
		isFree(t, sh)

		for range cap(s.reads) {
			s.reads <- struct{}{}
		}
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		reader := turnOf(t, ctx, sh, false)
		if reader.Begin() == nil {
			t.Error("there is one snapshot too many")
		}
		reader.GiveBack()
		for range cap(s.reads) {
			<-s.reads
		}
		isFree(t, sh)
	})
}

// A call that has a long turn reads in it, and takes no other.
func TestALongTurnIsForAllThatACallDoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sh := take(t, New(Limits{ActorConns: 1}), uuid.New(), SocketConn)
		turn := turnOf(t, t.Context(), sh, true)
		if err := turn.Begin(); err != nil {
			t.Fatal(err)
		}
		if len(sh.of.reads) > 0 || len(sh.reader) > 0 {
			t.Error("a call with a long turn keeps others from reading")
		}
		if err := turn.Long(); err != nil {
			t.Fatal(err)
		}
		turn.End()
		turn.Heavy()
		turn.Wait()
		took(t, 0, turn.GiveBack) // others rest from it while nobody has its turn
		time.Sleep(maxRest)
		isFree(t, sh)
	})
}

// A call may have a long turn before it waits for a change and a short one afterwards, or the
// other way round. It gives back what it has, and nothing twice.
func TestACallHasTurnsOfBothKinds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sh := take(t, New(Limits{ActorConns: 1}), uuid.New(), SocketConn)
		read := func(turn *Turn) {
			t.Helper()
			if err := turn.Begin(); err != nil {
				t.Fatal(err)
			}
			turn.End()
		}
		resume := func(turn *Turn) {
			t.Helper()
			turn.Pause()
			time.Sleep(maxRest)
			isFree(t, sh)
			if err := turn.Resume(); err != nil {
				t.Fatal(err)
			}
		}
		turn := turnOf(t, t.Context(), sh, true)
		read(turn)
		resume(turn) // a short one
		read(turn)
		other := turnOf(t, t.Context(), sh, false)
		other.Heavy()
		other.GiveBack()
		resume(turn) // a long one, because the last call was heavy
		read(turn)
		turn.GiveBack()
		time.Sleep(maxRest)
		isFree(t, sh)
	})
}

// After a transaction that held the lock for long, a call keeps its turn, and rests before
// it gives it back. The actor's next calls are long, until enough of them were not heavy.
func TestHeavyCallsLeaveTheLockToOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sh := take(t, New(Limits{ActorConns: 1}), uuid.New(), SocketConn)
		turn := turnOf(t, t.Context(), sh, false)
		turn.Heavy()
		turn.Wait()
		if len(sh.turns) != 1 {
			t.Error("a heavy call gives its turn back before it has rested")
		}
		took(t, maxRest, turn.Pause)
		isFree(t, sh)
		took(t, 0, turn.GiveBack)

		isLong := func(want bool, heavy bool) {
			t.Helper()
			next := turnOf(t, t.Context(), sh, false)
			if long := len(sh.of.long) == 1; long != want {
				t.Errorf("a call has a long turn: %v", long)
			}
			if heavy {
				next.Heavy()
			}
			next.GiveBack()
			time.Sleep(maxRest)
			isFree(t, sh)
		}
		isLong(true, false)
		isLong(true, true)
		for range heavyAfter {
			isLong(true, false)
		}
		isLong(false, false)
	})
}

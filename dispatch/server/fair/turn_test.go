package fair

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
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
	if n := len(sh.turns) + len(sh.reader) + len(sh.of.looks) + len(sh.of.reads) + len(sh.of.long); n != 0 {
		t.Errorf("turns that nobody has are taken: %d of the actor, %d to read, %d looks, %d snapshots, %d long ones",
			len(sh.turns), len(sh.reader), len(sh.of.looks), len(sh.of.reads), len(sh.of.long))
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

// However many calls wait, those that look at the same time leave the lock to the calls of
// others. One that gives up, that waits for the disk or that makes a snapshot leaves its place.
func TestFewCallsLookAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Limits{ActorConns: 1})
		var looking, looked atomic.Int32
		next := make(chan struct{})
		wait := func(ctx context.Context, look func(turn *Turn)) {
			sh, err := s.Take(uuid.New(), SocketConn)
			if err != nil {
				t.Error(err)
				return
			}
			ctx, turn, err := sh.Turn(ctx, false)
			if err != nil {
				t.Error(err)
				return
			}
			defer turn.GiveBack()
			watch := new(engine.Hub).Watch("key")
			defer watch.Stop()
			_ = engine.Await(ctx, watch, time.Second, func(last bool) error {
				looking.Add(1)
				defer looking.Add(-1)
				look(turn)
				looked.Add(1)
				if last {
					return nil
				}
				return engine.ErrWait
			})
		}
		atOnce, ctx := cap(s.looks), t.Context()
		for range 3 * atOnce {
			go wait(ctx, func(*Turn) { <-next })
		}
		synctest.Wait()
		gone, giveUp := context.WithCancel(ctx)
		go wait(gone, func(*Turn) { t.Error("a call that gave up looks") })
		synctest.Wait()
		giveUp()
		synctest.Wait()
		if n := int(looking.Load()); n != atOnce {
			t.Errorf("%d calls look at once, not %d", n, atOnce)
		}
		quick := take(t, s, uuid.New(), SocketConn)
		took(t, 0, turnOf(t, ctx, quick, false).GiveBack)

		close(next)
		synctest.Wait()
		if n := int(looked.Load()); n != 3*atOnce {
			t.Errorf("%d of %d calls looked", n, 3*atOnce)
		}
		time.Sleep(2 * time.Second) // the waits are over, and each has looked once more
		if n := int(looked.Load()); n != 6*atOnce {
			t.Errorf("%d looks, not %d", n, 6*atOnce)
		}
		isFree(t, quick)

		leave := make(chan struct{})
		for _, away := range []func(*Turn){
			(*Turn).Wait,
			func(turn *Turn) {
				if err := turn.Begin(); err != nil {
					t.Error(err)
				}
				turn.End()
			},
		} {
			for range 2 * atOnce {
				go wait(ctx, func(turn *Turn) {
					away(turn)
					<-leave
				})
			}
		}
		synctest.Wait()
		if n := int(looking.Load()); n != 4*atOnce {
			t.Errorf("%d calls that left the lock go on, not %d", n, 4*atOnce)
		}
		close(leave)
		time.Sleep(2 * time.Second)
		isFree(t, quick)
	})
}

// In a container, few of the processors of the machine are the daemon's.
func TestNoMoreCallsLookThanTheDaemonHasProcessors(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	if n := cap(New(Limits{}).looks); n != 1 {
		t.Errorf("%d calls look at once on one processor", n)
	}
}

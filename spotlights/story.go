package spotlights

import (
	"context"
	"fmt"
	"io"
	"net"
)

// A Story shows one guarantee.
type Story struct {
	Name    string // as the command takes it
	Title   string
	Promise string // the guarantee, in a sentence

	// Real: it has processes, which only a [Machine] can start and kill.
	Real bool

	tell func(*stage)
}

// A Daemon is what a story is told to.
type Daemon interface {
	// Dial opens a connection to its socket.
	Dial(ctx context.Context) (net.Conn, error)
	// Restart ends it without a warning, as kill -9 does, and starts it
	// again over what it had stored.
	Restart(ctx context.Context) error
}

// Stories are all stories, in the order in which they are best read.
func Stories() []Story {
	return []Story{
		strictTree,
		runContention,
		crashedHolder,
		fifoHandOver,
		twoSessions,
		daemonRestart,
		expiry,
		lateWrite,
		readersAndWriter,
		deadlockRefused,
		twoFiles,
		revoked,
		workerDies,
		zombieRefused,
		heartbeatAndReaper,
		taskOrder,
		deadLetter,
		thousandInFlight,
		publishingUp,
		envelopeCap,
		killedWorker,
		killCascade,
		resumedRun,
	}
}

// Tell tells the story to a daemon that has no runs yet, and narrates it to w.
// It returns why the story did not go as promised.
func (s Story) Tell(ctx context.Context, d Daemon, w io.Writer) (err error) {
	if _, ok := d.(*Machine); s.Real && !ok {
		return fmt.Errorf("%s: has real processes, and is told to a machine alone", s.Name)
	}
	ctx, cancel := context.WithCancel(ctx)
	st := &stage{ctx: ctx, daemon: d, out: w}
	defer func() {
		cancel()
		st.leave()
		switch r := recover().(type) {
		case nil:
		case broken:
			err = fmt.Errorf("%s: %w", s.Name, r.error)
		default:
			panic(r)
		}
	}()
	s.tell(st)
	return nil
}

// broken ends a story that does not go as promised.
type broken struct{ error }

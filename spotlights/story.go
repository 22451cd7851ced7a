package spotlights

import (
	"context"
	"fmt"
	"io"
	"net"
)

// A Story demonstrates one guarantee.
type Story struct {
	Name    string // the argument of the command
	Title   string
	Promise string // the guarantee, in one sentence

	// Real means that it has processes, which only a [Machine] can start and
	// kill.
	Real bool

	tell func(*stage)
}

// A Daemon is the daemon that a story runs against.
type Daemon interface {
	// Dial opens a connection to its socket.
	Dial(ctx context.Context) (net.Conn, error)
	// Restart kills it, as kill -9 does, and starts it again on the same state.
	Restart(ctx context.Context) error
}

// Stories returns all stories, in the order in which they are best read.
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

// Tell runs the story against a daemon that has no runs yet, and writes its
// narration to w. The error says why the guarantee did not hold.
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

// broken is the panic value that ends a story whose guarantee did not hold.
type broken struct{ error }

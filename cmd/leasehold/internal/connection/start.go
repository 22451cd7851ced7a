package connection

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/leasehold/leasehold/cmd/leasehold/internal/exit"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/place"
	"github.com/leasehold/leasehold/dispatch/process"
)

const (
	startTimeout = 25 * time.Second // on a busy machine; one that has ended is noticed at once
	startPoll    = 10 * time.Millisecond
	lastPoll     = 20 * startPoll // of many that wait

	// firstInstants is within what time of taking its state a daemon says so.
	firstInstants = 500 * time.Millisecond

	// idleExit is how long a daemon that was started on demand runs after its
	// last client has left.
	idleExit = 15 * time.Minute
)

// start starts the daemon of the command's state and connects to it. A lock in
// the state lets one of several clients start it while the others wait.
func (d *Dialer) start(ctx context.Context) (net.Conn, error) {
	state := d.State()
	log := place.Log(state)
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("no daemon listens after %v; see %s", startTimeout, log))
	defer cancel()
	for _, dir := range []string{state, filepath.Dir(d.target.Socket)} {
		if err := place.CheckSudo(dir); err != nil {
			return nil, &StartError{err}
		}
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, &StartError{err}
		}
	}
	if err := place.CheckPrivate(state); err != nil {
		return nil, &StartError{err}
	}
	lock, err := os.OpenFile(place.StartLock(state), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, &StartError{err}
	}
	defer lock.Close() // and with it the lock
	// Hundreds may wait on a machine that has just started. They wait longer each
	// time, or they would take the processor from the daemon they wait for.
	for wait := startPoll; ; wait = min(2*wait, lastPoll) {
		locked, err := process.TryLock(lock)
		if err != nil {
			return nil, &StartError{err}
		}
		nc, findErr := d.find(ctx)
		if findErr == nil {
			return nc, nil // whoever had the lock has started it
		}
		last, known := place.ReadRecord(state)
		byHand := known && !last.OnDemand
		switch {
		case byHand && last.Alive(): // it ends, or listens again soon; one that was killed closes its sockets first
			if Pause(ctx, wait) != nil {
				return nil, findErr
			}
		case byHand && last.SameBoot():
			return nil, exit.Hint(fmt.Errorf("%w listens at %s: the one that was started by hand was killed", ErrNoDaemon, last.Socket),
				"start it again as it was started, or with leasehold restart")
		case locked:
			return d.Launch(ctx, state, state, []string{
				"serve", "--on-demand", "--state", state, "--socket", d.target.Socket, "--idle-exit", idleExit.String(),
			})
		default:
			if err := Pause(ctx, wait); err != nil {
				return nil, err
			}
		}
	}
}

// Launch starts the daemon of a state in a directory, detached from this
// process, and connects to it.
func (d *Dialer) Launch(ctx context.Context, state, dir string, args []string) (net.Conn, error) {
	log := place.Log(state)
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("no daemon listens after %v; see %s", startTimeout, log))
	defer cancel()
	var said int64 // how much of the log is of earlier daemons
	if info, err := os.Stat(log); err == nil {
		said = info.Size()
	}
	daemon, err := spawn(log, dir, args)
	if failed := new(exec.ExitError); errors.As(err, &failed) { // it wrote why into the log
		err = errors.New(lastWords(log, said))
	}
	if err != nil {
		return nil, &StartError{err}
	}
	var ended time.Time
	for {
		select {
		case <-daemon.Ended():
			if ended.IsZero() {
				ended = time.Now()
			}
			if nc, err := d.find(ctx); err == nil { // another was quicker
				return nc, nil
			}
			if daemon.Ready() {
				return nil, fmt.Errorf("%w listens at %s: it was ended as soon as it had started", ErrNoDaemon, d.target.Socket)
			}
			// Another process may have the state open and not listen yet, such
			// as a daemon that was just started by hand. In its first instants
			// this cannot be seen.
			seen := place.Open(state) || time.Since(ended) < firstInstants
			if !seen || Pause(ctx, startPoll) != nil {
				return nil, &StartError{errors.New(lastWords(log, said))}
			}
			continue
		default:
		}
		if daemon.Ready() { // before, it may listen already and yet fail to start
			if nc, err := d.find(ctx); err == nil {
				return nc, nil
			}
		}
		if err := Pause(ctx, startPoll); err != nil {
			return nil, err
		}
	}
}

// A StartError says why a daemon ended before it listened.
type StartError struct{ Err error }

func (e *StartError) Error() string { return "the daemon did not start: " + e.Err.Error() }
func (e *StartError) Unwrap() error { return e.Err }

// spawn starts a daemon that is not a descendant of this process, so that it is
// not ended with this process and its descendants.
func spawn(log, dir string, args []string) (*process.Background, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	out, err := openLog(log)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	return process.StartDetached(self, process.Detached{
		Args:   args,
		Dir:    dir,
		Env:    WithoutSecrets(os.Environ()), // the daemon is everybody's
		Stderr: out,
	})
}

// ExecMark is the variable that marks the processes started by exec.
const ExecMark = "LEASEHOLD_EXEC_ID"

// Variables of a process that acts for an actor.
var actorsOwn = []string{
	"LEASEHOLD_TOKEN", "LEASEHOLD_TOKEN_FILE", "LEASEHOLD_SERVER", "LEASEHOLD_SERVER_CA", "LEASEHOLD_LAUNCHER", "LEASEHOLD_SESSION", "LEASEHOLD_POSTGRES",
	"LEASEHOLD_RUN", "LEASEHOLD_RUN_ID", "LEASEHOLD_RUN_DIR", "LEASEHOLD_LIFE",
	process.ActorMark, "LEASEHOLD_NAME", "LEASEHOLD_PATH", "LEASEHOLD_ROLE",
	ExecMark, "LEASEHOLD_LEASE", "LEASEHOLD_FENCE",
}

// WithoutSecrets returns the environment for a daemon, which serves more actors
// than the one whose client has started it. The daemon gets no secret of that
// actor, and no mark of its run, because it would be ended with the run.
func WithoutSecrets(env []string) []string {
	return slices.DeleteFunc(env, func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return slices.Contains(actorsOwn, name)
	})
}

// openLog opens the file for the daemon's output before its own log is open,
// and for a crash.
func openLog(path string) (*os.File, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	return os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
}

// lastWords returns what a daemon that ended at once wrote into its log, after what
// earlier ones had said there: its error, which is the last line, and the hint, if one
// follows it. After a crash the error is the first line, and a trace follows it. On a
// full disk it could not write.
func lastWords(log string, said int64) string {
	text, _ := os.ReadFile(log)
	if int64(len(text)) >= said { // else it is another file since
		text = text[said:]
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	last := lines[len(lines)-1]
	if last == "" {
		var largest unix.Rlimit
		if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &largest); err == nil && largest.Cur != unix.RLIM_INFINITY {
			return fmt.Sprintf("it left no message in %s, and no file may have more than %d bytes here: raise the limit, which is ulimit -f", log, largest.Cur)
		}
		if err := place.TryWrite(filepath.Dir(log)); err != nil {
			return fmt.Sprintf("it left no message in %s, where nothing can be written: %v; %s", log, err, cmp.Or(exit.SystemHint(err), "name another place in XDG_STATE_HOME"))
		}
		return fmt.Sprintf("it left no message in %s; if that disk was full, try again", log)
	}
	if hint, ok := strings.CutPrefix(last, "hint: "); ok && len(lines) > 1 {
		last = lines[len(lines)-2] + "; " + hint
	} else if !strings.HasPrefix(last, "leasehold: ") {
		crash := func(l string) bool { return strings.HasPrefix(l, "panic: ") || strings.HasPrefix(l, "fatal error: ") }
		plain := func(l string) bool { return !strings.HasPrefix(l, "{") } // the log is JSON, or for people
		if i := cmp.Or(slices.IndexFunc(lines, crash)+1, slices.IndexFunc(lines, plain)+1); i > 0 {
			last = lines[i-1]
		}
	}
	return fmt.Sprintf("%s (the log is %s)", strings.TrimPrefix(last, "leasehold: "), log)
}

package connection

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	startTimeout = 10 * time.Second
	startPoll    = 10 * time.Millisecond

	// idleExit is how long a daemon that nobody asked for by name outlives its
	// last client.
	idleExit = 15 * time.Minute

	// maxLog is how large a log grows before a new daemon begins another.
	maxLog = 8 << 20
)

// A starter starts a daemon when none runs. A lock beside the socket lets one
// of many shims do it while the others wait; its file has the pid of the
// daemon last started so.
type starter struct {
	socket string
	log    string
}

func (st *starter) lockPath() string { return st.socket + ".start" }

// start returns once a daemon listens.
func (st *starter) start(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("no daemon listens after %v; see %s", startTimeout, st.log))
	defer cancel()
	if err := os.MkdirAll(filepath.Dir(st.socket), 0o700); err != nil {
		return err
	}
	lock, err := os.OpenFile(st.lockPath(), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer lock.Close() // and with it the lock
	for {
		err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err != nil && !errors.Is(err, syscall.EWOULDBLOCK) {
			return fmt.Errorf("lock %s: %w", lock.Name(), err)
		}
		if st.listens(ctx) { // whoever had the lock has done it
			return nil
		}
		if err == nil {
			break
		}
		if err := pause(ctx); err != nil {
			return err
		}
	}
	exited, err := st.spawn(lock)
	if err != nil {
		return &StartError{err.Error()}
	}
	for !st.listens(ctx) {
		select {
		case err := <-exited:
			return &StartError{st.lastWords(err)}
		default:
		}
		if err := pause(ctx); err != nil {
			return err
		}
	}
	return nil
}

// A StartError says why a daemon ended before it listened.
type StartError struct{ lastWords string }

func (e *StartError) Error() string { return "the daemon did not start: " + e.lastWords }

func pause(ctx context.Context) error {
	select {
	case <-time.After(startPoll):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (st *starter) listens(ctx context.Context) bool {
	nc, err := (&Dialer{Socket: st.socket}).Dial(ctx)
	if err != nil {
		return false
	}
	nc.Close()
	return true
}

// spawn starts a daemon that outlives the shim, and notes its pid in the lock
// file.
func (st *starter) spawn(lock *os.File) (exited <-chan error, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	out, err := st.openLog()
	if err != nil {
		return nil, err
	}
	defer out.Close()
	cmd := exec.Command(self, "serve", "--socket", st.socket, "--idle-exit", idleExit.String())
	cmd.Stderr = out                       // the log alone: what it prints for people is for nobody here
	cmd.Dir = filepath.Dir(st.log)         // not the client's directory, which may be to go
	cmd.Env = WithoutSecrets(os.Environ()) // the daemon is everybody's
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	// If the note fails, shims take the daemon for one started by hand.
	if err := lock.Truncate(0); err == nil {
		_, _ = lock.WriteAt([]byte(strconv.Itoa(cmd.Process.Pid)), 0)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }() // ends with the daemon or the shim
	return done, nil
}

// ExecMark names the variable by which what exec has started is found.
const ExecMark = "LEASEHOLD_EXEC_ID"

// Variables of a process that acts for an actor.
var actorsOwn = []string{
	"LEASEHOLD_TOKEN", "LEASEHOLD_SESSION",
	"LEASEHOLD_RUN", "LEASEHOLD_RUN_ID", "LEASEHOLD_RUN_DIR", "LEASEHOLD_LIFE",
	"LEASEHOLD_ACTOR_ID", "LEASEHOLD_NAME", "LEASEHOLD_PATH", "LEASEHOLD_ROLE",
	ExecMark, "LEASEHOLD_LEASE", "LEASEHOLD_FENCE",
}

// WithoutSecrets is the environment for a daemon, which serves more than the
// actor whose client has started it: it gets no secret of that actor's, and no
// mark of its run, or it would be ended with it.
func WithoutSecrets(env []string) []string {
	return slices.DeleteFunc(env, func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return slices.Contains(actorsOwn, name)
	})
}

func (st *starter) openLog() (*os.File, error) {
	if err := os.MkdirAll(filepath.Dir(st.log), 0o700); err != nil {
		return nil, err
	}
	if info, err := os.Stat(st.log); err == nil && info.Size() > maxLog {
		_ = os.Rename(st.log, st.log+".old") // or it grows on
	}
	return os.OpenFile(st.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
}

// lastWords is the last line of the log of a daemon that ended at once.
func (st *starter) lastWords(err error) string {
	text, _ := os.ReadFile(st.log)
	text = bytes.TrimSpace(text)
	line := string(text[bytes.LastIndexByte(text, '\n')+1:])
	return fmt.Sprintf("%s (%v; the log is %s)", line, err, st.log)
}

// started reports whether the daemon with that pid was started by a shim.
func (st *starter) started(pid int) bool {
	text, err := os.ReadFile(st.lockPath())
	return err == nil && string(text) == strconv.Itoa(pid)
}

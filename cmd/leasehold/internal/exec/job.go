package exec

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/leasehold/leasehold/cmd/leasehold/internal/connection"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/exit"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/terminal"
	"github.com/leasehold/leasehold/dispatch/process"
	"github.com/leasehold/leasehold/dispatch/server"
)

// orphanGrace is how long a program may take to end after exec was killed. Its
// lease is no longer renewed, and others wait for it.
const orphanGrace = time.Second

// A job is the program that exec runs, and its watchdog. The watchdog also
// keeps the connection open. If exec is killed, the session and its leases
// therefore end only after the watchdog has ended the program.
type job struct {
	mark        string
	grace       time.Duration    // of the watchdog
	process     *process.Process // nil before the start
	interrupted bool             // exec itself got a SIGINT, and passed it on
	suspended   bool             // the program is stopped until the leases are known to be held
	renewed     chan struct{}    // receives a value when the leases may have been renewed

	mu       sync.Mutex
	watchdog *process.Watchdog // nil after the end
	disarmed bool              // it must not act while exec lives
}

// errCtrlC says that Ctrl-C ended the program. It reached no other process, because the
// program had the terminal.
var errCtrlC = errors.New("the program was interrupted")

// runExec runs the program under its leases. The error is an exit code, or says
// why the program was not run.
func runExec(cmd *cobra.Command, cfg execConfig, hello server.Hello) error {
	dialer, err := connection.For(cmd)
	if err != nil {
		return err
	}
	cfg.place = dialer.Environ(cmd)
	// From here on no signal ends exec: a signal ends the waiting or is passed
	// on to the program.
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, terminal.Unignored(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)...)
	defer signal.Stop(signals)
	defer terminal.SurviveBrokenPipes()()
	hungUp := cmd.Context()
	if !signal.Ignored(syscall.SIGHUP) {
		var stop func()
		hungUp, stop = signal.NotifyContext(hungUp, syscall.SIGHUP)
		defer stop()
	}
	waiting, stop := signal.NotifyContext(hungUp, syscall.SIGQUIT)
	defer stop()

	link := &execLink{dialer: dialer, first: hello, hello: hello}
	defer link.close()
	h := &hold{cfg: cfg, link: link}
	if out := cmd.ErrOrStderr(); terminal.Is(out) {
		h.waits = func(behind string) { fmt.Fprintf(out, "leasehold: waiting: %s\n", terminal.Line(out, behind)) }
	}
	ctx := context.WithoutCancel(cmd.Context())
	defer h.release(ctx)
	err = h.obtain(waiting)
	if err == nil {
		err = waiting.Err()
	}
	switch {
	case err == nil:
	case waiting.Err() == nil || cmd.Context().Err() != nil:
		return err
	case hungUp.Err() != nil:
		return exit.Code(exitSignalled + int(syscall.SIGHUP))
	default:
		return exit.Code(exitSignalled + int(syscall.SIGQUIT))
	}
	release, err := process.Adopt() // processes that leave the program's tree are still ended with it
	if err != nil {
		return err
	}
	defer release()
	j := &job{renewed: make(chan struct{}, 1), mark: connection.ExecMark + "=" + uuid.NewString(), grace: min(orphanGrace, h.margin()/4)}
	if err := j.guard(link); err != nil {
		return err
	}
	defer j.unguard()
	j.arm(h) // exec may be stopped from when the program runs
	if err := j.start(h); err != nil {
		return cannotRun(cmd, err)
	}

	ctx, finish := context.WithCancel(ctx)
	defer finish()
	// If no new watchdog can be started, the old one still guards the program,
	// but no longer keeps the connection open.
	h.linked = func() { _ = j.guard(link) }
	h.changed = func() {
		j.arm(h)
		select {
		case j.renewed <- struct{}{}:
		default: // already pending
		}
	}
	lost := make(chan *lossError, 1)
	go func() { lost <- h.keep(ctx) }() // ends at finish
	p := terminal.PaintFor(cmd.ErrOrStderr())
	say := func(e *lossError, ended bool) {
		then := "ending " + cfg.argv[0]
		if ended {
			then = cfg.argv[0] + " had ended"
		}
		fmt.Fprintf(cmd.ErrOrStderr(), "%s %v; %s\n", p.Red("leasehold:"), e, then)
	}
	loss := j.follow(ctx, signals, h, lost, say)
	finish()
	if loss == nil {
		if last := <-lost; last != nil {
			loss = last
		} else {
			loss = h.held(context.WithoutCancel(ctx))
		}
		if loss != nil {
			say(loss, true)
		}
	}
	if loss != nil {
		return exit.Code(exitLost)
	}
	return j.outcome()
}

// outcome says how the program ended.
func (j *job) outcome() error {
	ended := j.process.Exit()
	switch {
	case ended.Number() == syscall.SIGINT && j.process.GotTerminal() && !j.interrupted:
		return errCtrlC
	case ended.Signal != "":
		return exit.Code(exitSignalled + int(ended.Number()))
	case ended.Code != 0:
		return exit.Code(ended.Code)
	default:
		return nil
	}
}

// guard starts a watchdog that keeps the current connection open, and replaces
// the previous one.
func (j *job) guard(link *execLink) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	conn, err := link.file()
	if err != nil {
		return err
	}
	defer conn.Close()
	w, err := process.StartWatchdog(self, j.mark, j.grace, conn)
	if err != nil {
		return err
	}
	j.mu.Lock()
	last := j.watchdog
	j.watchdog = w
	j.mu.Unlock()
	if j.process != nil {
		w.Watch(j.process)
	}
	if last != nil {
		_ = last.Close() // an error means that it was killed
	}
	return nil
}

// arm lets the watchdog end the program if exec is stopped (SIGSTOP) and neither
// renews the leases nor ends the program itself. The program is gone by the
// deadline then, too. Otherwise exec acts before the watchdog does: if it is late, it asks
// the daemon first.
func (j *job) arm(h *hold) {
	j.mu.Lock()
	defer j.mu.Unlock()
	within := h.deadline().Sub(now()) - h.margin()/2
	if !now().Before(h.lastOrders()) {
		within = 2 * heldTimeout
	}
	if j.watchdog != nil && !j.disarmed {
		j.watchdog.Within(within)
	}
}

// disarm undoes arm, and makes it do nothing, while exec ends the program itself
// or the program is stopped. on is false to end this.
func (j *job) disarm(on bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.disarmed = on
	if j.watchdog != nil && on {
		j.watchdog.Within(0)
	}
}

func (j *job) unguard() {
	j.mu.Lock()
	w := j.watchdog
	j.watchdog = nil
	j.mu.Unlock()
	if w != nil {
		_ = w.Close() // an error means that it was killed
	}
}

func (j *job) start(h *hold) error {
	p, err := process.Start(process.Spec{
		Argv:   h.cfg.argv,
		Env:    append(append(os.Environ(), h.environ()...), j.mark),
		Input:  os.Stdin,
		Stdout: os.Stdout, Stderr: os.Stderr,
		Mark: j.mark,
	})
	if err != nil {
		return err
	}
	j.process = p
	j.watchdog.Watch(p)
	return nil
}

// follow waits until the whole program has ended. If the leases were lost
// before that, it returns how, and says so: ended tells whether the program had
// ended by itself.
func (j *job) follow(ctx context.Context, signals <-chan os.Signal, h *hold, lost <-chan *lossError, say func(e *lossError, ended bool)) *lossError {
	defer j.process.TakeTerminal()
	for {
		if j.suspended && now().Before(h.deadline()) {
			j.suspended = false
			j.disarm(false)
			j.arm(h)
			j.process.GiveTerminal()
		}
		select {
		case <-j.renewed:
		case s := <-signals:
			j.interrupted = j.interrupted || s == syscall.SIGINT
			_ = j.process.Signal(s.(syscall.Signal)) // an error means that it has just ended
		case <-j.process.Stopped():
			j.suspend()
		case loss := <-lost:
			j.disarm(true)
			say(loss, false)
			grace := execGrace
			if !loss.by.IsZero() {
				if left := loss.by.Sub(now()); left > 0 {
					grace = left
				}
			}
			_ = j.end(ctx, grace, signals, nil) // nothing more can be lost
			return loss
		case <-j.process.Done():
			loss := j.end(ctx, execGrace, signals, lost) // ends what the program has left running
			if loss != nil {
				say(loss, true)
			}
			return loss
		}
	}
}

// end ends the program and everything that it has started. A signal cuts the
// grace short. So does the loss of the leases, which end then returns.
func (j *job) end(ctx context.Context, grace time.Duration, signals <-chan os.Signal, lost <-chan *lossError) (loss *lossError) {
	ended := make(chan struct{})
	stop := func(grace time.Duration) {
		_ = j.process.Stop(ctx, grace) // an error means that some process could not be signalled; nothing more can be done
		ended <- struct{}{}
	}
	go stop(grace)
	for calls := 1; calls > 0; {
		select {
		case <-ended:
			calls--
			continue
		case <-signals:
		case loss = <-lost:
			lost = nil
		}
		calls++
		go stop(0)
	}
	return loss
}

// suspend stops exec because the program was stopped, so that the shell takes
// over. The program continues when exec does, and when the leases are held: they may have
// expired meanwhile. Until then the watchdog is not armed, because exec may be stopped again.
// If no shell controls exec, exec is not stopped and continues at once.
func (j *job) suspend() {
	j.disarm(true)
	j.process.TakeTerminal()
	_ = terminal.Suspend() // if it fails, exec continues at once
	j.suspended = true
}

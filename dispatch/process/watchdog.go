package process

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"syscall"
	"time"
)

// A watchdog and its starter communicate over two pipes, in lines. On one the
// watchdog reports that it is ready. On the other the starter names processes
// by pid and start time, because the watchdog could not find them by their mark
// if they dropped it. It may also say how long it has to write the next such
// line. In the end the starter writes doneWord. If the starter dies, the kernel
// closes its end of the pipe.
const (
	readyWord  = "ready\n"
	watchWord  = "watch %d %d\n"
	forgetWord = "forget %d %d\n"
	withinWord = "within %d\n" // nanoseconds; 0: no limit
	doneWord   = "done\n"

	readyTimeout = time.Minute // on a busy machine; one that has ended is noticed at once
)

// A Watchdog is a process that ends all marked processes if this process dies,
// or stands still for longer than it said.
type Watchdog struct {
	cmd    *exec.Cmd
	pipe   *os.File
	ended  chan struct{}
	result error
}

// StartWatchdog starts `self watchdog --mark MARK --grace GRACE` in a session
// of its own, and returns once it watches. Its messages go to standard error.
// It inherits the files in keep, which stay open until it has ended; one may be
// a connection that holds leases for the processes.
func StartWatchdog(self, mark string, grace time.Duration, keep ...*os.File) (*Watchdog, error) {
	if err := checkMark(mark); err != nil {
		return nil, err
	}
	theirs, ours, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	said, says, err := os.Pipe()
	if err != nil {
		ours.Close()
		return nil, err
	}
	defer said.Close()
	w := &Watchdog{cmd: exec.Command(self, "watchdog", "--mark", mark, "--grace", grace.String()), pipe: ours, ended: make(chan struct{})}
	w.cmd.Stdin, w.cmd.Stdout, w.cmd.Stderr = theirs, says, os.Stderr
	w.cmd.ExtraFiles = keep
	w.cmd.Dir = "/" // not the caller's directory, which may be about to be removed
	w.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = startChild(func() (int, error) {
		if err := w.cmd.Start(); err != nil {
			return 0, err
		}
		return w.cmd.Process.Pid, nil
	})
	says.Close()
	if err != nil {
		ours.Close()
		return nil, fmt.Errorf("start the watchdog: %w", err)
	}
	go func() { // ends with the watchdog
		w.result = w.cmd.Wait()
		tellNoMore(w)
		reapedChild(w.cmd.Process.Pid)
		close(w.ended)
	}()
	_ = said.SetReadDeadline(time.Now().Add(readyTimeout)) // cannot fail for a pipe
	if line, err := bufio.NewReader(said).ReadString('\n'); line != readyWord {
		_ = w.cmd.Process.Kill() // an error means that it has ended
		<-w.ended
		ours.Close()
		return nil, fmt.Errorf("the watchdog %s said %q and not that it is ready (%v, %v)", self, line, err, w.cmd.ProcessState)
	}
	tellOfAdopted(w)
	return w, nil
}

// PID is the pid of the watchdog.
func (w *Watchdog) PID() int { return w.cmd.Process.Pid }

// Watch makes the watchdog end p as well, even if p has dropped its mark. This
// lasts until p is stopped.
func (w *Watchdog) Watch(p *Process) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.reaped {
		p.watchers = append(p.watchers, w)
		w.tell(watchWord, p.id.pid, p.id.start)
	}
}

// Within makes the watchdog end the processes after d, unless Within is called
// again or the watchdog is closed before. This process may be stopped (SIGSTOP)
// while the others run on. Without a call, and if d is 0, there is no limit.
func (w *Watchdog) Within(d time.Duration) { w.tell(withinWord, d.Nanoseconds()) }

// tell writes one line, which is short enough to be written atomically. If it
// fails, the watchdog has ended, which Done shows.
func (w *Watchdog) tell(format string, args ...any) {
	_, _ = fmt.Fprintf(w.pipe, format, args...)
}

// Done is closed when the watchdog has ended. If that happens before Close, the
// watchdog was killed, and the caller should start another one.
func (w *Watchdog) Done() <-chan struct{} { return w.ended }

// Close tells the watchdog that the work is done, and waits until it exits. No
// process is ended. The error is not nil if the watchdog had ended before.
func (w *Watchdog) Close() error {
	_, err := io.WriteString(w.pipe, doneWord)
	w.pipe.Close()
	<-w.ended
	if err == nil {
		err = w.result
	}
	if err != nil {
		return fmt.Errorf("the watchdog did not stay until the end: %w", err)
	}
	return nil
}

// RunWatchdog is the main function of the watchdog. It returns when it reads
// doneWord. If stdin ends without that, the starter has died; if the starter says
// nothing for as long as it said, it has been stopped. Then RunWatchdog ends the
// processes with the mark and returns their number. It gives up on processes
// that SIGKILL does not end within patience. From this call on, the process
// ignores the signals that a terminal sends to end processes.
func RunWatchdog(ctx context.Context, stdin io.Reader, stdout io.Writer, mark string, grace, patience time.Duration) (int, error) {
	if err := checkMark(mark); err != nil {
		return 0, err
	}
	signal.Ignore(syscall.SIGINT, syscall.SIGHUP, syscall.SIGTERM, syscall.SIGQUIT, syscall.SIGPIPE)
	if _, err := io.WriteString(stdout, readyWord); err != nil {
		return 0, fmt.Errorf("say that the watchdog is ready: %w", err)
	}
	lines, ended := make(chan string), make(chan error, 1)
	go func() { // ends with stdin; after a time-out, with the process
		for r := bufio.NewReader(stdin); ; {
			line, err := r.ReadString('\n')
			if err != nil {
				ended <- err
				return
			}
			lines <- line
		}
	}()
	watched := make(map[identity]bool)
	var late <-chan time.Time
	for listening := true; listening; {
		select {
		case <-late:
			listening = false
		case err := <-ended:
			if !errors.Is(err, io.EOF) {
				return 0, fmt.Errorf("listen to the dispatcher: %w", err)
			}
			listening = false
		case line := <-lines:
			var id identity
			var within time.Duration
			switch {
			case line == doneWord:
				return 0, nil
			case scan(line, watchWord, &id.pid, &id.start):
				watched[id] = true
			case scan(line, forgetWord, &id.pid, &id.start):
				delete(watched, id)
			case scan(line, withinWord, &within):
				if late = nil; within != 0 {
					late = time.After(within)
				}
			default:
				return 0, fmt.Errorf("the dispatcher said %q, which a watchdog does not know", line)
			}
		}
	}
	ctx, cancel := context.WithTimeout(ctx, grace+patience)
	defer cancel()
	return end(ctx, mark, grace, slices.Collect(maps.Keys(watched))...)
}

func scan(line, format string, values ...any) bool {
	n, err := fmt.Sscanf(line, format, values...)
	return n == len(values) && err == nil
}

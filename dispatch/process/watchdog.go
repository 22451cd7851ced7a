package process

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

// A watchdog and its starter speak over two pipes. The watchdog says that it
// is ready on the one; on the other it waits for the word that all is done.
// The kernel closes that pipe with its starter, however that ends.
const (
	readyWord = "ready\n"
	doneWord  = "done\n"

	readyTimeout = 10 * time.Second
)

// A Watchdog is a process that ends all marked processes should this one die.
type Watchdog struct {
	cmd    *exec.Cmd
	pipe   *os.File
	ended  chan struct{}
	result error
}

// StartWatchdog starts `self watchdog --mark MARK --grace GRACE` in a session of
// its own, and returns once it watches. What it has to say goes to standard
// error. Its own environment must not have the mark, nor the caller's.
func StartWatchdog(self, mark string, grace time.Duration) (*Watchdog, error) {
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
	w.cmd.Dir = "/" // not the caller's directory, which may be to go
	w.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = w.cmd.Start()
	says.Close()
	if err != nil {
		ours.Close()
		return nil, fmt.Errorf("start the watchdog: %w", err)
	}
	go func() { // ends with the watchdog
		w.result = w.cmd.Wait()
		close(w.ended)
	}()
	said.SetReadDeadline(time.Now().Add(readyTimeout))
	if line, err := bufio.NewReader(said).ReadString('\n'); line != readyWord {
		_ = w.cmd.Process.Kill()
		<-w.ended
		ours.Close()
		return nil, fmt.Errorf("the watchdog %s said %q and not that it is ready (%v, %v)", self, line, err, w.cmd.ProcessState)
	}
	return w, nil
}

// PID is the watchdog's.
func (w *Watchdog) PID() int { return w.cmd.Process.Pid }

// Done is closed when the watchdog has ended: before Close, somebody has
// killed it, and another is to be started.
func (w *Watchdog) Done() <-chan struct{} { return w.ended }

// Close tells the watchdog that all is done, and waits for its end. It ends
// nothing. An error says that it had ended before.
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

// RunWatchdog is what the watchdog does. It returns when stdin says that all is
// done; if stdin ends without a word, its starter has died, and it ends the
// processes that have the mark, and returns how many there were. What SIGKILL
// does not end within patience it leaves. It is deaf to the signals that end a
// terminal's processes, and so is this process from then on.
func RunWatchdog(ctx context.Context, stdin io.Reader, stdout io.Writer, mark string, grace, patience time.Duration) (int, error) {
	if err := checkMark(mark); err != nil {
		return 0, err
	}
	signal.Ignore(syscall.SIGINT, syscall.SIGHUP, syscall.SIGTERM, syscall.SIGQUIT, syscall.SIGPIPE)
	if _, err := io.WriteString(stdout, readyWord); err != nil {
		return 0, fmt.Errorf("say that the watchdog is ready: %w", err)
	}
	words, err := io.ReadAll(io.LimitReader(stdin, int64(len(doneWord))))
	if err != nil && !errors.Is(err, os.ErrClosed) {
		return 0, fmt.Errorf("listen to the dispatcher: %w", err)
	}
	if strings.HasPrefix(string(words), doneWord) {
		return 0, nil
	}
	ctx, cancel := context.WithTimeout(ctx, grace+patience)
	defer cancel()
	return End(ctx, mark, grace)
}

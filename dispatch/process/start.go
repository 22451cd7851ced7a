package process

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// A Spec describes a process to start.
type Spec struct {
	Argv []string // the first is looked up in the caller's PATH unless it is a path
	Env  []string // the whole environment, including Mark
	Dir  string   // "": the caller's directory

	Stdin          []byte
	Scratch        string   // where Stdin is kept meanwhile; "": the system's temporary directory
	Stdout, Stderr *os.File // nil: discarded. The caller closes them

	// Mark is the pair NAME=value of Env that identifies everything the process
	// starts.
	Mark string

	// Input gives the process the caller's terminal: it reads Input in place of
	// Stdin and stays in the caller's session, as the leader of its own group.
	// If Input is the terminal of the session and the caller's group is in its
	// foreground, the new group becomes the foreground group; see
	// [Process.Stopped].
	Input *os.File
}

// A Process is a started process, with everything it has started since.
type Process struct {
	cmd   *exec.Cmd
	id    identity
	mark  string
	alone bool      // processes that this process adopts belong to its tree
	term  *terminal // nil if it was not given one
	stops chan struct{}
	done  chan struct{}
	exit  Exit // valid once done is closed

	mu       sync.Mutex
	reaped   bool
	watchers []*Watchdog
}

// An Exit is how a process ended.
type Exit struct {
	Code   int    // -1 if a signal ended it
	Signal string // such as "SIGKILL"; "" if no signal ended it
}

// Number is the signal that ended the process; 0 if none did.
func (e Exit) Number() syscall.Signal { return unix.SignalNum(e.Signal) }

func (e Exit) String() string {
	if e.Signal != "" {
		return "killed by " + e.Signal
	}
	return fmt.Sprintf("exit code %d", e.Code)
}

func exited(code int) Exit { return Exit{Code: code} }

func killed(by syscall.Signal) Exit {
	name := unix.SignalName(by)
	if name == "" {
		name = fmt.Sprintf("signal %d", int(by))
	}
	return Exit{Code: -1, Signal: name}
}

// Start starts a process. Its output goes directly to the files and not through
// the caller, so none of it is lost if the caller dies. An error is that of
// [exec.Cmd.Start].
//
// The caller must call Stop, even if the process has ended by itself. Until
// then the system does not reuse its pid.
func Start(spec Spec) (*Process, error) {
	if len(spec.Argv) == 0 {
		return nil, errors.New("nothing to start: argv is empty")
	}
	if err := checkMark(spec.Mark); err != nil {
		return nil, err
	}
	if !slices.Contains(spec.Env, spec.Mark) {
		return nil, fmt.Errorf("the environment of %s has not its mark %q", spec.Argv[0], spec.Mark)
	}
	cmd := exec.Command(spec.Argv[0], spec.Argv[1:]...)
	cmd.Env, cmd.Dir = spec.Env, spec.Dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: spec.Input == nil, Setpgid: spec.Input != nil}
	// A nil *os.File in an interface would not be nil.
	if spec.Stdout != nil {
		cmd.Stdout = spec.Stdout
	}
	if spec.Stderr != nil {
		cmd.Stderr = spec.Stderr
	}
	p := &Process{cmd: cmd, mark: spec.Mark, done: make(chan struct{}), stops: make(chan struct{}, 1)}
	switch {
	case spec.Input != nil:
		cmd.Stdin = spec.Input
		p.alone = true
		p.term = terminalOf(spec.Input)
	case len(spec.Stdin) > 0:
		input, err := inputFile(spec.Scratch, spec.Stdin)
		if err != nil {
			return nil, err
		}
		defer input.Close()
		cmd.Stdin = input
	}
	if err := startChild(func() (int, error) {
		if err := cmd.Start(); err != nil {
			return 0, err
		}
		return cmd.Process.Pid, nil
	}); err != nil {
		return nil, err
	}
	p.id = identity{pid: cmd.Process.Pid}
	if p.term != nil {
		p.term.give(p.id.pid) // at once, because the process may want to read
	}
	p.id.start, _ = startOf(p.id.pid) // exists, because nothing has reaped it
	go p.await()                      // ends with the process
	return p, nil
}

// inputFile returns a file without a name, of a directory, that holds text. The process can read
// it at its own pace, without a goroutine that writes to it.
func inputFile(dir string, text []byte) (*os.File, error) {
	f, err := os.CreateTemp(dir, "leasehold-input-*")
	if err != nil {
		return nil, fmt.Errorf("keep the standard input: %w", err)
	}
	err = os.Remove(f.Name())
	if err == nil {
		_, err = f.Write(text)
	}
	if err == nil {
		_, err = f.Seek(0, 0)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("keep the standard input: %w", err)
	}
	return f, nil
}

func checkMark(mark string) error {
	name, value, ok := strings.Cut(mark, "=")
	if !ok || name == "" || value == "" {
		return fmt.Errorf("mark %q: must be NAME=value, of a variable of the environment", mark)
	}
	return nil
}

// PID is the pid of the process that was started first.
func (p *Process) PID() int { return p.id.pid }

// Done is closed when the process that was started first has ended. Processes
// that it started may still run; Stop ends them.
func (p *Process) Done() <-chan struct{} { return p.done }

// Exit waits until Done is closed, and returns how the process that was started
// first ended.
func (p *Process) Exit() Exit {
	<-p.done
	return p.exit
}

// Signal sends a signal to the process group.
func (p *Process) Signal(s syscall.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reaped {
		return os.ErrProcessDone
	}
	return syscall.Kill(-p.id.pid, s)
}

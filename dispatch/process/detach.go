package process

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"sync/atomic"
	"syscall"
)

// Detached describes a process for [StartDetached].
type Detached struct {
	Args   []string
	Dir    string
	Env    []string
	Stderr *os.File
}

// StartDetached starts self with arguments as a process that is not a
// descendant of the caller. An intermediate process, `self detach ARGS`, starts
// it in a session of its own and exits, so that its parent becomes the init
// process or a replacement of it. This is needed because some MCP clients end
// all descendants of a server that they started, even those in other sessions.
//
// The caller cannot wait for a process that is not its child. Instead the
// process keeps a pipe open, whose end the caller reads: it shows when the
// process ends. The process also reports on it that it is ready, with
// [TellReady].
func StartDetached(self string, d Detached) (*Background, error) {
	alive, theirs, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	cmd := exec.Command(self, append([]string{"detach"}, d.Args...)...)
	cmd.Dir, cmd.Env, cmd.Stderr = d.Dir, d.Env, d.Stderr
	cmd.ExtraFiles = []*os.File{theirs}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := withoutAdopting(cmd.Run); err != nil {
		alive.Close()
		return nil, fmt.Errorf("start %s in the background: %w", self, err)
	}
	b := &Background{ended: make(chan struct{})}
	go func() { // ends with the process
		defer close(b.ended)
		defer alive.Close()
		var word [16]byte
		for {
			n, err := alive.Read(word[:])
			if n > 0 {
				b.ready.Store(true)
			}
			if err != nil {
				return
			}
		}
	}()
	return b, nil
}

// A Background is a process that was started detached.
type Background struct {
	ended chan struct{}
	ready atomic.Bool
}

// Ended is closed when the process has ended.
func (b *Background) Ended() <-chan struct{} { return b.ended }

// Ready reports whether the process has called [TellReady].
func (b *Background) Ready() bool { return b.ready.Load() }

// aliveVariable is the environment variable with the descriptor of the pipe, in
// the detached process.
const aliveVariable = "LEASEHOLD_ALIVE_FD"

// TellReady reports to the process that started this one detached, if there is
// one, that this process is ready.
func TellReady() {
	fd, err := strconv.Atoi(os.Getenv(aliveVariable))
	if err != nil {
		return
	}
	_ = os.Unsetenv(aliveVariable)
	// The starter may have ended and the pipe be broken. That raises SIGPIPE
	// only for standard output and standard error.
	_, _ = syscall.Write(fd, []byte("ready\n"))
}

// RunDetach is the intermediate process of [StartDetached]. It returns as soon
// as the other process has started, and its caller must exit at once.
func RunDetach(args []string) error {
	if len(args) == 0 {
		return errors.New("nothing to start")
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	// A descriptor that the client inherited, such as a lock that it runs
	// under, must not stay open for as long as the daemon lives.
	inherited, err := os.ReadDir(openFiles)
	if err != nil {
		return fmt.Errorf("look at the open files: %w", err)
	}
	for _, f := range inherited {
		if fd, err := strconv.Atoi(f.Name()); err == nil && fd > 2 {
			syscall.CloseOnExec(fd)
		}
	}
	alive := os.NewFile(3, "alive")
	cmd := exec.Command(self, args...)
	cmd.Env = append(os.Environ(), aliveVariable+"=3")
	cmd.Stderr = os.Stderr
	cmd.ExtraFiles = []*os.File{alive}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	return cmd.Process.Release()
}

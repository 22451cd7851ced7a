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

// Detached says what [StartDetached] starts.
type Detached struct {
	Args   []string
	Dir    string
	Env    []string
	Stderr *os.File
}

// StartDetached starts self with arguments as a process that is no descendant of
// the caller: an intermediate process, `self detach ARGS`, starts it in a session
// of its own and ends, so that the init process, or what stands in for it, becomes
// its parent. Some MCP clients end all descendants of a server that they started,
// sessions of their own included.
//
// The process holds a pipe open by which the caller sees its end: nobody here may
// wait for it. On the pipe it says that it is ready, with [TellReady].
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
	go func() { // ends with the process, or with this one
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

// Ready reports whether the process has said that it is ready.
func (b *Background) Ready() bool { return b.ready.Load() }

// aliveVariable names the descriptor of the pipe, in the detached process.
const aliveVariable = "LEASEHOLD_ALIVE_FD"

// TellReady tells whoever started this process detached, if anybody did, that
// it is ready.
func TellReady() {
	fd, err := strconv.Atoi(os.Getenv(aliveVariable))
	if err != nil {
		return
	}
	_ = os.Unsetenv(aliveVariable)
	// The starter may have gone; the pipe then breaks, which is no signal for
	// descriptors other than standard output and error.
	_, _ = syscall.Write(fd, []byte("ready\n"))
}

// RunDetach is what the intermediate process does. It returns as soon as the
// other has started, and its caller must end at once.
func RunDetach(args []string) error {
	if len(args) == 0 {
		return errors.New("nothing to start")
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	// A descriptor that the client had from others, as a lock that it runs under,
	// must not stay open for as long as the daemon lives.
	inherited, err := os.ReadDir("/dev/fd")
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

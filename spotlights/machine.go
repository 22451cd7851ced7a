package spotlights

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/dispatch/process"
	"github.com/leasehold/leasehold/dispatch/server"
)

// A Machine is a separate daemon process and a directory for the files of a
// story. Every process of the story carries a mark in its environment, by which
// a watchdog ends it if this process is killed.
type Machine struct {
	leasehold string // the executable
	dir       string // the state, the socket, scripts and run directories
	mark      string
	guard     *process.Watchdog
	daemon    *exec.Cmd
}

// grace is how long the remaining processes of a story may take to end.
const grace = time.Second

// NewMachine starts a daemon with the executable leasehold.
func NewMachine(ctx context.Context, leasehold string) (_ *Machine, err error) {
	dir, err := os.MkdirTemp("", "leasehold-")
	if err != nil {
		return nil, err
	}
	m := &Machine{leasehold: leasehold, dir: dir, mark: "SPOTLIGHT=" + uuid.NewString()}
	defer func() {
		if err != nil {
			err = errors.Join(err, m.Close())
		}
	}()
	if err = server.CheckSocketPath(m.socket()); err != nil {
		return nil, fmt.Errorf("%w, by setting TMPDIR to a shorter directory", err)
	}
	if m.guard, err = process.StartWatchdog(leasehold, m.mark, grace); err != nil {
		return nil, err
	}
	return m, m.start(ctx)
}

// Close ends the daemon and the remaining processes of a story, and removes all
// files.
func (m *Machine) Close() error {
	m.kill()
	_, err := process.End(context.Background(), m.mark, grace)
	if m.guard != nil {
		err = errors.Join(err, m.guard.Close())
	}
	return errors.Join(err, os.RemoveAll(m.dir))
}

func (m *Machine) socket() string { return filepath.Join(m.dir, "s") }

// command returns a leasehold command that uses the machine's daemon and its
// runs only. It runs in a separate process group, so that Ctrl-C reaches only
// this process, which then ends what the story has started.
func (m *Machine) command(args ...string) *exec.Cmd {
	cmd := exec.Command(m.leasehold, args...)
	cmd.Dir = m.dir
	cmd.Env = append(
		slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "LEASEHOLD_") }),
		m.mark, "LEASEHOLD_SOCKET="+m.socket(), "XDG_STATE_HOME="+m.dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd
}

// start returns once the daemon is ready, which it reports in a line on its
// standard output.
func (m *Machine) start(ctx context.Context) error {
	log, err := os.Create(filepath.Join(m.dir, "log"))
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := m.command("serve", "--state", m.dir, "--log-format", "json")
	cmd.Stderr = log
	ready, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	m.daemon = cmd
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })
	defer stop()
	if _, err := bufio.NewReader(ready).ReadString('\n'); err != nil {
		m.kill()
		said, _ := os.ReadFile(log.Name())
		if len(said) == 0 {
			said = []byte("it left no message in " + log.Name() + "; if that disk is full, name another place in TMPDIR")
		}
		return errors.Join(ctx.Err(), fmt.Errorf("the story's daemon did not start: %s", said))
	}
	return nil
}

func (m *Machine) kill() {
	if m.daemon == nil {
		return
	}
	_ = m.daemon.Process.Kill() // it may have ended by itself
	_ = m.daemon.Wait()
	m.daemon = nil
}

// Dial opens a connection to the daemon's socket.
func (m *Machine) Dial(ctx context.Context) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, "unix", m.socket())
}

// Restart kills the daemon and starts it again on the same state.
func (m *Machine) Restart(ctx context.Context) error {
	m.kill()
	return m.start(ctx)
}

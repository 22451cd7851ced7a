package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

// An entrant is a contender that can be started.
type entrant struct {
	name  string
	ours  bool
	syncs string // of an enqueue + of a claim and its submit
	start func(ctx context.Context, p place) (*contender, error)
}

// entrants, in the order of the table. README.md says how the syncs were
// counted.
var entrants = []*entrant{
	{name: api, ours: true, syncs: "1 + 2", start: startAPI},
	{name: bare, ours: true, syncs: "1 + 2", start: startBare},
	{name: socket, ours: true, syncs: "1 + 2", start: startSocket},
	{name: program, ours: true, syncs: "1 + 2", start: startProgram},
	{name: "river", syncs: "1 + 2", start: startRiver},
	{name: "asynq", syncs: "1 + 2", start: startAsynq},
	{name: "beanstalkd", syncs: "1 + 1", start: startBeanstalkd},
	{name: "nats", syncs: "1 + 1", start: startNATS},
}

const (
	api     = "leasehold"
	bare    = "bare pebble"
	socket  = "leasehold, socket"
	program = "leasehold, client"
)

func known() (peers []string) {
	for _, e := range entrants {
		if !e.ours {
			peers = append(peers, e.name)
		}
	}
	return peers
}

// A place is where a contender keeps its files.
type place struct{ dir, name string }

// own makes the contender's directory. It belongs to the user that the server runs as.
func (p place) own(user *syscall.Credential) (string, error) {
	dir := filepath.Join(p.dir, strings.ReplaceAll(p.name, ", ", "-"))
	if err := os.Mkdir(dir, 0o700); err != nil {
		return "", err
	}
	if user == nil {
		return dir, nil
	}
	return dir, os.Chown(dir, int(user.Uid), int(user.Gid))
}

// A daemon is a server that was started here.
type daemon struct {
	cmd   *exec.Cmd
	stdin io.Closer
	said  *tail
	ended chan struct{}
}

// start runs a server until stop. If bench dies before, the server's standard input
// ends, and on Linux the server is killed.
func start(user *syscall.Credential, name string, args ...string) (*daemon, error) {
	cmd := exec.Command(name, args...)
	// A group of its own, so that Ctrl-C reaches bench alone, which stops the
	// servers in turn.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: user}
	dieWithParent(cmd.SysProcAttr)
	d := &daemon{cmd: cmd, said: &tail{}, ended: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = d.said, d.said
	var err error
	if d.stdin, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	started := make(chan error)
	go func() {
		// The thread that starts a server must live as long as the server,
		// because the end of that thread would kill the server.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // stop reports the error
			close(d.ended)
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return d, nil
}

// up returns once ready returns no error.
func (d *daemon) up(ctx context.Context, ready func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for {
		err := ready(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-d.ended:
			return fmt.Errorf("%s ended: %s", d.cmd.Path, d.said)
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("%s is not up: %w: %s", d.cmd.Path, err, d.said), d.stop(syscall.SIGKILL))
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// stop ends the server with sig, and kills it if that takes too long.
func (d *daemon) stop(sig syscall.Signal) error {
	d.stdin.Close()
	_ = d.cmd.Process.Signal(sig) // it may have ended
	select {
	case <-d.ended:
		return nil
	case <-time.After(10 * time.Second):
	}
	_ = d.cmd.Process.Kill()
	<-d.ended
	return fmt.Errorf("%s did not stop", d.cmd.Path)
}

// A tail is the end of a server's output. One goroutine writes it. It is read after the
// server has ended or start has given up.
type tail struct{ b []byte }

func (t *tail) Write(p []byte) (int, error) {
	t.b = append(t.b, p...)
	if n := len(t.b) - 1000; n > 0 {
		t.b = slices.Delete(t.b, 0, n)
	}
	return len(p), nil
}

func (t *tail) String() string { return strings.TrimSpace(string(t.b)) }

// find returns the path of a program of a Debian package.
func find(pkg, program string, dirs ...string) (string, error) {
	path, err := exec.LookPath(program)
	if err == nil {
		return path, nil
	}
	for _, pattern := range append(dirs, "/usr/sbin", "/usr/local/sbin") {
		found, _ := filepath.Glob(filepath.Join(pattern, program)) // a constant: cannot fail
		if len(found) > 0 {
			return found[len(found)-1], nil
		}
	}
	return "", fmt.Errorf("%s is not here: apt-get install %s", program, pkg)
}

// freePort returns a port of the loopback that is free at the moment.
func freePort() (int, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer ln.Close()
	return ln.Addr().(*net.TCPAddr).Port, nil
}

// firstLine returns the first line that a program prints.
func firstLine(name string, args ...string) string {
	out, err := exec.Command(name, args...).Output()
	if err != nil {
		return err.Error()
	}
	line, _, _ := strings.Cut(string(out), "\n")
	return line
}

// serveArg starts this program as a server: bench serve NAME DIR.
const serveArg = "serve"

// serve runs one of this program's servers until its standard input ends.
func serve(ctx context.Context, name, dir string, stdout, stderr io.Writer) int {
	servers := map[string]func(ctx context.Context, dir string, stdout io.Writer) error{
		"leasehold": serveLeasehold,
		"nats":      serveNATS,
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		_, _ = bufio.NewReader(os.Stdin).ReadByte()
		cancel()
	}()
	if servers[name] == nil {
		fmt.Fprintf(stderr, "bench: no server %q\n", name)
		return 2
	}
	if err := servers[name](ctx, dir, stdout); err != nil {
		fmt.Fprintf(stderr, "bench: %s: %v\n", name, err)
		return 1
	}
	return 0
}

// startSelf starts this program as a server.
func startSelf(name, dir string) (*daemon, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return start(nil, self, serveArg, name, dir)
}

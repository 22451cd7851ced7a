package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// A daemon is a leasehold serve that this program started.
type daemon struct {
	servers []string
	program string
	dir     string
	cmd     *exec.Cmd
}

func startDaemon(ctx context.Context, program string) (*daemon, error) {
	dir, err := os.MkdirTemp("", "jobs")
	if err != nil {
		return nil, err
	}
	d := &daemon{program: program, dir: dir, servers: []string{"unix://" + filepath.Join(dir, "sock")}}
	d.cmd = exec.CommandContext(context.WithoutCancel(ctx), program, "serve", "--state", filepath.Join(dir, "state"), "--socket", d.socket())
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // so that Ctrl-C does not reach the daemon
	var log bytes.Buffer
	d.cmd.Stderr = &log
	out, err := d.cmd.StdoutPipe()
	if err == nil {
		err = d.cmd.Start()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%w; install leasehold, or name it with -leasehold", err), os.RemoveAll(dir))
	}
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		_ = d.stop() // the daemon failed, and its log says why
		return nil, fmt.Errorf("leasehold serve: %s", &log)
	}
	return d, nil
}

func (d *daemon) socket() string { return filepath.Join(d.dir, "sock") }

// token makes an actor of the run and returns its token.
func (d *daemon) token(ctx context.Context, name string) (string, error) {
	role := "worker"
	if name == "root" {
		role = "root"
	}
	out, err := exec.CommandContext(ctx, d.program, "actor", "add", "--socket", d.socket(), "--run", "jobs", "--name", name, "--role", role).Output()
	if err != nil {
		return "", fmt.Errorf("leasehold actor add: %w", err)
	}
	lines := strings.Fields(string(out))
	return lines[len(lines)-1], nil
}

func (d *daemon) stop() error {
	_ = d.cmd.Process.Signal(syscall.SIGTERM) // fails if the daemon has ended
	return errors.Join(d.cmd.Wait(), os.RemoveAll(d.dir))
}

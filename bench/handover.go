package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// handOver measures how long after a release the first in line has the lease. It uses a
// daemon and two shims, each a process of its own, as clients start them. For comparison
// it measures a bare fsync of the same disk.
func handOver(ctx context.Context, cfg config, stdout, _ io.Writer) (err error) {
	program := cfg.HandOver
	dir, err := os.MkdirTemp(cfg.Dir, "leasehold-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	fsync, err := fsyncTime(dir)
	if err != nil {
		return err
	}
	sock := filepath.Join(dir, "socket")
	d, err := start(nil, program, "serve", "--state", filepath.Join(dir, "state"), "--socket", sock)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.stop(syscall.SIGTERM)) }()
	err = d.up(ctx, func(context.Context) error { _, err := os.Stat(sock); return err })
	if err != nil {
		return err
	}
	var shims [2]*shim
	for i := range shims {
		if shims[i], err = startShim(ctx, program, sock, fmt.Sprint("W", i)); err != nil {
			return err
		}
		defer shims[i].end()
	}

	const warmUp = 100
	var times []time.Duration
	lease := ""
	for n := 0; n < warmUp+200*cfg.Rounds && ctx.Err() == nil; n++ {
		has, wants := shims[n%2], shims[(n+1)%2]
		if lease == "" {
			has.send("run_lease_acquire", `{"key":"baton"}`)
			if lease, err = has.leaseID(); err != nil {
				return err
			}
		}
		wants.send("run_lease_acquire", `{"key":"baton","wait_secs":50}`)
		if err := has.untilWaited(); err != nil {
			return err
		}
		type got struct {
			lease string
			at    time.Time
			err   error
		}
		granted := make(chan got, 1)
		go func() {
			lease, err := wants.leaseID()
			granted <- got{lease, time.Now(), err}
		}()
		released := time.Now()
		if _, err := has.call("run_lease_release", `{"lease_id":"`+lease+`"}`); err != nil {
			return err
		}
		g := <-granted
		if lease = g.lease; g.err != nil {
			return g.err
		}
		if n >= warmUp {
			times = append(times, g.at.Sub(released))
		}
	}
	if err := context.Cause(ctx); err != nil {
		return err
	}
	m := median(times)
	fmt.Fprintf(stdout, "hand-over between two shims: %v (median of %d), a bare fsync: %v, ratio %.2f\n",
		m.Round(time.Microsecond), len(times), fsync.Round(time.Microsecond), float64(m)/float64(fsync))
	return nil
}

// A shim is a leasehold mcp and its client.
type shim struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
	id  int
}

func startShim(ctx context.Context, program, sock, name string) (*shim, error) {
	s := &shim{cmd: exec.CommandContext(ctx, program, "mcp", "--socket", sock, "--run", "bench", "--name", name)}
	var err error
	if s.in, err = s.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	s.out = bufio.NewReaderSize(out, 64<<10)
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	fmt.Fprintln(s.in, `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"bench","version":"0"}}}`)
	if _, err := s.answer(); err != nil {
		return nil, err
	}
	fmt.Fprintln(s.in, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	return s, nil
}

func (s *shim) end() {
	s.in.Close()
	_ = s.cmd.Wait() // the measurement is done, so an error does not matter
}

func (s *shim) send(tool, arguments string) {
	s.id++
	fmt.Fprintf(s.in, `{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":%q,"arguments":%s}}`+"\n", s.id, tool, arguments)
}

// answer reads up to and including the next answer.
func (s *shim) answer() ([]byte, error) {
	for {
		line, err := s.out.ReadBytes('\n')
		switch {
		case err != nil:
			return nil, err
		case bytes.Contains(line, []byte(`"method":`)): // a notification
		case bytes.Contains(line, []byte(`"isError":true`)), bytes.Contains(line, []byte(`"error":`)):
			return nil, fmt.Errorf("leasehold mcp: %s", line)
		default:
			return line, nil
		}
	}
}

func (s *shim) call(tool, arguments string) ([]byte, error) {
	s.send(tool, arguments)
	return s.answer()
}

func (s *shim) leaseID() (string, error) {
	line, err := s.answer()
	if err != nil {
		return "", err
	}
	_, rest, _ := bytes.Cut(line, []byte(`"lease_id":"`))
	id, _, ok := bytes.Cut(rest, []byte(`"`))
	if !ok {
		return "", fmt.Errorf("no lease_id in %s", line)
	}
	return string(id), nil
}

// untilWaited returns once a waiter is in line.
func (s *shim) untilWaited() error {
	for {
		line, err := s.call("lease_list", `{"scope":"run"}`)
		if err != nil || bytes.Contains(line, []byte(`"in_line":1`)) {
			return err
		}
	}
}

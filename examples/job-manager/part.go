package main

import (
	"context"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// A part is a replica or a worker. Its process is started again when it ends, as by an init
// system.
type part struct {
	kind, name, token, servers, ledger, listen string

	mu      sync.Mutex
	process *os.Process // nil: none runs
	killed  bool
	crashes int
}

// keep runs the process until ctx ends.
func (p *part) keep(ctx context.Context) {
	for ctx.Err() == nil {
		program, err := os.Executable()
		if err != nil {
			return
		}
		cmd := exec.CommandContext(ctx, program)
		cmd.Env = append(os.Environ(), partVar+"="+p.kind, nameVar+"="+p.name, listenVar+"="+p.listen,
			ledgerVar+"="+p.ledger, serversVar+"="+p.servers, tokenVar+"="+p.token)
		cmd.Stderr = os.Stderr
		p.mu.Lock()
		if err := cmd.Start(); err == nil {
			p.process, p.killed = cmd.Process, false
		}
		p.mu.Unlock()
		err = cmd.Wait()
		p.mu.Lock()
		if err != nil && !p.killed && ctx.Err() == nil {
			p.crashes++
		}
		p.process = nil
		p.mu.Unlock()
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

func (p *part) signal(s syscall.Signal) bool {
	return p.process != nil && p.process.Signal(s) == nil
}

func (p *part) kill() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.killed = p.signal(syscall.SIGKILL) || p.killed
	return p.killed
}

func (p *part) pause() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.signal(syscall.SIGSTOP)
}

func (p *part) resume() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.signal(syscall.SIGCONT) // fails if the process was killed meanwhile
}

func (p *part) crashed() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.crashes
}

package simulation

import (
	"errors"
	"net"
	"sync"
	"time"
)

// A proxy stands between two parties. It can cut what runs through it, hold it back,
// and let nobody through.
type proxy struct {
	ln   net.Listener
	dial func() (net.Conn, error)

	mu     sync.Mutex
	conns  map[net.Conn]bool
	closed bool          // nobody comes through
	held   chan struct{} // closed when what is held back goes on; nil: nothing is
	wg     sync.WaitGroup
}

func startProxy(ln net.Listener, dial func() (net.Conn, error)) *proxy {
	p := &proxy{ln: ln, dial: dial, conns: make(map[net.Conn]bool)}
	p.wg.Go(func() {
		for {
			near, err := ln.Accept()
			switch {
			case err == nil:
				p.wg.Go(func() { p.join(near) })
			case errors.Is(err, net.ErrClosed):
				return
			default: // the process has too many open files, until what is held back goes on
				time.Sleep(realTime.second / 100)
			}
		}
	})
	return p
}

// keep notes a connection, unless nobody comes through.
func (p *proxy) keep(nc net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		nc.Close()
		return false
	}
	p.conns[nc] = true
	return true
}

func (p *proxy) join(near net.Conn) {
	if !p.keep(near) {
		return
	}
	far, err := p.dial()
	if err != nil || !p.keep(far) {
		p.drop(near)
		return
	}
	var back sync.WaitGroup
	back.Go(func() { p.carry(near, far) })
	p.carry(far, near)
	back.Wait()
}

func (p *proxy) drop(nc net.Conn) {
	nc.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, nc)
}

// carry carries one direction to its end, which ends the other.
func (p *proxy) carry(to, from net.Conn) {
	defer p.drop(from)
	defer p.drop(to)
	buf := make([]byte, window)
	for {
		n, err := from.Read(buf)
		p.mu.Lock()
		held := p.held
		p.mu.Unlock()
		if held != nil {
			<-held
		}
		if _, failed := to.Write(buf[:n]); failed != nil || err != nil {
			return
		}
	}
}

// cut breaks all connections, and the new ones for a while.
func (p *proxy) cut(d time.Duration) {
	p.mu.Lock()
	p.closed = d > 0
	for nc := range p.conns {
		nc.Close()
	}
	p.mu.Unlock()
	time.Sleep(d)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = false
}

// stall holds everything back for a while.
func (p *proxy) stall(d time.Duration) {
	held := make(chan struct{})
	p.mu.Lock()
	p.held = held
	p.mu.Unlock()
	time.Sleep(d)
	p.mu.Lock()
	p.held = nil
	p.mu.Unlock()
	close(held)
}

func (p *proxy) close() {
	p.ln.Close()
	p.mu.Lock()
	p.closed = true
	for nc := range p.conns {
		nc.Close()
	}
	p.mu.Unlock()
	p.wg.Wait()
}

package server

import "sync"

// Lanes are where the calls of a connection run that do not wait. Calls beyond those
// are in line, and have no goroutine: thousands of them, of clients that
// send and do not read, would keep everybody waiting for a processor. The zero value is ready.
type lanes struct {
	mu     sync.Mutex
	busy   int
	inLine []func()
}

// take takes a lane, if there is one. The caller leaves it.
func (l *lanes) take() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.busy == maxLanes {
		return false
	}
	l.busy++
	return true
}

// leave gives a lane to the next in line, on a goroutine of its own.
func (l *lanes) leave(wg *sync.WaitGroup) {
	if call := l.next(); call != nil {
		wg.Go(func() { l.run(call) })
	}
}

// run runs a call, and then those in line, in a lane that it has.
func (l *lanes) run(call func()) {
	for call != nil {
		call()
		call = l.next()
	}
}

// next gives the call that a lane goes on with. If there is none, the lane is free.
func (l *lanes) next() (call func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.inLine) == 0 {
		l.inLine = nil
		l.busy--
		return nil
	}
	call, l.inLine[0] = l.inLine[0], nil
	l.inLine = l.inLine[1:]
	return call
}

// start runs a call on a goroutine, as soon as there is a lane.
func (l *lanes) start(wg *sync.WaitGroup, call func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.busy == maxLanes {
		l.inLine = append(l.inLine, call)
		return
	}
	l.busy++
	wg.Go(func() { l.run(call) })
}

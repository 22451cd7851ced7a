package server

import "sync"

// lanes are where the calls of a connection run that do not wait. Further calls
// queue without a goroutine, because thousands of goroutines, of clients that
// send and do not read, would keep all others waiting for a processor. The zero
// value is ready for use.
type lanes struct {
	mu     sync.Mutex
	busy   int
	inLine []func()
}

// take takes a lane if one is free. The caller must leave it.
func (l *lanes) take() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.busy == maxLanes {
		return false
	}
	l.busy++
	return true
}

// leave gives the lane to the next call in the queue, on a new goroutine.
func (l *lanes) leave(wg *sync.WaitGroup) {
	if call := l.next(); call != nil {
		wg.Go(func() { l.run(call) })
	}
}

// run runs a call, and then queued calls, in the lane that it has.
func (l *lanes) run(call func()) {
	for call != nil {
		call()
		call = l.next()
	}
}

// next returns the next call for a lane. If there is none, it frees the lane.
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

// start runs a call on a goroutine as soon as a lane is free.
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

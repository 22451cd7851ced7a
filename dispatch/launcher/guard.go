package launcher

import (
	"fmt"
	"sync"
	"time"

	"github.com/leasehold/leasehold/dispatch/process"
)

// A guard keeps a watchdog for the run, and starts another one if it is killed.
type guard struct {
	leasehold, mark string
	grace           time.Duration

	mu       sync.Mutex
	dog      *process.Watchdog
	watching map[*process.Process]bool
	stop     chan struct{}
	done     chan struct{}
}

func newGuard(leasehold, mark string, grace time.Duration) (*guard, error) {
	g := &guard{
		leasehold: leasehold, mark: mark, grace: grace,
		watching: make(map[*process.Process]bool), stop: make(chan struct{}), done: make(chan struct{}),
	}
	if err := g.start(); err != nil {
		return nil, err
	}
	go g.keep() // ends with close
	return g, nil
}

func (g *guard) start() error {
	dog, err := process.StartWatchdog(g.leasehold, g.mark, g.grace)
	if err != nil {
		return fmt.Errorf("the watchdog cannot be started: %w", err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.dog = dog
	for p := range g.watching {
		dog.Watch(p)
	}
	return nil
}

// watchdogRetry is the time between attempts to start a watchdog.
const watchdogRetry = time.Second

func (g *guard) keep() {
	defer close(g.done)
	for {
		g.mu.Lock()
		dog := g.dog
		g.mu.Unlock()
		select {
		case <-dog.Done():
		case <-g.stop:
			return
		}
		for g.start() != nil {
			select {
			case <-time.After(watchdogRetry):
			case <-g.stop:
				return
			}
		}
	}
}

// watch makes the watchdog track a process itself, not only by its mark.
func (g *guard) watch(p *process.Process) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.watching[p] = true
	g.dog.Watch(p)
}

// forget removes a process of which nothing is left.
func (g *guard) forget(p *process.Process) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.watching, p)
}

// close releases the watchdog when nothing is left to watch, so it does not
// matter whether it has just been killed.
func (g *guard) close() {
	close(g.stop)
	<-g.done
	_ = g.dog.Close()
}

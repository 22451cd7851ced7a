package launcher

import (
	"fmt"
	"sync"
	"time"

	"github.com/leasehold/leasehold/dispatch/process"
)

// A guard keeps a watchdog for the run: another in the place of one that
// somebody has killed.
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

// watchdogRetry is how long to wait when another watchdog cannot be started.
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

// watch has the watchdog know a process by more than its mark.
func (g *guard) watch(p *process.Process) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.watching[p] = true
	g.dog.Watch(p)
}

// forget is for a process of which nothing is left.
func (g *guard) forget(p *process.Process) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.watching, p)
}

// close lets the watchdog go, when nothing is left to watch: so it makes no
// difference if somebody has killed it just now.
func (g *guard) close() {
	close(g.stop)
	<-g.done
	_ = g.dog.Close()
}

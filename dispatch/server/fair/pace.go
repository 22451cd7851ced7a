package fair

import (
	"context"
	"sync"
	"time"
)

// A Pace spreads requests that arrive faster than they can be served without
// harming others. For each key it admits burst at once, and then one in each
// interval. Requests wait and are not refused, because a refused client would
// only ask again.
type Pace[K comparable] struct {
	burst int
	every time.Duration

	mu   sync.Mutex
	next map[K]time.Time // when the next one is due
}

// NewPace returns a pace that admits burst and then one in every.
func NewPace[K comparable](burst int, every time.Duration) *Pace[K] {
	return &Pace[K]{burst: burst, every: every, next: make(map[K]time.Time)}
}

// maxPaced is the number of keys from which on those that are due are dropped.
const maxPaced = 1024

// Wait counts one more request of key, and waits until it may continue. If ctx
// ends first, the request does not count.
func (p *Pace[K]) Wait(ctx context.Context, key K) {
	if Sleep(ctx, p.Charge(key)); ctx.Err() != nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.next[key] = p.next[key].Add(-p.every)
	}
}

// Charge counts one more request of key, and returns how long it has to wait.
func (p *Pace[K]) Charge(key K) time.Duration {
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.next) >= maxPaced {
		for k, at := range p.next {
			if at.Before(now) {
				delete(p.next, k)
			}
		}
	}
	next := p.next[key]
	if next.Before(now) {
		next = now
	}
	p.next[key] = next.Add(p.every)
	return next.Sub(now) - time.Duration(p.burst)*p.every
}

// Owed returns how long one more request of key would have to wait.
func (p *Pace[K]) Owed(key K) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	next, ok := p.next[key]
	if !ok {
		return 0
	}
	return time.Until(next) - time.Duration(p.burst)*p.every
}

// Sleep sleeps for d, or until ctx ends.
func Sleep(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

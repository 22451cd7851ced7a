package main

import (
	"context"
	"fmt"
	"time"

	"github.com/leasehold/leasehold/client"
)

// A job is one payment that a worker has to make.
type job struct {
	Number    int    `json:"number"`
	Amount    int    `json:"amount"`
	Generator uint64 `json:"generator"` // the token of the generator's lease
}

func amountOf(number int) int { return number*7%100 + 1 }

// The paths of the state that all replicas share.
const (
	nextPath = "/shared/next" // the number of the next job; written by the generator
	stopPath = "/shared/stop" // true once the service is stopped; written by any replica
)

// generate makes jobs until the service is stopped, or until ctx ends because the lease is
// lost. Each job has a key, so the same job is never enqueued twice.
func (r *replica) generate(ctx context.Context, l *client.Lease) error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
		if over, err := r.generateOne(ctx, l); over || err != nil {
			return err
		}
	}
}

func (r *replica) generateOne(ctx context.Context, l *client.Lease) (over bool, err error) {
	stopped, next := false, 1
	if _, err = r.Load(ctx, stopPath, &stopped); err == nil && !stopped {
		_, err = r.Load(ctx, nextPath, &next)
	}
	if err != nil || stopped {
		return stopped, lostIsNone(ctx, err)
	}
	gate, err := l.Gate()
	if err != nil {
		return false, nil // the lease is lost, so ctx has ended
	}
	_, err = r.Enqueue(ctx, client.NewTask{
		Queue: jobs, Payload: job{next, amountOf(next), l.Token()}, MaxAttempts: 100,
		Key: fmt.Sprint("job ", next), Gates: []client.Gate{gate},
	})
	if err == nil || client.CodeOf(err) == "REQUEST_ID_REUSED" { // the last generator has enqueued it
		err = r.Store(ctx, nextPath, next+1, gate)
	}
	return false, lostIsNone(ctx, err)
}

// lostIsNone returns nil if a write failed because the lease is lost. The replica then
// waits for the lease again.
func lostIsNone(ctx context.Context, err error) error {
	if ctx.Err() != nil || client.CodeOf(err) == "STALE_TOKEN" {
		return nil
	}
	return err
}

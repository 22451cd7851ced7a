package main

import (
	"context"
	"fmt"
	"time"

	"github.com/leasehold/leasehold/client"
)

// A job is what a worker is to do.
type job struct {
	Number    int    `json:"number"`
	Amount    int    `json:"amount"`
	Generator uint64 `json:"generator"` // the token of the lease under which it was made
}

func amountOf(number int) int { return number*7%100 + 1 }

// Where the service keeps what every replica must know.
const (
	nextPath = "/shared/next" // the number of the next job; written by who generates
	stopPath = "/shared/stop" // that nothing more is to be generated; written by any replica
)

// generate makes jobs until the service is stopped, or ctx ends because another replica
// may generate. Each job has a key: one that was made before is not made again.
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
		return false, nil // and ctx has ended
	}
	_, err = r.Enqueue(ctx, client.NewTask{
		Queue: jobs, Payload: job{next, amountOf(next), l.Token()}, MaxAttempts: 100,
		Key: fmt.Sprint("job ", next), Gates: []client.Gate{gate},
	})
	if err == nil || client.CodeOf(err) == "REQUEST_ID_REUSED" { // the replica before has made it
		err = r.Store(ctx, nextPath, next+1, gate)
	}
	return false, lostIsNone(ctx, err)
}

// lostIsNone is nil for the error of a write that failed because the lease is lost: then
// this replica waits for it again.
func lostIsNone(ctx context.Context, err error) error {
	if ctx.Err() != nil || client.CodeOf(err) == "STALE_TOKEN" {
		return nil
	}
	return err
}

package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hibiken/asynq"
)

// startAsynq starts asynq on its own Redis, which syncs its log before it answers. The
// server of asynq takes tasks with one goroutine, one at a time, for a given number of
// workers. There is no other way to take a task.
func startAsynq(ctx context.Context, p place) (_ *contender, err error) {
	redis, err := find("redis-server", "redis-server")
	if err != nil {
		return nil, err
	}
	dir, err := p.own(nil)
	if err != nil {
		return nil, err
	}
	sock := filepath.Join(dir, "sock")
	d, err := start(nil, redis, "--port", "0", "--unixsocket", sock, "--dir", dir,
		"--appendonly", "yes", "--appendfsync", "always", "--no-appendfsync-on-rewrite", "no", "--save", "")
	if err != nil {
		return nil, err
	}
	opt := asynq.RedisClientOpt{Network: "unix", Addr: sock, PoolSize: maxWorkers + 8}
	client := asynq.NewClient(opt)
	inspector := asynq.NewInspector(opt)
	stop := func() error {
		return errors.Join(inspector.Close(), client.Close(), d.stop(syscall.SIGTERM))
	}
	if err := d.up(ctx, func(context.Context) error { return client.Ping() }); err != nil {
		return nil, errors.Join(err, stop())
	}
	task := asynq.NewTask("bench", payload)
	return &contender{
		version: fmt.Sprintf("asynq %s, %s", module("github.com/hibiken/asynq"), firstLine(redis, "--version")),
		steps: map[operation]step{
			enqueue: func(ctx context.Context, _ int) (int, error) {
				_, err := client.EnqueueContext(ctx, task)
				return 1, err
			},
		},
		runs: map[operation]func(context.Context, int, time.Duration) (sample, error){
			cycle: func(ctx context.Context, workers int, window time.Duration) (sample, error) {
				return asynqCycles(ctx, opt, workers, window)
			},
		},
		close: stop,
	}, nil
}

// asynqCycles counts what a server's workers do. The clock runs from the first
// task to the last that began within the window; a task that begins is one that
// the same worker has finished before, or the first of a worker.
func asynqCycles(ctx context.Context, opt asynq.RedisClientOpt, workers int, window time.Duration) (sample, error) {
	srv := asynq.NewServer(opt, asynq.Config{Concurrency: workers, LogLevel: asynq.FatalLevel})
	var begun atomic.Int64
	var first, last time.Time
	var mu sync.Mutex
	over := make(chan struct{})
	var once sync.Once
	err := srv.Start(asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
		now := time.Now()
		mu.Lock()
		defer mu.Unlock()
		if first.IsZero() {
			first = now
		}
		if now.Sub(first) > window {
			once.Do(func() { close(over) })
			return nil
		}
		last = now
		begun.Add(1)
		return nil
	}))
	if err != nil {
		return sample{}, err
	}
	select {
	case <-over:
	case <-ctx.Done():
	case <-time.After(window + 3*time.Second): // the tasks ran out
	}
	srv.Shutdown()
	if ctx.Err() != nil {
		return sample{}, context.Cause(ctx)
	}
	mu.Lock()
	defer mu.Unlock()
	n := int(begun.Load())
	return sample{tasks: max(0, n-workers), took: last.Sub(first)}, nil
}

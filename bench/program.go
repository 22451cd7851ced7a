package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	leasehold "github.com/leasehold/leasehold/client"
	"github.com/leasehold/leasehold/dispatch/server"
)

// startProgram starts Leasehold as Go programs use it: all workers share one client of
// package client, on the unix socket of a daemon.
func startProgram(ctx context.Context, p place) (*contender, error) {
	dir, err := p.own(nil)
	if err != nil {
		return nil, err
	}
	d, err := startSelf("leasehold", dir)
	if err != nil {
		return nil, err
	}
	socket := filepath.Join(dir, socketName)
	var c *leasehold.Client
	err = d.up(ctx, func(ctx context.Context) error {
		token, err := programToken(socket)
		if err == nil {
			c, err = leasehold.Open(ctx, leasehold.Options{Servers: []string{"unix://" + socket}, Token: token})
		}
		return err
	})
	if err != nil {
		return nil, errors.Join(err, d.stop(syscall.SIGTERM))
	}
	return &contender{
		version: "the working tree, by package client on the unix socket",
		steps: map[operation]step{
			enqueue: func(ctx context.Context, _ int) (int, error) {
				_, err := c.Enqueue(ctx, leasehold.NewTask{Queue: queueName, Payload: json.RawMessage(payload)})
				return 1, err
			},
		},
		runs: map[operation]func(context.Context, int, time.Duration) (sample, error){
			cycle: func(ctx context.Context, workers int, window time.Duration) (sample, error) {
				return programCycles(ctx, c, workers, window)
			},
		},
		cpu:   func() time.Duration { return cpuTimeOf(d.cmd.Process.Pid) },
		close: func() error { return errors.Join(c.Close(), d.stop(syscall.SIGTERM)) },
	}, nil
}

// programCycles counts the cycles of a worker that executes several tasks at once. A cycle
// counts when its end is answered, so the clock runs until the last answer.
func programCycles(ctx context.Context, c *leasehold.Client, workers int, window time.Duration) (sample, error) {
	working, stop := context.WithCancel(ctx)
	defer stop()
	var done atomic.Int64
	var once sync.Once
	var first time.Time
	err := c.Work(working, leasehold.Worker{
		Queues: []string{queueName}, Concurrency: workers, TTL: claimTTL,
		Handle: func(context.Context, *leasehold.Task) (any, error) {
			once.Do(func() {
				first = time.Now()
				time.AfterFunc(window, stop)
				time.AfterFunc(window+3*time.Second, stop) // the tasks ran out
			})
			done.Add(1)
			return struct{}{}, nil
		},
	})
	if err == nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return sample{tasks: int(done.Load()), took: time.Since(first)}, err
}

// programToken makes a worker, as an operator, and returns its token.
func programToken(socket string) (string, error) {
	nc, err := net.Dial("unix", socket)
	if err != nil {
		return "", err
	}
	defer nc.Close()
	br, _, err := server.Greet(nc, server.Hello{Operator: true})
	if err != nil {
		return "", err
	}
	c := &client{nc: nc, br: bufio.NewReaderSize(br, 64<<10)}
	if _, err := c.request("initialize", `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"bench","version":"0"}}`); err != nil {
		return "", err
	}
	if _, err := fmt.Fprintln(nc, `{"jsonrpc":"2.0","method":"notifications/initialized"}`); err != nil {
		return "", err
	}
	var made struct{ Token string }
	if err := c.call("operator_actor_add", `{"run":"bench","name":"root","role":"root"}`, &made); err != nil {
		return "", err
	}
	return made.Token, nil
}

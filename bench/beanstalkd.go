package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"syscall"
	"time"

	"github.com/beanstalkd/go-beanstalk"
)

// startBeanstalkd starts beanstalkd so that it syncs its log before it answers. It logs
// only put and delete: after a crash a reserved job is ready again.
func startBeanstalkd(ctx context.Context, p place) (*contender, error) {
	program, err := find("beanstalkd", "beanstalkd")
	if err != nil {
		return nil, err
	}
	dir, err := p.own(nil)
	if err != nil {
		return nil, err
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	d, err := start(nil, program, "-l", "127.0.0.1", "-p", strconv.Itoa(port), "-b", dir, "-f0")
	if err != nil {
		return nil, err
	}
	addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	var conns [maxWorkers]*beanstalk.Conn
	err = d.up(ctx, func(context.Context) (err error) {
		conns[0], err = beanstalk.Dial("tcp", addr)
		return err
	})
	for i := 1; i < maxWorkers && err == nil; i++ {
		conns[i], err = beanstalk.Dial("tcp", addr)
	}
	stop := func() error {
		for _, c := range conns {
			if c != nil {
				_ = c.Close()
			}
		}
		return d.stop(syscall.SIGTERM)
	}
	if err != nil {
		return nil, errors.Join(err, stop())
	}
	return &contender{
		version: fmt.Sprintf("%s, by go-beanstalk %s", firstLine(program, "-v"), module("github.com/beanstalkd/go-beanstalk")),
		steps: map[operation]step{
			enqueue: func(_ context.Context, w int) (int, error) {
				_, err := conns[w].Put(payload, 1, 0, claimTTL)
				return 1, err
			},
			cycle: func(_ context.Context, w int) (int, error) {
				id, _, err := conns[w].Reserve(10 * time.Millisecond)
				if errors.Is(err, beanstalk.ErrTimeout) {
					return 0, errDry
				}
				if err != nil {
					return 0, err
				}
				return 1, conns[w].Delete(id)
			},
		},
		close: stop,
	}, nil
}

package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime/debug"
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/pebble"
	"github.com/leasehold/leasehold/queue"
	"github.com/leasehold/leasehold/registry"
)

const (
	queueName = "bench"
	claimTTL  = time.Minute
)

// A house is the queue over an engine, with the background work that the daemon does.
type house struct {
	*queue.Queue
	eng     engine.Engine
	core    *registry.Core
	run     uuid.UUID
	holders [maxWorkers]registry.Holder
	stop    context.CancelFunc
	tended  chan error
}

func openHouse(dir string) (*house, error) {
	eng, err := pebble.Open(pebble.Options{Dir: dir})
	if err != nil {
		return nil, err
	}
	return newHouse(eng)
}

func newHouse(eng engine.Engine) (*house, error) {
	h := &house{eng: eng, run: uuid.New(), tended: make(chan error, 1)}
	h.core = registry.New(eng, registry.Options{})
	h.Queue = queue.New(eng, h.core, queue.Options{})
	for i := range h.holders {
		h.holders[i] = registry.Holder{Session: uuid.New(), Actor: uuid.New(), Path: fmt.Sprintf("S1→W%d", i+1)}
	}
	if err := errors.Join(h.core.Recover(context.Background()), h.Recover(context.Background())); err != nil {
		return nil, errors.Join(err, eng.Close())
	}
	ctx, stop := context.WithCancel(context.Background())
	h.stop = stop
	go func() { h.tended <- h.tend(ctx) }()
	return h, nil
}

func (h *house) tend(ctx context.Context) error {
	for h.eng.WaitDue(ctx) == nil {
		err := h.TendDue(ctx)
		if err != nil && ctx.Err() == nil {
			return err
		}
	}
	return nil
}

func (h *house) close() error {
	h.stop()
	return errors.Join(<-h.tended, h.eng.Close())
}

func (h *house) newTask() queue.NewTask {
	return queue.NewTask{Run: h.run, Queue: queueName, Payload: payload, By: "S1"}
}

func (h *house) enqueue(ctx context.Context, _ int) (int, error) {
	_, err := h.Enqueue(ctx, h.newTask())
	return 1, err
}

func (h *house) enqueueMany(ctx context.Context, _ int) (int, error) {
	list := make([]queue.NewTask, many)
	for i := range list {
		list[i] = h.newTask()
	}
	tasks, err := h.EnqueueMany(ctx, list)
	return len(tasks), err
}

func (h *house) claim(ctx context.Context, worker, count int) ([]queue.Claimed, error) {
	tasks, err := h.Claim(ctx, queue.Claim{
		Run: h.run, Queues: []string{queueName}, Holder: h.holders[worker], TTL: claimTTL, Count: count,
	})
	if err == nil && len(tasks) == 0 {
		err = errDry
	}
	return tasks, err
}

func (h *house) submit(ctx context.Context, worker int, c queue.Claimed) error {
	if len(c.Payload) != len(payload) {
		return fmt.Errorf("task %s came with %d bytes", c.ID, len(c.Payload))
	}
	_, err := h.Submit(ctx, h.holders[worker], h.run, queue.Submission{ID: c.ID, Token: c.Token, State: queue.Completed, Result: []byte("{}")})
	return err
}

func (h *house) cycle(ctx context.Context, worker int) (int, error) {
	tasks, err := h.claim(ctx, worker, 1)
	if err != nil {
		return 0, err
	}
	return 1, h.submit(ctx, worker, tasks[0])
}

func (h *house) cycleMany(ctx context.Context, worker int) (int, error) {
	tasks, err := h.claim(ctx, worker, many)
	if err != nil {
		return 0, err
	}
	list := make([]queue.Submission, len(tasks))
	for i, c := range tasks {
		list[i] = queue.Submission{ID: c.ID, Token: c.Token, State: queue.Completed, Result: []byte("{}")}
	}
	answers, err := h.SubmitMany(ctx, h.holders[worker], h.run, list)
	for _, a := range answers {
		err = errors.Join(err, a.Err)
	}
	return len(answers), err
}

// startAPI starts Leasehold as a library.
func startAPI(_ context.Context, p place) (*contender, error) {
	h, err := openHouse(filepath.Join(p.dir, p.name))
	if err != nil {
		return nil, err
	}
	return &contender{
		version: "the working tree",
		steps: map[operation]step{
			enqueue:     h.enqueue,
			cycle:       h.cycle,
			enqueueMany: h.enqueueMany,
			cycleMany:   h.cycleMany,
		},
		cpu:   cpuTime,
		close: h.close,
	}, nil
}

// module returns the version of a linked module.
func module(path string) string {
	info, _ := debug.ReadBuildInfo()
	for _, m := range info.Deps {
		if m.Path == path {
			return m.Version
		}
	}
	return "?"
}

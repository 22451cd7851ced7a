package launcher

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/leasehold/leasehold/dispatch/client"
	"github.com/leasehold/leasehold/dispatch/process"
)

// A Service configures the launcher of a machine. The launcher serves a run that another
// process dispatches, mostly on another machine. The Options' Manifest, Directory and
// Resume are not used: the plan comes from the dispatcher.
type Service struct {
	Options

	Run     string
	Machine string
	Labels  []string

	Base string // where run directories are made
	Work string // the directory on this machine that corresponds to the root actor's

	// Waiting is called once if the run does not exist yet. It may be nil.
	Waiting func(reason string)
}

// joinPause is the time between two attempts to join a run.
const joinPause = time.Second

// Serve waits for a run to begin, and starts the agents that are placed on this machine
// until the run is over. The first interrupt ends it: Serve starts nothing more, sends
// the agents SIGTERM, and SIGKILL after the run's grace, and reports their ends. The
// second interrupt kills the agents at once. When Serve returns, no process that it
// started is left. It returns an error if it could not serve the run to its end; the
// daemon then counts its agents as lost.
func Serve(ctx context.Context, s Service) (interrupted bool, err error) {
	l := newLauncher(s.Options)
	l.run, l.machine, l.labels = s.Run, s.Machine, s.Labels
	l.plan.base = s.Work
	defer l.link.close()
	err = l.serveMachine(ctx, s)
	l.teller.close(s.Interrupts)
	if l.opts.Directory != nil {
		err = errors.Join(err, l.opts.Directory.close())
	}
	return l.interrupts > 0, err
}

func (l *Launcher) serveMachine(ctx context.Context, s Service) error {
	err := l.unlessInterrupted(ctx, func(ctx context.Context) error { return l.awaitRun(ctx, s) })
	if err == nil && l.interrupts > 0 { // it came just when the run was there
		err = ErrInterrupted
	}
	if err != nil {
		return err
	}
	dir, err := NewDirectory(s.Base, l.run, l.began)
	if err != nil {
		return err
	}
	l.opts.Directory = dir
	err = dir.writeJSON(runFile, RunFile{
		Run: l.run, RunID: l.runID, Life: l.life, Socket: l.opts.Socket + l.opts.Servers,
		Dispatcher: process.Find(os.Getpid()).Peer, StartedAt: l.began.UTC(), Machine: l.machine, Instance: l.instance,
	})
	if err != nil {
		return err
	}
	l.link.attach = l.attach
	l.link.told = l.tellLink
	l.event(Event{Event: RunStarted, Text: fmt.Sprintf("machine %s serves run %s", l.machine, l.run)})
	if err := l.guarded(ctx, l.obey); err != nil {
		return err
	}
	l.event(Event{Event: RunFinished, Text: fmt.Sprintf("machine %s has no more to do for run %s", l.machine, l.run)})
	return dir.writeJSON(summaryFile, map[string]any{"run": l.run, "run_id": l.runID, "machine": l.machine, "finished_at": time.Now().UTC()})
}

// awaitRun connects, and joins the run once it is there.
func (l *Launcher) awaitRun(ctx context.Context, s Service) error {
	if err := l.link.open(ctx); err != nil {
		return err
	}
	for {
		c, err := l.link.connected(ctx)
		if err != nil {
			return err
		}
		err = l.join(ctx, c)
		var refusal *client.Refusal
		switch {
		case err == nil:
			return nil
		case !errors.As(err, &refusal):
			l.link.drop(c) // connected opens it again, until the link gives up
		case refusal.Code != "NOT_FOUND" && !refusal.Passing():
			return err
		case s.Waiting != nil:
			s.Waiting(refusal.Message)
			s.Waiting = nil
		}
		select {
		case <-time.After(joinPause):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// join makes the connection the launcher of this machine, for the run that it serves.
func (l *Launcher) join(ctx context.Context, c connection) error {
	args := map[string]any{"run": l.run, "machine": l.machine, "instance": l.instance}
	if len(l.labels) > 0 {
		args["labels"] = l.labels
	}
	answer, err := c.Call(ctx, "operator_launch_join", args)
	if err != nil {
		return err
	}
	var run struct {
		RunID string `json:"run_id"`
		Life  int
		Plan  string
	}
	if err := json.Unmarshal(answer.Object, &run); err != nil {
		return fmt.Errorf("the answer of operator_launch_join cannot be read: %w", err)
	}
	if l.runID != "" && (run.RunID != l.runID || run.Life != l.life) {
		return &client.Refusal{Code: "NOT_FOUND", Message: fmt.Sprintf("run %s has ended, and began again meanwhile", l.run)}
	}
	if l.runID == "" {
		base := l.plan.base
		if err := json.Unmarshal([]byte(run.Plan), &l.plan); err != nil {
			return &client.Refusal{Code: "INVALID_ARGUMENT", Message: fmt.Sprintf("the dispatcher of run %s has told nothing of its agents: it is of an earlier version", l.run)}
		}
		l.plan.base, l.runID, l.life = base, run.RunID, run.Life
		l.grace = seconds(l.plan.GraceSecs)
	}
	return nil
}

// obey carries out the daemon's orders until the run is over or this launcher is
// interrupted.
func (l *Launcher) obey(ctx context.Context) error {
	orders, cancel := context.WithCancel(ctx)
	defer cancel()
	heard := make(chan bool, 1)
	go func() { // ends with orders
		select {
		case <-l.opts.Interrupts:
			heard <- true
			cancel()
		case <-orders.Done():
			heard <- false
		}
	}()
	err := l.takeOrders(orders)
	cancel()
	var refusal *client.Refusal
	switch {
	case <-heard:
		l.interrupts++
		l.leave(ctx)
		return nil
	case errors.As(err, &refusal) && refusal.Code == "NOT_FOUND":
		return nil // the run is over
	}
	return err
}

// leave tells the daemon to place nothing more here, and ends the agents.
func (l *Launcher) leave(ctx context.Context) {
	l.draining.Store(true)
	l.event(Event{Event: Draining, Text: fmt.Sprintf("interrupted: agents have %v to end; again to kill them now", l.grace)})
	saying, stop := context.WithTimeout(ctx, inFlight)
	defer stop()
	_ = l.link.call(saying, "operator_launch_leave", map[string]any{"run": l.run}, nil) // if this fails, the daemon notices the end of the connection
	l.askAll(stopOrder(fmt.Sprintf("the launcher of machine %s was interrupted", l.machine)))
	l.settled()
	ended := make(chan struct{})
	go func() { // ends with the agents
		defer close(ended)
		l.wg.Wait()
	}()
	select {
	case <-ended:
	case <-l.opts.Interrupts:
		l.kill()
		<-ended
	}
}

package launcher

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/leasehold/leasehold/dispatch/client"
	"github.com/leasehold/leasehold/dispatch/process"
	"github.com/leasehold/leasehold/dispatch/server/wire"
)

// begin creates the run or resumes it, and writes run.json.
func (l *Launcher) begin(ctx context.Context) error {
	m, d := l.opts.Manifest, l.opts.Directory
	file := RunFile{
		Run: l.run, Socket: l.opts.Socket + l.opts.Servers, Manifest: filepath.Join(m.Dir, filepath.Base(m.Name)),
		Dispatcher: process.Find(os.Getpid()).Peer, Instance: l.instance, StartedAt: l.began.UTC(),
	}
	if err := d.lock(); err != nil {
		return err
	}
	if l.opts.Resume {
		if d.Finished() { // by another process, since the command was started
			return fmt.Errorf("run %s is over: its summary is in %s", l.run, d.Path)
		}
		old, err := d.RunFile()
		if err != nil {
			return err
		}
		if old.Dispatcher.Alive() {
			return d.dispatchedBy("") // on a file system without locks
		}
		file.RunID = old.RunID
		if l.seen, err = d.lastRevision(); err != nil {
			return err
		}
		if file.RunID != "" { // the earlier dispatcher's leftovers do not belong to this life
			if _, err := process.End(ctx, runMark(file.RunID), l.grace); err != nil {
				return err
			}
		}
	}
	// This comes before anything is written, because there is no run without a
	// daemon.
	if err := l.link.open(ctx); err != nil {
		return errors.Join(err, l.discard())
	}
	if !l.opts.Resume {
		if err := d.write(manifestFile, m.Text); err != nil {
			return errors.Join(err, l.discard())
		}
	}
	// run.json is written before the first process starts, so that the next
	// start finds it.
	if err := d.writeJSON(runFile, file); err != nil {
		return errors.Join(err, l.discard())
	}
	var b begun
	if err := l.beginRun(ctx, &b); err != nil {
		var refusal *client.Refusal
		if errors.As(err, &refusal) {
			err = errors.Join(err, l.discard())
		}
		return err
	}
	l.runID, l.life = b.RunID, b.Life
	file.RunID, file.Life = b.RunID, b.Life
	if err := d.writeJSON(runFile, file); err != nil {
		return err
	}
	l.link.attach = l.attach
	l.link.told = l.tellLink
	text := fmt.Sprintf("run %s began", l.run)
	if l.opts.Resume {
		text = fmt.Sprintf("run %s goes on, in its life %d", l.run, l.life)
	}
	l.event(Event{Event: RunStarted, Text: text})
	return nil
}

// tellLink tells that the daemon does not answer, or is back.
func (l *Launcher) tellLink(lost bool) {
	if lost {
		l.event(Event{Event: DaemonLost, Text: "the daemon does not answer; waiting for it"})
	} else {
		l.event(Event{Event: DaemonBack, Text: "the daemon is back"})
	}
}

// discard removes the directory of a run that was not to be. One that is named
// like it is resumed by its last directory.
func (l *Launcher) discard() error {
	if l.opts.Resume {
		return nil
	}
	return l.opts.Directory.remove()
}

// attach makes this process the run's launcher again after the daemon was away.
// It first reports the running processes, which the daemon may not know of.
// Otherwise the daemon would order them to be started again. A process that the daemon
// has given up is ended.
func (l *Launcher) attach(ctx context.Context, c connection) error {
	if l.machine != "" {
		if err := l.join(ctx, c); err != nil {
			return err
		}
	} else if _, err := c.Call(ctx, "operator_run_dispatch", map[string]any{"run": l.run, "attach": l.runID, "instance": l.instance}); err != nil {
		return err
	}
	l.mu.Lock()
	running := maps.Clone(l.agents)
	l.mu.Unlock()
	for id, a := range running {
		pid := a.pid.Load()
		if pid == 0 {
			continue
		}
		started := map[string]any{"run": l.run, "actor_id": id, "pid": pid, "logs": wire.Informative(l.opts.Directory.actor(a.order.Path, id))}
		_, err := c.Call(ctx, "operator_launch_started", started)
		refusal, refused := errors.AsType[*client.Refusal](err)
		switch {
		case refused && refusal.Passing(), err != nil && !refused:
			return err
		case refused: // it was counted as lost, or its run has ended
			a.ask(stopOrder(refusal.Message))
		}
	}
	return nil
}

// settle is how long a daemon may take to notice that the processes of an
// earlier life are gone.
const settle = 10 * time.Second

// beginRun asks the daemon for the run. If the run is resumed, the daemon may
// not have noticed yet that its dispatcher and processes are gone.
func (l *Launcher) beginRun(ctx context.Context, b *begun) error {
	args := map[string]any{"run": l.run, "root": l.opts.Manifest.Root.Order(), "agents": slices.Sorted(maps.Keys(l.opts.Manifest.Agents)), "settings": l.opts.Manifest.Settings(), "instance": l.instance}
	plan, err := json.Marshal(l.plan)
	if err != nil {
		return err
	}
	args["plan"] = string(plan)
	if l.opts.Resume {
		args["resume"] = true
	}
	giveUp := time.Now().Add(settle)
	answered, stop := outlast(ctx, inFlight)
	defer stop()
	for {
		err := l.link.call(answered, "operator_run_dispatch", args, b)
		if !l.opts.Resume || !mayPass(err) || time.Now().After(giveUp) {
			return err
		}
		select {
		case <-time.After(redialPause):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// inFlight is how long after an interrupt the answer to the call that creates
// the run is still awaited. Without it nobody would know whether the run
// exists.
const inFlight = 5 * time.Second

// outlast returns a context that ends some time after ctx.
func outlast(ctx context.Context, while time.Duration) (longer context.Context, stop func()) {
	longer, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	unwatch := context.AfterFunc(ctx, func() {
		timer := time.AfterFunc(while, func() { cancel(context.Cause(ctx)) })
		context.AfterFunc(longer, func() { timer.Stop() })
	})
	return longer, func() { unwatch(); cancel(nil) }
}

// mayPass reports whether a refusal may be temporary.
func mayPass(err error) bool {
	var refusal *client.Refusal
	if !errors.As(err, &refusal) {
		return false
	}
	switch refusal.Code {
	case "NOT_FOUND", "FORBIDDEN", "LIMIT":
		return false
	}
	return true
}

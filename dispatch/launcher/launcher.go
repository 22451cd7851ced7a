package launcher

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/dispatch/client"
	"github.com/leasehold/leasehold/dispatch/manifest"
	"github.com/leasehold/leasehold/dispatch/process"
)

// Options of a run.
type Options struct {
	Manifest  *manifest.Manifest
	Directory *Directory
	Resume    bool // the run of the directory goes on

	// Leasehold is the command's own executable: the watchdog runs it, and
	// agents call it.
	Leasehold string
	Socket    string

	// Connect opens an operator's connection to the daemon, and may start
	// one.
	Connect func(context.Context) (*client.Client, error)

	// Events is told of each event after it is recorded, one at a time. Nil:
	// nobody is.
	Events func(Event)

	// Interrupts ask the run to end: the first drains it, so that nothing is
	// spawned and who finishes within the manifest's grace may; then, or at
	// the second, agents get SIGTERM, and SIGKILL after the same grace. The
	// third kills.
	Interrupts <-chan struct{}
}

// A Launcher dispatches one run.
type Launcher struct {
	opts  Options
	run   string
	runID string
	life  int
	began time.Time
	link  *link
	guard *guard
	grace time.Duration

	eventMu sync.Mutex // one event at a time, to the file and to Options.Events

	interrupts int // told so far; of the goroutine that heeds them, then of Run

	mu     sync.Mutex
	agents map[string]*agentProcess // by actor id
	hurry  chan struct{}            // closed: no grace any more
	wg     sync.WaitGroup           // one for each agent
}

// Run dispatches a run until its tree is done, whatever comes, and says how it
// ended. When it returns no process of the run is left. The error is for a run
// that could not begin or not be seen to its end; an agent that fails is
// no error.
func Run(ctx context.Context, opts Options) (Summary, error) {
	l := &Launcher{
		opts: opts, run: opts.Manifest.Run.Name, began: time.Now(),
		grace:  seconds(opts.Manifest.Run.DrainGraceSecs),
		agents: make(map[string]*agentProcess), hurry: make(chan struct{}),
	}
	l.link = newLink(opts.Connect)
	l.link.attach = func(context.Context, *client.Client) error { return nil }
	defer l.link.close()
	defer func() { _ = opts.Directory.close() }() // what was recorded is in the file

	if err := l.begin(ctx); err != nil {
		return Summary{}, err
	}
	guard, err := newGuard(opts.Leasehold, l.mark(), l.grace)
	if err != nil {
		return Summary{}, err
	}
	l.guard = guard
	err = l.serve(ctx)
	if err != nil {
		l.kill() // nobody is told what they hold
	}
	l.wg.Wait()
	if _, endErr := process.End(context.WithoutCancel(ctx), l.mark(), l.grace); endErr != nil {
		return Summary{}, errors.Join(err, endErr) // the watchdog has another go
	}
	if err := errors.Join(err, guard.close()); err != nil {
		return Summary{}, err
	}
	return l.finish(context.WithoutCancel(ctx))
}

// mark is in the environment of every process of the run.
func (l *Launcher) mark() string { return runMark(l.runID) }

func runMark(runID string) string { return "LEASEHOLD_RUN_ID=" + runID }

// begin makes the run, or takes it up again, and notes whose directory this is.
func (l *Launcher) begin(ctx context.Context) error {
	m, d := l.opts.Manifest, l.opts.Directory
	file := RunFile{
		Run: l.run, Socket: l.opts.Socket, Manifest: filepath.Join(m.Dir, filepath.Base(m.Name)),
		Dispatcher: dispatch.ProcessOf(os.Getpid()).Peer, StartedAt: l.began.UTC(),
	}
	if l.opts.Resume {
		old, err := d.RunFile()
		if err != nil {
			return err
		}
		if old.Dispatcher.Alive() {
			return fmt.Errorf("run %s is dispatched by process %d: wait for it, or end it", l.run, old.Dispatcher.PID)
		}
		file.RunID = old.RunID
		if file.RunID != "" { // what the last dispatcher left is not of this life
			if _, err := process.End(ctx, runMark(file.RunID), l.grace); err != nil {
				return err
			}
		}
	} else if err := d.write(manifestFile, m.Text); err != nil {
		return err
	}
	// Named before the first process starts: the next start finds it.
	if err := d.writeJSON(runFile, file); err != nil {
		return err
	}
	var b begun
	if err := l.beginRun(ctx, &b); err != nil {
		return err
	}
	l.runID, l.life = b.RunID, b.Life
	file.RunID, file.Life = b.RunID, b.Life
	if err := d.writeJSON(runFile, file); err != nil {
		return err
	}
	l.link.attach = l.attach
	l.link.told = func(lost bool) {
		if lost {
			l.event(Event{Event: DaemonLost, Text: "the daemon has gone; waiting for it"})
		} else {
			l.event(Event{Event: DaemonBack, Text: "the daemon is back"})
		}
	}
	text := fmt.Sprintf("run %s began", l.run)
	if l.life > 1 {
		text = fmt.Sprintf("run %s goes on, in its life %d", l.run, l.life)
	}
	l.event(Event{Event: RunStarted, Text: text})
	return nil
}

// attach makes this process the run's launcher again after the daemon was away.
// What it may not have come to know is told before anything is asked: an order
// that it believes not to be obeyed is given again.
func (l *Launcher) attach(ctx context.Context, c *client.Client) error {
	if _, err := c.Call(ctx, "operator_run_dispatch", map[string]any{"run": l.run, "attach": l.runID}); err != nil {
		return err
	}
	l.mu.Lock()
	var running []map[string]any
	for id, a := range l.agents {
		if pid := a.pid.Load(); pid != 0 {
			running = append(running, map[string]any{"run": l.run, "actor_id": id, "pid": pid})
		}
	}
	l.mu.Unlock()
	for _, started := range running {
		var refusal *client.Refusal
		if _, err := c.Call(ctx, "operator_launch_started", started); err != nil && !errors.As(err, &refusal) {
			return err
		}
	}
	return nil
}

// settle is how long a daemon may take to see that the processes of an earlier
// life are gone.
const settle = 10 * time.Second

// beginRun asks the daemon for the run. It may not have come to know yet that
// the dispatcher of one that is resumed is gone, and its processes with it.
func (l *Launcher) beginRun(ctx context.Context, b *begun) error {
	args := map[string]any{"run": l.run, "root": l.root(), "agents": l.agentNames(), "settings": settings(l.opts.Manifest)}
	if l.opts.Resume {
		args["resume"] = true
	}
	giveUp := time.Now().Add(settle)
	for {
		err := l.link.call(ctx, "operator_run_dispatch", args, b)
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

// mayPass reports whether a refusal is of the moment.
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

// serve does what the daemon orders until nothing is unfinished.
func (l *Launcher) serve(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return l.heedInterrupts(ctx) })
	g.Go(func() error { return l.observe(ctx) })
	g.Go(func() error {
		defer cancel()
		return l.takeOrders(ctx)
	})
	err := g.Wait()
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// ordersWait is how long one call waits for orders.
const ordersWait = 25 * time.Second

func (l *Launcher) takeOrders(ctx context.Context) error {
	for {
		var o orders
		err := l.link.wait(ctx, "operator_launch_next", map[string]any{"run": l.run, "wait_secs": ordersWait.Seconds()}, &o)
		if err != nil {
			return err
		}
		for _, order := range o.Launch {
			l.launch(ctx, order)
		}
		for _, order := range o.Stop {
			l.stop(order)
		}
		if o.Unfinished == 0 {
			return nil
		}
	}
}

// heedInterrupts ends the run step by step, and when its time is up.
func (l *Launcher) heedInterrupts(ctx context.Context) error {
	var patience, limit <-chan time.Time
	if d := seconds(l.opts.Manifest.Run.TimeoutSecs); d > 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		limit = timer.C
	}
	for {
		var err error
		select {
		case <-l.opts.Interrupts:
			l.interrupts++
			switch l.interrupts {
			case 1:
				l.event(Event{Event: Draining, Text: fmt.Sprintf(
					"interrupted: nothing new is started, agents have %v to finish; again to end them now", l.grace)})
				err = l.drain(ctx, "the run was interrupted", false)
				timer := time.NewTimer(l.grace)
				defer timer.Stop()
				patience = timer.C
			case 2:
				err = l.drain(ctx, "the run was interrupted", true)
			default:
				l.kill()
			}
		case <-patience:
			err = l.drain(ctx, "the run was interrupted", true)
		case <-limit:
			l.event(Event{Event: Draining, Text: fmt.Sprintf("the run's time is up, %v", seconds(l.opts.Manifest.Run.TimeoutSecs))})
			err = l.drain(ctx, "the run's time was up", true)
		case <-ctx.Done():
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (l *Launcher) drain(ctx context.Context, reason string, stop bool) error {
	return l.link.call(ctx, "operator_run_drain", map[string]any{"run": l.run, "reason": reason, "stop": stop}, nil)
}

// kill ends every process of the run without another word.
func (l *Launcher) kill() {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.hurry:
		return
	default:
		close(l.hurry)
	}
	for _, a := range l.agents {
		a.ask(stop{Status: "cancelled", Reason: "the run was killed"})
	}
}

// launch starts an actor's process, unless this very order was obeyed before.
func (l *Launcher) launch(ctx context.Context, o launch) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := l.agents[o.ActorID]
	a := newAgentProcess(l, o)
	l.agents[o.ActorID] = a
	l.wg.Go(func() {
		if before != nil {
			// In an earlier life, as a rule, and gone. If not, the daemon
			// did not come to know that it was started, and has voided its
			// token.
			before.disown()
			<-before.done
		}
		a.live(context.WithoutCancel(ctx))
	})
	select {
	case <-l.hurry:
		a.ask(stop{Status: "cancelled", Reason: "the run was killed"})
	default:
	}
}

// stop asks an actor's process to end, those below it first.
func (l *Launcher) stop(o stop) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if a, ok := l.agents[o.ActorID]; ok {
		a.ask(o)
	}
}

// below are the agents in the sub-tree of a lead, itself not among them.
func (l *Launcher) below(path string) (list []*agentProcess) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, a := range l.agents {
		if a.order.Path == path {
			continue
		}
		if path == dispatch.RootPath || strings.HasPrefix(a.order.Path, path+dispatch.Separator) {
			list = append(list, a)
		}
	}
	return list
}

// root is the order of the root actor.
func (l *Launcher) root() order {
	r := l.opts.Manifest.Root
	return order{
		Name: r.Name, Agent: r.Agent, Model: r.Model, Prompt: r.Prompt, Directory: r.Directory,
		Env: r.Env, Timeout: r.TimeoutSecs,
	}
}

func (l *Launcher) agentNames() (names []string) {
	for name := range l.opts.Manifest.Agents {
		names = append(names, name)
	}
	return names
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// event records an event and tells it.
func (l *Launcher) event(e Event) {
	e.Time, e.Run = time.Now().UTC(), l.run
	l.eventMu.Lock()
	defer l.eventMu.Unlock()
	if err := l.opts.Directory.record(e); err != nil {
		e.Text += fmt.Sprintf(" (not recorded: %v)", err)
	}
	if l.opts.Events != nil {
		l.opts.Events(e)
	}
}

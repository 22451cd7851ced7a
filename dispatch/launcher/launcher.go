package launcher

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/dispatch/client"
	"github.com/leasehold/leasehold/dispatch/manifest"
	"github.com/leasehold/leasehold/dispatch/process"
	"github.com/leasehold/leasehold/dispatch/server/tools"
)

// Options of a run.
type Options struct {
	Manifest  *manifest.Manifest
	Directory *Directory
	Resume    bool // resume the run of the directory

	// Leasehold is the path of this program: the watchdog runs it, and agents
	// call it.
	Leasehold string
	Socket    string // of the daemon; "": it is elsewhere

	// Where agents reach a daemon that is elsewhere: the URLs of its servers with commas
	// between them, and the file with the certificate of their authority.
	Servers, Authority string

	// Connect opens an operator's connection to the daemon, and may start a
	// daemon.
	Connect func(context.Context) (*client.Client, error)

	// Events is called with each event after it is recorded, one at a time. It
	// may be nil.
	Events func(Event)

	// Interrupts ask the run to end. The first drains it: nothing more is
	// spawned, and agents may finish within the manifest's grace. After the
	// grace, or at the second interrupt, agents get SIGTERM, and SIGKILL after
	// the same grace again. The third kills them at once.
	Interrupts <-chan struct{}
}

// A Launcher dispatches one run.
type Launcher struct {
	opts     Options
	plan     plan
	machine  string // that it serves the run from; "": it dispatches the run
	labels   []string
	instance string // of this process, at random
	run      string
	runID    string
	life     int
	began    time.Time
	link     *link
	guard    *guard
	grace    time.Duration

	teller *teller
	seen   uint64 // the last recorded revision; used by the goroutine that follows, then by Run

	interrupts int         // number so far; used by the goroutine that heeds them, then by Run
	draining   atomic.Bool // there was one

	parting chan struct{} // closed by part
	parts   sync.Once
	says    sync.Once // what is waited for then

	mu      sync.Mutex
	running int                        // agents whose processes are not gone
	agents  map[string]*agentProcess   // by actor id, until their end is reported
	results map[string]json.RawMessage // by actor id, for those whose end was reported
	kept    map[string]string          // by actor id, why its worktree is kept although it succeeded
	hurry   chan struct{}              // closed when there is no grace any more
	wg      sync.WaitGroup             // one for each agent
}

// Run dispatches a run until its tree is done, and returns how it ended. When
// it returns, no process of the run is left. It returns an error if the run
// could not begin or could not be followed to its end; a failed agent is not an
// error. With an error, the summary only says whether the run was interrupted,
// unless the error is only that the summary could not be written.
func Run(ctx context.Context, opts Options) (Summary, error) {
	l := newLauncher(opts)
	l.run, l.plan = opts.Manifest.Run.Name, planOf(opts.Manifest)
	l.grace = seconds(l.plan.GraceSecs)
	defer l.link.close()
	summary, err := l.dispatch(ctx)
	summary.Interrupted = l.interrupts > 0
	l.teller.close(opts.Interrupts)
	return summary, errors.Join(err, opts.Directory.close())
}

func newLauncher(opts Options) *Launcher {
	l := &Launcher{
		opts: opts, began: time.Now(), instance: rand.Text(), teller: newTeller(opts.Events),
		agents: make(map[string]*agentProcess), hurry: make(chan struct{}), parting: make(chan struct{}),
		results: make(map[string]json.RawMessage), kept: make(map[string]string),
	}
	l.link = newLink(func(ctx context.Context) (connection, error) { return opts.Connect(ctx) }, l.parting)
	l.link.hurried = func() {
		l.says.Do(func() {
			l.event(Event{Event: Draining, Text: fmt.Sprintf("nothing is left running here; the daemon has not answered yet, and is waited for %v at most", 2*lastPatience)})
		})
	}
	if opts.Servers != "" {
		l.link.patience = patienceElsewhere
	}
	return l
}

func (l *Launcher) dispatch(ctx context.Context) (Summary, error) {
	if err := l.unlessInterrupted(ctx, l.begin); err != nil {
		return Summary{}, err
	}
	if err := l.guarded(ctx, l.serve); err != nil {
		return Summary{}, err
	}
	return l.finish(context.WithoutCancel(ctx))
}

// guarded serves a run, and leaves no process of its own behind.
func (l *Launcher) guarded(ctx context.Context, serve func(context.Context) error) error {
	release, err := process.Adopt()
	if err != nil {
		return err
	}
	defer release()
	guard, err := newGuard(l.opts.Leasehold, launcherMark(l.instance), l.grace)
	if err != nil {
		return err
	}
	l.guard = guard
	err = serve(ctx)
	if err != nil {
		l.kill() // nobody is told what they hold
	}
	l.wg.Wait()
	if _, endErr := process.End(context.WithoutCancel(ctx), l.mark(), l.grace); endErr != nil {
		return errors.Join(err, endErr) // the watchdog has another go
	}
	guard.close()
	return err
}

// mark is in the environment of every process that this launcher has started: of the
// run that it dispatches, or, if it is the launcher of a machine, of any run.
func (l *Launcher) mark() string {
	if l.machine != "" {
		return launcherMark(l.instance)
	}
	return runMark(l.runID)
}

// launcherMark is in the environment of every process that a launcher starts. A watchdog
// goes by it: a dispatcher that was killed may have been followed by another, whose
// processes have the mark of the same run.
func launcherMark(instance string) string { return "LEASEHOLD_LAUNCHER=" + instance }

func runMark(runID string) string { return "LEASEHOLD_RUN_ID=" + runID }

// serve carries out the daemon's orders until nothing is unfinished.
func (l *Launcher) serve(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		l.heedInterrupts(ctx, g)
		return nil
	})
	g.Go(func() error {
		l.follow(ctx)
		return nil
	})
	g.Go(func() error {
		err := l.takeOrders(ctx)
		if err == nil {
			cancel() // an error does, and is to be the first
		}
		return err
	})
	return g.Wait()
}

// ordersWait is how long one call waits for orders.
const ordersWait = 25 * time.Second

func (l *Launcher) takeOrders(ctx context.Context) error {
	for {
		var o tools.LaunchOrders
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

// launch starts an actor's process.
func (l *Launcher) launch(ctx context.Context, o tools.Launch) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := l.agents[o.ActorID]
	a := newAgentProcess(l, o)
	l.agents[o.ActorID] = a
	l.running++
	l.wg.Go(func() {
		if before != nil {
			// The daemon does not know that it was started, and has revoked its
			// token; or it is just being removed.
			before.disown()
			<-before.done
		}
		a.live(context.WithoutCancel(ctx))
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.agents[o.ActorID] == a {
			delete(l.agents, o.ActorID) // frees its prompt, among other things
		}
	})
	select {
	case <-l.hurry:
		a.ask(stopOrder("the run was killed"))
	default:
	}
}

// stop asks an actor's process to end, after those below it.
func (l *Launcher) stop(o tools.Stop) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if a, ok := l.agents[o.ActorID]; ok {
		a.ask(o)
	}
}

// below returns the agents in the sub-tree of a lead, without the lead.
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

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

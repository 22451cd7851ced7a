package view

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/spf13/cobra"

	"github.com/leasehold/leasehold/cmd/leasehold/internal/connection"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/exit"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/place"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/terminal"
	"github.com/leasehold/leasehold/dispatch/client"
	"github.com/leasehold/leasehold/queue"
)

// NewTopCommand shows a run live, on the whole terminal.
func NewTopCommand() *cobra.Command {
	var run string
	cmd := place.WithServer(&cobra.Command{
		Use:   "top",
		Short: "Show a run live, on the whole terminal",
		Long: `Show the actors, leases and queues of a run on the whole terminal, as they change. You
can open one actor, one lease with its history, the tasks of one queue, and the output
of an agent that leasehold dispatch launched. You can cancel an actor, revoke a lease
and redrive a queue; top asks before it does so.

Keys: tab or 1 2 3 for actors, leases, queues; arrows, page up, page down, g and G to
move; / to search, esc to end that; a to show or hide the actors that have ended; enter
to open one, l for an agent's output; x to cancel an actor or revoke a lease, d to
redrive a queue; q to quit.`,
		Example: `  leasehold top
  leasehold top --run release-42`,
		Args: cobra.NoArgs,
		RunE: exit.Tidily(func(cmd *cobra.Command, _ []string) error {
			out, ok := terminal.FileOf(cmd.OutOrStdout()) // of which the program asks the size
			if !ok || !terminal.Redraws(out) {
				problem := exit.Usagef("top needs a terminal")
				if ok && terminal.Is(out) {
					problem = exit.Usagef("top needs a terminal that it can redraw, and TERM is %q", os.Getenv("TERM"))
				}
				return exit.Hint(problem, "leasehold tree --watch and leasehold leases --watch print what changes elsewhere")
			}
			link := &topLink{open: func() (*client.Client, error) { return connection.Operator(cmd, false) }}
			defer link.close()
			m := newTop(cmd.Context(), link, run, terminal.PaintFor(out).On)
			if terminal.AwaitForeground(cmd.Context(), out); cmd.Context().Err() != nil {
				return nil
			}
			// When the context ends, for example by SIGTERM or SIGHUP, Run restores the terminal.
			ctx, stop := terminal.UntilQuit(cmd.Context())
			_, err := tea.NewProgram(m, tea.WithContext(ctx), tea.WithoutSignalHandler(),
				tea.WithInput(cmd.InOrStdin()), tea.WithOutput(out)).Run()
			ended := ctx.Err() != nil
			stop()
			if ended && errors.Is(err, tea.ErrProgramKilled) {
				return nil // Ctrl-C ends it normally
			}
			return err
		}),
	})
	RunFlag(cmd, &run)
	return cmd
}

// A topLink is a connection that is opened again after it broke.
type topLink struct {
	open func() (*client.Client, error)

	mu sync.Mutex
	c  *client.Client
}

func (l *topLink) client() (*client.Client, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.c != nil {
		return l.c, nil
	}
	c, err := l.open()
	if err == nil {
		l.c = c
	}
	return c, err
}

func (l *topLink) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.c != nil {
		l.c.Close()
		l.c = nil
	}
}

// call calls a tool. If the connection breaks, the next call opens it again.
func (l *topLink) call(ctx context.Context, tool string, args map[string]any) (client.Answer, error) {
	c, err := l.client()
	if err != nil {
		return client.Answer{}, err
	}
	answer, err := connection.Call(ctx, c, tool, args)
	var refusal *client.Refusal
	if err != nil && !errors.As(err, &refusal) && ctx.Err() == nil {
		l.close()
	}
	return answer, err
}

// A topSeen is the state of a run when it was read.
type topSeen struct {
	at      time.Time
	took    time.Duration // to read it
	problem string        // why the run could not be read
	run     ShownRun
	leases  []shownLease
	more    bool // leases than these
	queues  queueList
}

// look waits until something has changed since the last call, and reads the run.
func (l *topLink) look(ctx context.Context, run string) (topSeen, error) {
	for {
		answer, err := l.call(ctx, "operator_watch", nil)
		if err != nil {
			return topSeen{}, err
		}
		if news, err := connection.Decode[struct{ Changed bool }](answer.Object); err != nil || news.Changed {
			break
		}
	}
	of := map[string]any{"run": run}
	var seen topSeen
	began := time.Now()
	answer, err := l.call(ctx, "operator_tree", of)
	if connection.IsCode(err, "NOT_FOUND") {
		var advice exit.Hinted
		seen.problem = err.Error()
		if errors.As(err, &advice) {
			seen.problem += "; " + advice.Hint
		}
		return seen, nil
	}
	if err != nil {
		return topSeen{}, err
	}
	list, err := connection.Decode[struct{ Runs []ShownRun }](answer.Object)
	if err != nil {
		return topSeen{}, err
	}
	for _, r := range ordered(list.Runs) {
		seen.run = r
	}
	if answer, err = l.call(ctx, "operator_leases", of); err != nil {
		return topSeen{}, err
	}
	seen.at = time.Now()
	held, err := connection.Decode[leaseList](answer.Object)
	if err != nil {
		return topSeen{}, err
	}
	seen.leases, seen.more = held.all(), held.Next != ""
	answer, err = l.call(ctx, "operator_queue_stats", map[string]any{"run": run, "limit": queue.MaxStats})
	if err != nil {
		return topSeen{}, err
	}
	seen.queues, err = connection.Decode[queueList](answer.Object)
	seen.took = time.Since(began)
	return seen, err
}

// The messages that a top handles.
type (
	topLook  struct{}               // read the run now
	topClock struct{}               // a second has passed
	topLost  struct{ cause string } // the daemon cannot be reached
	topDone  struct{ what string }  // the result of an action
	topPage  struct {               // the text of a page
		of    *topDetail
		lines []string
	}
	topHistory struct { // the events of a lease after a revision
		of          *topDetail
		since, next uint64
		more        bool
		events      []shownEvent
	}
)

// A topTab is one of the lists.
type topTab int

const (
	topActors topTab = iota
	topLeases
	topQueues
	topTabs
)

func (t topTab) String() string { return [...]string{"actors", "leases", "queues"}[t] }

// A top is the state of the screen.
type top struct {
	ctx  context.Context // a Model's methods are given none
	link *topLink
	name string // of the run
	on   bool   // colours are on

	width, height int
	seen          topSeen
	lost          string // why the daemon cannot be reached

	tab    topTab
	chosen [topTabs]string // the id of the chosen row
	search string
	typing bool // keys go to search
	all    bool // the actors that have ended are shown, too

	detail   *topDetail // nil: a list is shown
	question *topQuestion
	said     string // the result of the last action
}

// actors returns the actors to show, and how many have ended and may be hidden. All actors
// of a run that has ended are shown.
func (m *top) actors() (shown []ShownActor, ended int) {
	r := m.seen.run
	if r.EndedAt != nil {
		return r.Actors, 0
	}
	for _, a := range r.Actors {
		if a.EndedAt != nil {
			ended++
		}
		if m.all || a.EndedAt == nil {
			shown = append(shown, a)
		}
	}
	return shown, ended
}

// A topDetail is the page of one actor, lease or queue.
type topDetail struct {
	tab    topTab
	id     string
	logs   bool // the output of an actor
	lines  []string
	scroll int
	moved  bool // the user has scrolled, so the page does not follow the end

	history []shownEvent // the events of a lease
	since   uint64       // the revision up to which history is read
}

// A topQuestion is asked before an action that cannot be undone.
type topQuestion struct {
	text string
	tool string
	args map[string]any
}

func newTop(ctx context.Context, link *topLink, run string, on bool) *top {
	return &top{ctx: ctx, link: link, name: run, on: on, width: 80, height: 24}
}

func (m *top) Init() tea.Cmd { return tea.Batch(m.looks, clock()) }

func clock() tea.Cmd {
	return tea.Tick(time.Second, func(time.Time) tea.Msg { return topClock{} })
}

// looks reads the run, and returns a message with the result.
func (m *top) looks() tea.Msg {
	seen, err := m.link.look(m.ctx, m.name)
	if err != nil {
		return topLost{err.Error()}
	}
	return seen
}

func (m *top) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
	case topLook:
		return m, m.looks
	case topSeen:
		m.seen, m.lost = msg, ""
		return m, tea.Batch(m.readPage(), tea.Tick(pauseAfter(msg.took), func(time.Time) tea.Msg { return topLook{} }))
	case topLost:
		m.lost = msg.cause
		return m, tea.Tick(daemonPoll, func(time.Time) tea.Msg { return topLook{} })
	case topClock:
		if m.detail != nil && m.detail.logs {
			return m, tea.Batch(m.readPage(), clock())
		}
		return m, clock()
	case topPage:
		if msg.of == m.detail {
			m.detail.lines = msg.lines
		}
	case topHistory:
		if msg.of == m.detail && msg.since == m.detail.since {
			m.detail.since, m.detail.history = msg.next, append(m.detail.history, msg.events...)
			if msg.more {
				return m, m.readPage()
			}
		}
	case topDone:
		m.said = msg.what
	case tea.KeyPressMsg:
		return m, m.press(msg)
	}
	return m, nil
}

// do carries out the action of a question.
func (m *top) do(q *topQuestion) tea.Cmd {
	return func() tea.Msg {
		answer, err := m.link.call(m.ctx, q.tool, q.args)
		if err != nil {
			return topDone{err.Error()}
		}
		return topDone{answer.Line()}
	}
}

func (m *top) View() tea.View {
	v := tea.NewView(m.draw())
	v.AltScreen = true
	v.WindowTitle = fmt.Sprintf("leasehold: run %s", m.name)
	return v
}

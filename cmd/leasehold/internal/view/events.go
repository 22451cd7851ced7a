package view

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/leasehold/leasehold/cmd/leasehold/internal/connection"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/exit"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/place"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/terminal"
	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/dispatch/client"
)

// exitCompacted is the exit code if some of the requested events are no longer kept.
const exitCompacted = 3

// A stream selects events of a run, and says how to show them.
type stream struct {
	args   map[string]any
	since  uint64
	follow bool
	connection.Reply
}

func NewEventsCommand() *cobra.Command {
	var run, key, actor string
	var s stream
	cmd := place.WithServer(&cobra.Command{
		Use:   "events",
		Short: "Show what happened in a run",
		Long: `Show what happened in a run, in order: who was granted a lease, waited for it,
released or lost it; which writes were refused; which sessions and actors began and
ended; and what happened to tasks.

Each event has a revision. If you pass the last one that you saw to --since, you miss
no event, even across a restart of the daemon. Exit code 3: some of the events after
that revision are no longer kept.`,
		Example: `  leasehold events --follow
  leasehold events --key file:src/app.ts
  leasehold events --since 4 --json | jq -r '.revision'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s.args = map[string]any{"run": run, "key": key, "actor": dispatch.PathOf(actor)}
			return s.run(cmd)
		},
	})
	f := cmd.Flags()
	RunFlag(cmd, &run)
	f.BoolVarP(&s.follow, "follow", "f", false, "keep showing new events, until Ctrl-C")
	f.BoolVar(&s.follow, "watch", false, "the same as --follow")
	f.Uint64Var(&s.since, "since", 0, "only what came after this `revision`")
	f.StringVar(&key, "key", "", "only what concerns the lease or task with this `key`")
	f.StringVar(&actor, "actor", "", "only what concerns the actor at this `path`")
	s.Flag(cmd, "print JSON, one event per line")
	CompleteWith(cmd, "actor", completeAllActors)
	CompleteWith(cmd, "key", CompleteLeases)
	return cmd
}

func NewHistoryCommand() *cobra.Command {
	var run, layer string
	var which leaseKey
	var s stream
	cmd := place.WithServer(&cobra.Command{
		Use:   "history [KEY | --path PATH]",
		Short: "Show what happened to a lease or a task",
		Long: `Show what happened to a lease of the run, in order: who was granted it, waited for
it, released or lost it, when and why. With --layer it is a lease of a layer.
KEY may also be the id of a task.`,
		Example: `  leasehold history file:src/app.ts
  leasehold history --path src/app.ts
  leasehold history output.json --layer S1`,
		RunE: func(cmd *cobra.Command, args []string) error {
			key, err := which.of(args, layer)
			if err != nil {
				return err
			}
			s.args = map[string]any{"run": run, "key": key, "scope": "run"}
			if layer != "" {
				s.args["scope"], s.args["layer"] = "layer", dispatch.PathOf(layer)
			}
			return s.run(cmd)
		},
	})
	f := cmd.Flags()
	RunFlag(cmd, &run)
	which.flag(cmd)
	f.StringVar(&layer, "layer", "", "a lease of the layer of the lead at this `path`")
	s.Flag(cmd, "print JSON, one event per line")
	CompleteWith(cmd, "layer", CompleteLeads)
	cmd.ValidArgsFunction = First(CompleteLeases)
	return cmd
}

// shownEvent is an event in the format of operator_events.
type shownEvent struct {
	Revision uint64
	At       time.Time
	Event    string
	Text     string
}

type eventPage struct {
	Events []json.RawMessage
	Next   uint64
	More   bool
}

func (s *stream) run(cmd *cobra.Command) error {
	ctx, out := cmd.Context(), cmd.OutOrStdout()
	if s.follow {
		terminal.EndUnread(out)
	}
	err := show(cmd, s.follow, func() error {
		if s.follow {
			return nil
		}
		return s.nothing(out)
	}, func(c *client.Client) error {
		err := s.copy(ctx, c, out, cmd.ErrOrStderr()) // s.since continues with the next daemon without a gap
		if s.follow && ctx.Err() != nil {
			return nil // Ctrl-C ends it normally
		}
		return err
	})
	if nobodyYet(cmd, s.args, err) {
		return s.nothing(out)
	}
	return s.Refused(cmd, explained(err))
}

// explained adds a hint to err if it says that events are no longer kept.
func explained(err error) error {
	if connection.IsCode(err, "COMPACTED") {
		return exit.WithCode(exit.Hint(err, "leave out --since, to see what is kept"), exitCompacted)
	}
	return err
}

// copy shows the events after s.since. If it follows, it also waits for new ones.
func (s *stream) copy(ctx context.Context, c *client.Client, out, stderr io.Writer) error {
	var table *terminal.Table
	defer func() {
		if table != nil {
			_, _ = io.WriteString(out, table.Render(terminal.PaintFor(out))) // shown before an error, too
		}
	}()
	for more := true; more || s.follow; {
		s.args["since"], s.args["wait_secs"] = s.since, 0
		if s.follow && !more {
			s.args["wait_secs"] = 50
		}
		answer, err := connection.Call(ctx, c, "operator_events", s.args)
		if s.follow && connection.IsCode(err, "NOT_FOUND") {
			if err := connection.Pause(ctx, daemonPoll); err != nil { // nobody has joined the run yet
				return err
			}
			continue
		}
		if err != nil {
			return err
		}
		page, err := connection.Decode[eventPage](answer.Object)
		if err != nil {
			return err
		}
		for _, raw := range page.Events {
			e, err := connection.Decode[shownEvent](raw)
			if err != nil {
				return err
			}
			switch at := e.At.Local().Format("2006-01-02 15:04:05 -07:00"); {
			case s.JSON:
				_, err = fmt.Fprintf(out, "%s\n", raw)
			case s.follow:
				p := terminal.PaintFor(out)
				_, err = fmt.Fprintf(out, "%s  %s\n", p.Dim(fmt.Sprintf("%6d  %s", e.Revision, at)), terminal.Line(out, e.Text))
			default:
				if table == nil {
					table = newEventTable()
				}
				table.AddTexts(strconv.FormatUint(e.Revision, 10), at, e.Event, e.Text)
			}
			if err != nil {
				return err
			}
		}
		s.since, more = page.Next, page.More
	}
	if table != nil {
		return nil
	}
	if hint := s.meant(ctx, c); hint != "" && !s.JSON {
		fmt.Fprintf(stderr, "hint: %s\n", hint)
	}
	return s.nothing(out)
}

// meant suggests what may have been meant by a name about which there are no events.
func (s *stream) meant(ctx context.Context, c *client.Client) string {
	name := func(argument string) string { text, _ := s.args[argument].(string); return text }
	if actor := name("actor"); actor != "" {
		return connection.MeantActor(ctx, c, name("run"), actor)
	}
	of := map[string]any{"run": name("run")}
	if scope := name("scope"); scope != "" {
		of["scope"], of["layer"] = scope, name("layer")
	}
	if layer := name("layer"); layer != "" {
		if near := connection.MeantActor(ctx, c, name("run"), layer); near != "" {
			return near
		}
	}
	return connection.MeantLease(ctx, c, of, name("key"))
}

// nothing prints that there are no events. For JSON it prints nothing.
func (s *stream) nothing(out io.Writer) error {
	if s.JSON {
		return nil
	}
	_, err := fmt.Fprintln(out, "no events")
	return err
}

func newEventTable() *terminal.Table {
	return &terminal.Table{Columns: []terminal.Column{
		{Head: "REVISION", Rank: terminal.Minor + 2},
		{Head: "TIME", Rank: terminal.Minor},
		{Head: "EVENT", Rank: terminal.Minor + 1},
		{Head: "WHAT", Want: 30, Bare: 16},
	}}
}

package tree

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/leasehold/leasehold/cmd/leasehold/internal/connection"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/terminal"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/view"
	"github.com/leasehold/leasehold/dispatch/launcher"
	"github.com/leasehold/leasehold/engine/event"
)

// A display shows a run while it is dispatched.
type display struct {
	event func(launcher.Event)
	close func() error
}

// display returns the display of this job: on a terminal the tree, redrawn in
// place, and otherwise a line for each event.
func (j *dispatchJob) display(cmd *cobra.Command, run string, daemon *runDaemon) display {
	out := cmd.OutOrStdout()
	switch {
	case j.json:
		enc := json.NewEncoder(out)
		return display{func(e launcher.Event) { _ = enc.Encode(e) }, func() error { return nil }}
	case terminal.Redraws(out) && !j.logs:
		return treeView(cmd.Context(), out, run, daemon)
	}
	lines := &lineView{out: out, began: time.Now()}
	if !j.logs {
		return display{lines.event, func() error { return nil }}
	}
	logs := newLogView(lines)
	return display{func(e launcher.Event) {
		logs.before(e)
		lines.event(e)
		logs.after(e)
	}, logs.close}
}

// treeView draws the run in place, like leasehold tree --watch, from its first
// event until close.
func treeView(ctx context.Context, out io.Writer, run string, daemon *runDaemon) display {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	started := false
	l := view.TreeLook(run, true)
	return display{
		event: func(e launcher.Event) {
			if started {
				return
			}
			started = true
			go func() { // ends with close
				defer close(done)
				for {
					if c, err := daemon.connect(ctx); err == nil {
						_ = l.Follow(ctx, c, out, false) // until the run is over, or the connection is lost
						c.Close()
					}
					if connection.Pause(ctx, time.Second) != nil { // else the daemon is away
						return
					}
				}
			}()
		},
		close: func() error {
			cancel()
			if started {
				<-done
			}
			return nil
		},
	}
}

// A lineView prints events as lines.
type lineView struct {
	out   io.Writer
	began time.Time
}

func (v *lineView) event(e launcher.Event) {
	switch e.Event {
	case event.ActorEnded.String():
		if e.Ordered { // ActorExited tells it
			return
		}
	case event.SessionBegan.String(), event.SessionEnded.String(), event.ActorBegan.String():
		return // the dispatch tells of processes
	}
	v.line(e.Time, e.Text)
}

func (v *lineView) line(at time.Time, text string) {
	d := max(at.Sub(v.began), 0)
	fmt.Fprintf(v.out, "%02d:%06.3f  %s\n", int(d.Minutes()), (d % time.Minute).Seconds(), terminal.Printable(text))
}

// drawSummary formats a summary.
func drawSummary(s launcher.Summary, p terminal.Paint) string {
	var b strings.Builder
	var list []string
	for _, status := range slices.Sorted(maps.Keys(s.Counts)) {
		list = append(list, fmt.Sprintf("%d %s", s.Counts[status], strings.ReplaceAll(status, "_", " ")))
	}
	run, counts := "run "+terminal.Printable(s.Run), strings.Join(list, ", ")
	fmt.Fprintf(&b, "\n%s %s in %s", p.Bold(run+":"), counts, terminal.Brief(s.FinishedAt.Sub(s.StartedAt)))
	if s.CostUSD > 0 {
		fmt.Fprintf(&b, ", $%.2f", s.CostUSD)
	}
	if s.Interrupted {
		b.WriteString(", interrupted")
	}
	b.WriteString("\n")
	t := terminal.Table{Columns: []terminal.Column{
		{Head: "ACTOR", Want: 18, Bare: 10, Left: true},
		{Head: "AGENT", Rank: terminal.Minor + 2},
		{Head: "STATUS"},
		{Head: "TOOK", Rank: terminal.Minor},
		{Head: "COST", Rank: terminal.Minor + 1},
		{Head: "RESULT", Want: 24, Bare: 10},
	}}
	actors := slices.SortedFunc(slices.Values(s.Actors), func(a, b launcher.Actor) int { return cmp.Compare(view.Numbered(a.Path), view.Numbered(b.Path)) })
	for _, a := range actors {
		t.Rows = append(t.Rows, summaryRow(a))
	}
	b.WriteString(t.Render(p))
	for _, a := range actors {
		if a.Worktree != "" {
			fmt.Fprintf(&b, "worktree of %s: %s", terminal.Printable(a.Path), terminal.Printable(a.Worktree))
			if a.Kept != "" {
				fmt.Fprintf(&b, " (%s)", terminal.Printable(a.Kept))
			}
			b.WriteString("\n")
		}
	}
	if first, ok := s.FirstFailed(); ok && !s.Interrupted { // a long table makes the counts scroll away
		cause := cmp.Or(first.Cause, strings.ReplaceAll(first.Status, "_", " "))
		fmt.Fprintf(&b, "%s failed: %s; the first to fail was %s: %s\n", run, counts, terminal.Printable(first.Path), terminal.Clip(terminal.Printable(cause), causeWidth))
	}
	fmt.Fprintf(&b, "run directory: %s\n", s.Directory)
	return b.String()
}

// resultWidth is the greatest width of a result in the table.
const resultWidth = 60

// causeWidth is the greatest width of the cause of a failure below the table.
const causeWidth = 200

func summaryRow(a launcher.Actor) terminal.Row {
	took, cost := "-", "-"
	if a.StartedAt != nil && a.FinishedAt != nil {
		took = terminal.Brief(a.FinishedAt.Sub(*a.StartedAt))
	}
	if a.CostUSD != nil {
		cost = fmt.Sprintf("$%.2f", *a.CostUSD)
	}
	said := a.Cause
	if a.Status == "succeeded" {
		said = resultText(a.Result)
	}
	status := strings.ReplaceAll(a.Status, "_", " ")
	if status == "" {
		status = "joined"
	}
	row := terminal.TextRow(a.Path, a.Agent, status, took, cost, terminal.Clip(said, resultWidth))
	row.Dim = a.Status == "cancelled"
	return row
}

// resultText returns a result in one line: a string unquoted, anything else as
// JSON.
func resultText(result json.RawMessage) string {
	var text string
	if json.Unmarshal(result, &text) != nil {
		text = string(result)
	}
	return strings.Join(strings.Fields(text), " ")
}

package view

import (
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/leasehold/leasehold/cmd/leasehold/internal/connection"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/terminal"
	"github.com/leasehold/leasehold/dispatch"
)

func NewTreeCommand() *cobra.Command {
	var run string
	var all bool
	l := &look{}
	cmd := l.flags(&cobra.Command{
		Use:   "tree",
		Short: "Show the runs and their actors",
		Long: `Show the runs and their actors: what each is and does, which leases it holds and
waits for, how old it is, and the directory, branch and pid of its client, as far as
they are known. An actor that is away has a session, but is not connected. Actors and
runs that have ended are left out without --all, except for the run that --run names;
--json always lists them all.`,
		Example: `  leasehold tree --watch
  leasehold tree --run release-42 --all
  leasehold tree --json | jq '.runs[].actors[] | select(.state == "connected").path'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			asked := TreeLook(run, all)
			asked.Reply, asked.watch = l.Reply, l.watch
			if l.JSON {
				delete(asked.args, "ended")
			}
			return asked.run(cmd)
		},
	})
	cmd.Flags().StringVar(&run, "run", "", "`name` of the run (default all)")
	CompleteWith(cmd, "run", CompleteRuns)
	cmd.Flags().BoolVar(&all, "all", false, "include those that have ended")
	return cmd
}

// TreeLook shows a run. If run is "", it shows all runs.
func TreeLook(run string, all bool) *look {
	l := &look{title: "runs", tool: "operator_tree", empty: `{"runs":[]}`, args: map[string]any{}}
	if run != "" {
		l.title = "run " + run
		l.args["run"] = run
	}
	if !all { // of what has ended there may be very much
		l.args["ended"] = false
	}
	l.draw = func(object json.RawMessage, _ time.Duration, p terminal.Paint) (string, error) {
		return drawRuns(object, all, p)
	}
	return l
}

// ShownRun is a run in the format of operator_tree.
type ShownRun struct {
	Run       string
	CreatedAt time.Time  `json:"created_at"`
	EndedAt   *time.Time `json:"ended_at"`
	Actors    []ShownActor
	Ended     int // actors that are left out
	Count     int `json:"actor_count"`
	Life      int // 0: nobody has dispatched it

	Interrupted bool
}

// shownRuns is an answer of operator_tree.
type shownRuns struct {
	Runs  []ShownRun
	Ended int // runs that are left out
}

// ordered sorts runs and their actors by name. W10 comes after W2.
func ordered(runs []ShownRun) []ShownRun {
	slices.SortFunc(runs, func(a, b ShownRun) int { return cmp.Compare(Numbered(a.Run), Numbered(b.Run)) })
	for _, r := range runs {
		slices.SortFunc(r.Actors, func(a, b ShownActor) int { return cmp.Compare(Numbered(a.Path), Numbered(b.Path)) })
	}
	return runs
}

var number = regexp.MustCompile(`[0-9]+`)

// Numbered returns a text by which a path is sorted: numbers have equal widths, the root
// comes first, and an actor is before those below it. No two paths have the same text.
func Numbered(path string) string {
	if path == dispatch.RootPath {
		return ""
	}
	path = number.ReplaceAllStringFunc(path, func(n string) string {
		return strings.Repeat("0", max(0, 20-len(n))) + n + string(rune(len(n)))
	})
	return strings.ReplaceAll(path, dispatch.Separator, "\x00")
}

// leftOut says how many runs are left out, if there are any.
func (l shownRuns) leftOut(p terminal.Paint) string {
	if l.Ended == 0 {
		return ""
	}
	return p.Dim(terminal.Plural(l.Ended, "run")+" ended; --all shows them too") + "\n"
}

func drawRuns(object json.RawMessage, all bool, p terminal.Paint) (string, error) {
	list, err := connection.Decode[shownRuns](object)
	if err != nil {
		return "", err
	}
	var blocks []string
	for _, r := range ordered(list.Runs) {
		blocks = append(blocks, drawRun(r, all, p))
	}
	if left := list.leftOut(p); left != "" {
		blocks = append(blocks, left)
	}
	if len(blocks) == 0 {
		return "no runs\n", nil
	}
	return strings.Join(blocks, "\n"), nil
}

func drawRun(r ShownRun, all bool, p terminal.Paint) string {
	title := fmt.Sprintf("run %s, %s old", terminal.Printable(r.Run), terminal.Brief(time.Since(r.CreatedAt)))
	if r.EndedAt != nil {
		title = fmt.Sprintf("run %s, ended %s ago", terminal.Printable(r.Run), terminal.Brief(time.Since(*r.EndedAt)))
		all = true
	}
	if r.Interrupted {
		title += ", interrupted"
	}
	shown := r.Actors
	if !all {
		shown = nil
		for _, a := range r.Actors {
			if a.EndedAt == nil {
				shown = append(shown, a)
			}
		}
	}
	text := title + "\n" + drawActors(shown).Render(p)
	if hidden := r.Ended + len(r.Actors) - len(shown); hidden > 0 {
		text += p.Dim(terminal.Plural(hidden, "actor")+" ended; --all shows them too") + "\n"
	}
	return text
}

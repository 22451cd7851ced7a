package view

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/leasehold/leasehold/cmd/leasehold/internal/terminal"
	"github.com/leasehold/leasehold/dispatch"
)

type ShownActor struct {
	Name      string
	Role      string
	Path      string
	State     string
	Leases    int
	Waiting   int
	Holds     []shownStand
	WaitsFor  []shownStand `json:"waits_for"`
	CreatedAt time.Time    `json:"created_at"`
	EndedAt   *time.Time   `json:"ended_at"`
	EndCause  string       `json:"end_cause"`

	// For an actor that was launched:
	Agent      string
	Machine    string
	Label      string // of the machines that it may run on, until one is chosen
	Model      string
	Status     string
	Stopping   string
	StartedAt  *time.Time `json:"started_at"`
	FinishedAt *time.Time `json:"finished_at"`
	Cause      string
	SpentUSD   *float64 `json:"spent_usd"`
	BudgetUSD  *float64 `json:"budget_usd"`

	shownOrigin
}

type shownStand struct {
	Key    string
	Queue  string // of a claim on a task, whose id Key is
	Holder string

	Reserved bool // for Holder; nobody holds it
}

// idEnd is how many characters of an id are shown. They are taken from its end, because
// ids that are made at the same time begin alike.
const idEnd = 8

func (s shownStand) String() string {
	if s.Queue == "" {
		return s.Key
	}
	return fmt.Sprintf("task %s of %s", terminal.ClipLeft(s.Key, idEnd+1), s.Queue)
}

// drawActors returns the table of a tree.
func drawActors(shown []ShownActor) *terminal.Table {
	t := &terminal.Table{Columns: []terminal.Column{
		{Head: "ACTOR", Want: 18, Bare: 10},
		{Head: "ROLE", Rank: terminal.Minor + 2},
		{Head: "STATE"},
		{Head: "HOLDS", Want: 16, Bare: 8, Left: true},
		{Head: "WAITS FOR", Want: 14, Bare: 9, Left: true},
		{Head: "AGE", Rank: terminal.Minor + 1},
		{Head: "COST", Rank: terminal.Minor + 3, Optional: true},
		{Head: "NOTE", Rank: terminal.Minor, Want: 20, Optional: true},
		{Head: "MACHINE", Rank: terminal.Minor, Want: 12, Optional: true},
		{Head: "WHERE", Rank: terminal.Minor + 3, Want: 16, Left: true, Optional: true},
	}}
	branches := branchesOf(shown)
	for i, a := range shown {
		name := a.Name
		if a.Path == dispatch.RootPath && a.Name != a.Path {
			name = strings.TrimSpace(dispatch.RootPath + " " + a.Name)
		}
		cells := []terminal.Cell{
			terminal.Text(branches[i] + name), terminal.Text(a.Role), terminal.Text(a.state()), a.holds(), a.waitsFor(), terminal.Text(a.age()),
			terminal.Text(a.cost()), terminal.Text(terminal.Clip(a.note(), maxShownValue)), terminal.Text(a.machine()), terminal.Text(a.shownOrigin.String()),
		}
		t.Rows = append(t.Rows, terminal.Row{Cells: cells, Dim: a.EndedAt != nil})
	}
	return t
}

// state returns the status of a launched actor, and the state of any other one.
func (a ShownActor) state() string {
	switch {
	case a.Status == "running" && a.Stopping != "":
		return "stopping"
	case a.Status != "":
		return strings.ReplaceAll(a.Status, "_", " ")
	default:
		return a.State
	}
}

// machine returns the machine of an actor, or the label of those on which it may run. It
// is empty if the actor runs where the run is dispatched.
func (a ShownActor) machine() string {
	if a.Label != "" {
		return "any " + a.Label
	}
	return a.Machine
}

func (a ShownActor) note() string {
	switch {
	case a.EndedAt == nil:
		return a.Stopping
	case a.Status == "":
		return a.EndCause
	default:
		return a.Cause // state shows how it ended
	}
}

func (a ShownActor) age() string {
	switch {
	case a.StartedAt != nil && a.FinishedAt != nil:
		return terminal.Brief(a.FinishedAt.Sub(*a.StartedAt))
	case a.StartedAt != nil:
		return terminal.Brief(time.Since(*a.StartedAt))
	default:
		return terminal.Brief(time.Since(a.CreatedAt))
	}
}

func (a ShownActor) cost() string {
	switch {
	case a.SpentUSD == nil && a.BudgetUSD == nil:
		return "-"
	case a.BudgetUSD == nil:
		return fmt.Sprintf("$%.2f", *a.SpentUSD)
	case a.SpentUSD == nil:
		return fmt.Sprintf("of $%.2f", *a.BudgetUSD)
	default:
		return fmt.Sprintf("$%.2f of $%.2f", *a.SpentUSD, *a.BudgetUSD)
	}
}

// keyWidth limits the width of a key in a table of actors.
const keyWidth = 40

func (a ShownActor) holds() terminal.Cell {
	var names, tasks, queues []string
	for _, l := range a.Holds {
		if l.Queue == "" {
			names = append(names, terminal.ClipLeft(l.Key, keyWidth))
			continue
		}
		tasks = append(tasks, l.String())
		if !slices.Contains(queues, l.Queue) {
			queues = append(queues, l.Queue)
		}
	}
	cell := terminal.Several(names, a.Leases-len(tasks))
	if tasks == nil {
		return cell
	}
	claims := terminal.Plural(len(tasks), "task")
	return cell.Last(strings.Join(tasks, ", "), claims+" of "+strings.Join(queues, ", "), claims)
}

func (a ShownActor) waitsFor() terminal.Cell {
	var names []string
	for _, l := range a.WaitsFor {
		names = append(names, fmt.Sprintf("%s (%s%s)", terminal.ClipLeft(l.String(), keyWidth), pick(l.Reserved, reservedFor, ""), l.Holder))
	}
	return terminal.Several(names, a.Waiting)
}

// count returns n as text, or "-" for 0, so that other numbers are easy to see.
func count(n int) string {
	if n == 0 {
		return "-"
	}
	return strconv.Itoa(n)
}

// branchesOf returns the lines to draw before each actor of a tree. Each lead comes before
// its layer.
func branchesOf(actors []ShownActor) []string {
	branches := make([]string, len(actors))
	more := map[int]bool{} // by depth: whether a sibling follows
	for i := len(actors) - 1; i >= 0; i-- {
		depth := depthOf(actors[i].Path)
		if depth == 0 {
			continue
		}
		var b strings.Builder
		for d := 1; d < depth; d++ {
			b.WriteString(pick(more[d], "│  ", "   "))
		}
		b.WriteString(pick(more[depth], "├─ ", "└─ "))
		branches[i] = b.String()
		more[depth] = true
		for d := range more {
			if d > depth {
				delete(more, d)
			}
		}
	}
	return branches
}

func depthOf(path string) int {
	if path == dispatch.RootPath {
		return 0
	}
	return 1 + strings.Count(path, dispatch.Separator)
}

func pick(is bool, yes, no string) string {
	if is {
		return yes
	}
	return no
}

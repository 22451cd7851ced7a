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

	// Of one that was launched.
	Status     string
	Stopping   string
	StartedAt  *time.Time `json:"started_at"`
	FinishedAt *time.Time `json:"finished_at"`
	Cause      string
	SpentUSD   *float64 `json:"spent_usd"`
	BudgetUSD  *float64 `json:"budget_usd"`
}

type shownStand struct {
	Scope  string
	Key    string
	Holder string
}

// drawActors is a table of a tree. Money has a column where there is any.
func drawActors(shown []ShownActor) *terminal.Table {
	money := slices.ContainsFunc(shown, func(a ShownActor) bool { return a.SpentUSD != nil || a.BudgetUSD != nil })
	t := &terminal.Table{Head: []string{"ACTOR", "ROLE", "STATE", "HOLDS", "WAITS FOR", "AGE"}}
	if money {
		t.Head = append(t.Head, "COST")
	}
	t.Head = append(t.Head, "")
	branches := branchesOf(shown)
	for i, a := range shown {
		name := a.Name
		if a.Path == dispatch.RootPath && a.Name != a.Path {
			name = strings.TrimSpace(dispatch.RootPath + " " + a.Name)
		}
		cells := []string{branches[i] + name, a.Role, a.state(), a.holds(), a.waitsFor(), a.age()}
		if money {
			cells = append(cells, a.cost())
		}
		t.Rows = append(t.Rows, terminal.Row{Cells: append(cells, terminal.Clip(a.note(), noteWidth)), Dim: a.EndedAt != nil})
	}
	return t
}

// noteWidth is how many runes of a cause a table shows.
const noteWidth = 50

// state is what an actor that was launched does, and whether another is there.
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

func (a ShownActor) note() string {
	switch {
	case a.EndedAt == nil:
		return a.Stopping
	case a.Status == "":
		return a.EndCause
	default:
		return a.Cause // what it ended as is its state
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

// keysShown is how many leases of an actor a table names.
const keysShown = 2

func (a ShownActor) holds() string {
	var names []string
	for _, l := range a.Holds {
		names = append(names, terminal.Clip(l.Key, keyWidth))
	}
	return someOf(names, a.Leases)
}

func (a ShownActor) waitsFor() string {
	var names []string
	for _, l := range a.WaitsFor {
		names = append(names, fmt.Sprintf("%s (%s)", terminal.Clip(l.Key, keyWidth), l.Holder))
	}
	return someOf(names, a.Waiting)
}

// keyWidth is how many runes of a key a table of actors shows.
const keyWidth = 30

// someOf are the first names, and how many more of n there are.
func someOf(names []string, n int) string {
	if n == 0 {
		return "-"
	}
	names = names[:min(len(names), keysShown)]
	if more := n - len(names); more > 0 {
		names = append(names, fmt.Sprintf("+%d", more))
	}
	return strings.Join(names, ", ")
}

// count leaves out zeros, so that the eye finds what is not.
func count(n int) string {
	if n == 0 {
		return "-"
	}
	return strconv.Itoa(n)
}

// branchesOf draws the lines before each actor of a tree in which each lead
// stands before its layer.
func branchesOf(actors []ShownActor) []string {
	branches := make([]string, len(actors))
	more := map[int]bool{} // by depth: a sibling follows below
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

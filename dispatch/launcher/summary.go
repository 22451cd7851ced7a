package launcher

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/dispatch/server/wire"
)

// A Summary is the result of a run.
type Summary struct {
	Run         string         `json:"run"`
	RunID       string         `json:"run_id"`
	Life        int            `json:"life"`
	Interrupted bool           `json:"interrupted"`
	StartedAt   time.Time      `json:"started_at"` // of this life
	FinishedAt  time.Time      `json:"finished_at"`
	CostUSD     float64        `json:"cost_usd"` // of all actors that there were
	Counts      map[string]int `json:"counts"`   // actors by status
	Directory   string         `json:"directory"`
	Actors      []Actor        `json:"actors"` // each lead before its layer; the last of each path
}

// Failed reports whether an actor failed, so that the run was not finished.
func (s Summary) Failed() bool { return slices.ContainsFunc(s.Actors, Actor.failed) }

// FirstFailed returns the actor that failed first, if one did.
func (s Summary) FirstFailed() (first Actor, ok bool) {
	for _, a := range s.Actors {
		if a.failed() && (!ok || a.FinishedAt != nil && first.FinishedAt != nil && a.FinishedAt.Before(*first.FinishedAt)) {
			first, ok = a, true
		}
	}
	return first, ok
}

// failed reports whether an actor failed. The root has also failed if it was cancelled.
// Another actor that was cancelled, by its lead or because its lead ended, has not.
func (a Actor) failed() bool {
	switch a.Status {
	case "", "succeeded":
		return false
	case "cancelled":
		return a.Role == string(dispatch.Root)
	}
	return true
}

// finish ends the run and returns its summary, which it also writes to the
// directory.
func (l *Launcher) finish(ctx context.Context) (Summary, error) {
	if err := l.fetchResults(ctx); err != nil {
		return Summary{}, err
	}
	var over struct {
		Actors []Actor `json:"actors"`
	}
	if err := l.link.call(ctx, "operator_run_finish", map[string]any{"run": l.run}, &over); err != nil {
		return Summary{}, err
	}
	if err := l.catchUp(ctx); err != nil {
		return Summary{}, err
	}
	s := Summary{
		Run: l.run, RunID: l.runID, Life: l.life, Interrupted: l.interrupts > 0,
		StartedAt: l.began.UTC(), FinishedAt: time.Now().UTC(),
		Counts: map[string]int{}, Directory: l.opts.Directory.Path, Actors: over.Actors,
	}
	for i, a := range s.Actors {
		s.Actors[i].Result, s.Actors[i].Kept = l.results[a.ActorID], wire.Informative(l.kept[a.ActorID])
		if a.Worktree == "" { // perhaps nobody was there to tell of it
			s.Actors[i].Worktree = place{path: l.opts.Directory.actor(a.Path, a.ActorID)}.keptWorktree()
		}
		if a.Status != "" {
			s.Counts[a.Status]++
		}
		if a.Role == string(dispatch.Root) && a.SpentUSD != nil {
			s.CostUSD = *a.SpentUSD
		}
	}
	l.event(Event{Event: RunFinished, Text: fmt.Sprintf("run %s is over", l.run)})
	return s, l.opts.Directory.writeJSON(summaryFile, s)
}

// resultsAtOnce is how many results one answer has, since each may be as large
// as a result can be.
const resultsAtOnce = dispatch.MaxResults

// fetchResults fetches the results of actors whose end was not reported here:
// those of earlier lives, and those that ended while the daemon was away.
func (l *Launcher) fetchResults(ctx context.Context) error {
	var missing []string
	for args := map[string]any{"run": l.run}; ; {
		var page struct {
			Runs []struct{ Actors []Actor }
			Next string
		}
		if err := l.link.call(ctx, "operator_tree", args, &page); err != nil {
			return err
		}
		for _, run := range page.Runs {
			for _, a := range run.Actors {
				if _, ok := l.results[a.ActorID]; !ok && a.StartedAt != nil {
					missing = append(missing, a.ActorID)
				}
			}
		}
		if page.Next == "" {
			break
		}
		args["after"] = page.Next
	}
	for ids := range slices.Chunk(missing, resultsAtOnce) {
		var answer struct {
			Results []struct {
				ActorID string `json:"actor_id"`
				Result  json.RawMessage
			}
		}
		if err := l.link.call(ctx, "operator_run_results", map[string]any{"run": l.run, "actors": ids}, &answer); err != nil {
			return err
		}
		for _, r := range answer.Results {
			l.results[r.ActorID] = r.Result
		}
	}
	return nil
}

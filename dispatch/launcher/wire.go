package launcher

import (
	"encoding/json"
	"time"

	"github.com/leasehold/leasehold/dispatch/manifest"
	"github.com/leasehold/leasehold/dispatch/server/tools"
)

// begun is what a launcher needs of the answer to operator_run_dispatch.
type begun struct {
	RunID string `json:"run_id"`
	Life  int    `json:"life"`
	Root  string `json:"root"`
}

// A LeaseName identifies a lease in a summary.
type LeaseName struct {
	Scope  string `json:"scope"`
	Key    string `json:"key"`
	Reason string `json:"reason,omitempty"` // why it was lost
}

// An Actor is an actor in a summary.
type Actor struct {
	ActorID    string          `json:"actor_id"`
	Path       string          `json:"path"`
	Role       string          `json:"role"`
	Status     string          `json:"status,omitempty"`
	Agent      string          `json:"agent,omitempty"`
	Machine    string          `json:"machine,omitempty"` // where it ran, if not here
	Logs       string          `json:"logs,omitempty"`    // directory of its output there
	Model      string          `json:"model,omitempty"`
	Life       int             `json:"life,omitempty"`
	StartedAt  *time.Time      `json:"started_at,omitempty"`
	FinishedAt *time.Time      `json:"finished_at,omitempty"`
	ExitCode   *int            `json:"exit_code,omitempty"`
	Signal     string          `json:"signal,omitempty"`
	Cause      string          `json:"cause,omitempty"`
	CostUSD    *float64        `json:"cost_usd,omitempty"`
	SpentUSD   *float64        `json:"spent_usd,omitempty"`
	BudgetUSD  *float64        `json:"budget_usd,omitempty"`
	Result     json.RawMessage `json:"result,omitempty"`
	Worktree   string          `json:"worktree,omitempty"`
	LeasesHeld []LeaseName     `json:"leases_held,omitempty"` // at its exit, which released them
	LeasesLost []LeaseName     `json:"leases_lost,omitempty"`
}

// settings returns the manifest's settings for the whole run.
func settings(m *manifest.Manifest) (s tools.Settings) {
	s.MaxDepth, s.MaxWorkersPerLayer, s.MaxActors, s.BudgetUSD = m.Run.MaxDepth, m.Run.MaxWorkersPerLayer, m.Run.MaxActors, m.Run.BudgetUSD
	s.Store.MaxValueBytes, s.Store.MaxBytes, s.Store.MaxEntries = m.Run.Store.MaxValueBytes, int64(m.Run.Store.MaxBytes), m.Run.Store.MaxEntries

	sublead := &s.Sublead
	sublead.Agent, sublead.Model, sublead.BudgetUSD = m.Sublead.Agent, m.Sublead.Model, m.Sublead.BudgetUSD
	sublead.MaxWorkers, sublead.Timeout, sublead.ReadDown = m.Sublead.MaxWorkers, m.Sublead.TimeoutSecs, m.Sublead.ReadDown
	sublead.Placement = tools.Placement{Machine: m.Sublead.Machine, Label: m.Sublead.Label}

	worker := &s.Worker
	worker.Agent, worker.Model, worker.BudgetUSD = m.Worker.Agent, m.Worker.Model, m.Worker.BudgetUSD
	worker.Timeout, worker.Worktree = m.Worker.TimeoutSecs, m.Worker.Worktree
	worker.Placement = tools.Placement{Machine: m.Worker.Machine, Label: m.Worker.Label}
	return s
}

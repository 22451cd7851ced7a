package launcher

import (
	"encoding/json"
	"time"
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
	Kept       string          `json:"worktree_kept,omitempty"` // why, although it succeeded; known only where it ran
	LeasesHeld []LeaseName     `json:"leases_held,omitempty"`   // at its exit, which released them
	LeasesLost []LeaseName     `json:"leases_lost,omitempty"`
}

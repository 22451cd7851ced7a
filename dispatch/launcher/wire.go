package launcher

import (
	"encoding/json"
	"time"

	"github.com/leasehold/leasehold/dispatch/manifest"
)

// The following are the objects of the daemon's operator_* tools for a
// dispatcher; the tools describe their fields.

type order struct {
	Name      string            `json:"name"`
	Agent     string            `json:"agent,omitempty"`
	Model     string            `json:"model,omitempty"`
	Prompt    string            `json:"prompt"`
	Directory string            `json:"directory,omitempty"`
	Env       map[string]string `json:"env,omitempty"`
	Timeout   float64           `json:"timeout_secs,omitempty"`
	Worktree  bool              `json:"worktree,omitempty"`
	Tools     []string          `json:"tools,omitempty"`
	BudgetUSD float64           `json:"budget_usd,omitempty"`
	placement
}

type placement struct {
	Machine string `json:"machine,omitempty"`
	Label   string `json:"label,omitempty"`
}

type begun struct {
	RunID string `json:"run_id"`
	Life  int    `json:"life"`
	Root  string `json:"root"`
}

type orders struct {
	Launch     []launch `json:"launch"`
	Stop       []stop   `json:"stop"`
	Draining   bool     `json:"draining"`
	Unfinished int      `json:"unfinished"`
}

type launch struct {
	ActorID string `json:"actor_id"`
	Path    string `json:"path"`
	Name    string `json:"name"`
	Role    string `json:"role"`
	Life    int    `json:"life"`
	Token   string `json:"token"`
	Session string `json:"session"`
	Order   order  `json:"order"`
}

type stop struct {
	ActorID string `json:"actor_id"`
	Path    string `json:"path"`
	Reason  string `json:"reason"`
	Status  string `json:"status"` // the status with which the actor ends
}

// An exit is the report of how an actor ended.
type exit struct {
	Run      string   `json:"run"`
	ActorID  string   `json:"actor_id"`
	Status   string   `json:"status"`
	ExitCode *int     `json:"exit_code,omitempty"`
	Signal   string   `json:"signal,omitempty"`
	Cause    string   `json:"cause,omitempty"`
	CostUSD  *float64 `json:"cost_usd,omitempty"`
	Output   string   `json:"output,omitempty"`
	Worktree string   `json:"worktree,omitempty"` // path, if it was kept
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
func settings(m *manifest.Manifest) map[string]any {
	s := map[string]any{}
	set(s, "max_depth", m.Run.MaxDepth)
	set(s, "max_workers_per_layer", m.Run.MaxWorkersPerLayer)
	set(s, "max_actors", m.Run.MaxActors)
	set(s, "budget_usd", m.Run.BudgetUSD)
	store := map[string]any{}
	set(store, "max_value_bytes", m.Run.Store.MaxValueBytes)
	set(store, "max_bytes", m.Run.Store.MaxBytes)
	set(store, "max_entries", m.Run.Store.MaxEntries)
	sublead := map[string]any{}
	set(sublead, "agent", m.Sublead.Agent)
	set(sublead, "model", m.Sublead.Model)
	set(sublead, "budget_usd", m.Sublead.BudgetUSD)
	set(sublead, "max_workers", m.Sublead.MaxWorkers)
	set(sublead, "timeout_secs", m.Sublead.TimeoutSecs)
	set(sublead, "read_down", m.Sublead.ReadDown)
	set(sublead, "machine", m.Sublead.Machine)
	set(sublead, "label", m.Sublead.Label)
	worker := map[string]any{}
	set(worker, "agent", m.Worker.Agent)
	set(worker, "model", m.Worker.Model)
	set(worker, "budget_usd", m.Worker.BudgetUSD)
	set(worker, "timeout_secs", m.Worker.TimeoutSecs)
	set(worker, "worktree", m.Worker.Worktree)
	set(worker, "machine", m.Worker.Machine)
	set(worker, "label", m.Worker.Label)
	for name, part := range map[string]map[string]any{"store": store, "sublead": sublead, "worker": worker} {
		if len(part) > 0 {
			s[name] = part
		}
	}
	return s
}

// set omits values that the manifest does not give, because the daemon has the
// defaults.
func set[T comparable](m map[string]any, name string, value T) {
	var zero T
	if value != zero {
		m[name] = value
	}
}

package work

import "github.com/leasehold/leasehold/registry"

// Settings are a manifest's settings for a whole run. The dispatcher sends them as they
// are, and they are stored with the run. Zero is the daemon's default for those that the
// manifest has no table for.
//
// The tags are those of a table of the manifest, and of JSON: see package manifest.
type Settings struct {
	Limits
	Store   Store   `json:"store,omitzero"`
	Sublead Sublead `json:"sublead,omitzero"`
	Worker  Worker  `json:"worker,omitzero"`
}

// Limits are the part of the table [run] that the daemon enforces.
type Limits struct {
	BudgetUSD          float64 `json:"budget_usd,omitempty" toml:"budget_usd" min:"0" max:"1000000" doc:"the most that all agents together may spend, in dollars, as they report it; 0: no limit"`
	MaxDepth           int     `json:"max_depth,omitempty" toml:"max_depth" min:"1" max:"32" default:"4" doc:"names in the path of the deepest agent"`
	MaxWorkersPerLayer int     `json:"max_workers_per_layer,omitempty" toml:"max_workers_per_layer" min:"1" max:"1000" default:"32" doc:"how many agents of one lead may run at a time"`
	MaxActors          int     `json:"max_actors,omitempty" toml:"max_actors" min:"1" max:"10000" default:"200" doc:"how many agents may run in the whole tree at a time, the root included"`
}

// Store is the table [run.store].
type Store struct {
	MaxValueBytes int `json:"max_value_bytes,omitempty" toml:"max_value_bytes" min:"1" max:"3145728" default:"1048576" doc:"one value, as JSON"`
	MaxBytes      int `json:"max_bytes,omitempty" toml:"max_bytes" min:"1" max:"1073741824" default:"67108864" doc:"all paths and values of a layer"`
	MaxEntries    int `json:"max_entries,omitempty" toml:"max_entries" min:"1" max:"1000000" default:"10000" doc:"entries of a layer"`
}

// Sublead is the table [sublead].
type Sublead struct {
	Agent       string  `json:"agent,omitempty" toml:"agent" doc:"agent; default: the root's"`
	Model       string  `json:"model,omitempty" toml:"model" doc:"model; default: the agent's"`
	BudgetUSD   float64 `json:"budget_usd,omitempty" toml:"budget_usd" min:"0" max:"1000000" doc:"reserved from its lead's budget, for it and all below it; 0: nothing"`
	MaxWorkers  int     `json:"max_workers,omitempty" toml:"max_workers" min:"0" max:"1000" doc:"how many of its agents may run at a time; 0: max_workers_per_layer"`
	TimeoutSecs float64 `json:"timeout_secs,omitempty" toml:"timeout_secs" min:"0" max:"2592000" doc:"it is stopped after this long; 0: no limit"`
	ReadDown    bool    `json:"read_down,omitempty" toml:"read_down" doc:"its lead may read the store of its layer"`
	Placement
}

// Worker is the table [worker].
type Worker struct {
	Agent       string  `json:"agent,omitempty" toml:"agent" doc:"agent; default: the root's"`
	Model       string  `json:"model,omitempty" toml:"model" doc:"model; default: the agent's"`
	BudgetUSD   float64 `json:"budget_usd,omitempty" toml:"budget_usd" min:"0" max:"1000000" doc:"reserved from its lead's budget; 0: nothing"`
	TimeoutSecs float64 `json:"timeout_secs,omitempty" toml:"timeout_secs" min:"0" max:"2592000" doc:"it is stopped after this long, including the time to make its worktree; 0: no limit"`
	Worktree    bool    `json:"worktree,omitempty" toml:"worktree" doc:"each runs in its own git worktree, which is kept if the agent failed or left changes; files that git ignores do not count"`
	Placement
}

// Check returns a [registry.ArgumentError] if a number is out of all bounds.
func (s Settings) Check() error {
	for _, n := range []float64{
		float64(s.MaxDepth), float64(s.MaxWorkersPerLayer), float64(s.MaxActors), s.BudgetUSD,
		float64(s.Store.MaxValueBytes), float64(s.Store.MaxBytes), float64(s.Store.MaxEntries),
		s.Sublead.BudgetUSD, float64(s.Sublead.MaxWorkers), s.Sublead.TimeoutSecs, s.Worker.BudgetUSD, s.Worker.TimeoutSecs,
	} {
		if n < 0 || n > 1e12 {
			return &registry.ArgumentError{Argument: "settings", Problem: "must have no number below 0 or above 1e12"}
		}
	}
	return nil
}

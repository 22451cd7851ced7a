package launcher

import "time"

// The kinds of events, in about the order in which a run has them.
const (
	RunStarted    = "run_started"
	ActorStarted  = "actor_started"
	LeaseHeld     = "lease_held"
	LeaseWaiting  = "lease_waiting" // for a lease that somebody else holds
	LeaseFreed    = "lease_freed"
	ActorStopping = "actor_stopping" // has been asked to end
	ActorExited   = "actor_exited"
	Draining      = "draining" // nothing is spawned any more
	DaemonLost    = "daemon_lost"
	DaemonBack    = "daemon_back"
	RunFinished   = "run_finished"
)

// An Event is something that happened in a run. What has no meaning for its
// kind is left out. Leases are looked at after each change, at most ten times
// a second, and less often if there are thousands: what came and went in
// between has no event.
type Event struct {
	Time     time.Time `json:"time"`
	Event    string    `json:"event"`
	Run      string    `json:"run"`
	Path     string    `json:"path,omitempty"` // of the actor
	Role     string    `json:"role,omitempty"`
	Agent    string    `json:"agent,omitempty"`
	PID      int       `json:"pid,omitempty"`
	Status   string    `json:"status,omitempty"`
	ExitCode *int      `json:"exit_code,omitempty"`
	Signal   string    `json:"signal,omitempty"`
	CostUSD  *float64  `json:"cost_usd,omitempty"`
	Scope    string    `json:"scope,omitempty"` // of a lease: run or layer
	Key      string    `json:"key,omitempty"`   // of a lease
	Holder   string    `json:"holder,omitempty"`
	Logs     []string  `json:"logs,omitempty"` // the files an actor that started writes
	Text     string    `json:"text"`           // all of it in one line, for people
}

package launcher

import "time"

// The kinds of events of the dispatch itself, in about the order in which a run has
// them. The others are those of the run, as `leasehold events` has them.
const (
	RunStarted    = "run_started"
	ActorStarted  = "actor_started"
	ActorStopping = "actor_stopping" // has been asked to end
	ActorExited   = "actor_exited"
	Draining      = "draining" // nothing is spawned any more
	DaemonLost    = "daemon_lost"
	DaemonBack    = "daemon_back"
	EventsMissed  = "events_missed" // the daemon has forgotten some of the run before they were read
	RunFinished   = "run_finished"
)

// An Event is something that happened in a run, or to its processes. What has no
// meaning for its kind is left out. Those of the run have a revision, and each of
// them comes once, in order.
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
	Logs     []string  `json:"logs,omitempty"` // the files an actor that started writes

	// Of the run's own events.
	Revision  uint64 `json:"revision,omitempty"`
	Scope     string `json:"scope,omitempty"` // of a lease: run or layer
	Layer     string `json:"layer,omitempty"` // path of its lead
	Key       string `json:"key,omitempty"`
	Queue     string `json:"queue,omitempty"`
	TaskID    string `json:"task_id,omitempty"`
	SessionID string `json:"session_id,omitempty"`
	MessageID string `json:"message_id,omitempty"`
	Token     uint64 `json:"token,omitempty"`
	Mode      string `json:"mode,omitempty"`
	ActorID   string `json:"actor_id,omitempty"`
	As        string `json:"as,omitempty"` // which of its sub-agents
	By        string `json:"by,omitempty"` // path of another actor
	Cause     string `json:"cause,omitempty"`
	Reason    string `json:"reason,omitempty"`

	Text string `json:"text"` // all of it in one line, for people
}

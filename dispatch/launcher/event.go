package launcher

import "time"

// The kinds of the dispatch's own events, roughly in the order in which a run
// has them. The other kinds are those of the run; `leasehold events` lists
// them.
const (
	RunStarted    = "run_started"
	ActorStarted  = "actor_started"
	ActorStopping = "actor_stopping" // it was asked to end
	ActorExited   = "actor_exited"
	Draining      = "draining" // nothing more is spawned
	DaemonLost    = "daemon_lost"
	DaemonBack    = "daemon_back"
	EventsMissed  = "events_missed" // the daemon deleted some events of the run before they were read
	RunFinished   = "run_finished"
)

// An Event is something that happened in a run, or to its processes. Fields
// that have no meaning for the kind are omitted. Events of the run itself have
// a revision; each of them occurs once, in order.
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
	Logs     []string  `json:"logs,omitempty"` // the files that a started actor writes

	// Only in the run's own events.
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
	As        string `json:"as,omitempty"` // the actor's sub-agent
	By        string `json:"by,omitempty"` // path of another actor
	Cause     string `json:"cause,omitempty"`
	Reason    string `json:"reason,omitempty"`

	// Ordered says that this launcher was to start the actor, so that it has an event of
	// its own for the end.
	Ordered bool `json:"-"`

	Text string `json:"text"` // the whole event in one line, for people
}

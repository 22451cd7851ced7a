package queue

import (
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/record"
)

// A State is the state of a task; see the package doc.
type State byte

const (
	Delayed State = iota + 1
	Ready
	InProgress
	Completed
	Failed
	Dead
	Cancelled

	corruptState // what is left of a task that cannot be read; no record has it
)

var stateNames = [...]string{
	Delayed: "delayed", Ready: "ready", InProgress: "in_progress",
	Completed: "completed", Failed: "failed", Dead: "dead", Cancelled: "cancelled",
}

func (s State) String() string { return stateNames[s] }

// Finished reports whether the state is final, except that a dead task can be
// redriven.
func (s State) Finished() bool { return s >= Completed }

// A Task is a task without its payload and its result. Its times are those of
// the wall clock.
type Task struct {
	ID          uuid.UUID
	Run         uuid.UUID
	Queue       string
	State       State
	Priority    int // 0 to 9, 9 first
	Attempt     int // executions begun
	MaxAttempts int
	Size        int    // bytes of the payload
	Key         string // idempotency key, or ""
	EnqueuedAt  time.Time
	EnqueuedBy  string    // path of the actor
	Trace       string    // traceparent of the request that enqueued it, or ""
	DueAt       time.Time // of a delayed task, by the clocks at the time of the answer
	FinishedAt  time.Time
	Until       time.Time // when a finished task may be forgotten
	Attempts    []Attempt // one for each execution begun; the last may still run

	// ExpiresIn is how long the claim on a task in progress lasts from the time
	// of the answer. Claim, Get and List set it.
	ExpiresIn time.Duration

	line    line
	place   uint64    // of a ready task, in its line
	due     time.Time // of a delayed task
	byWall  bool      // due is by the wall clock, not the running clock
	payload string    // of a claimed task, if it was read ahead: the value of the payload's row
	result  result    // of a submitted task
	draft   *draft    // of a task that is not written yet
}

func (t *Task) shownBy(tx engine.Tx) {
	switch {
	case t.due.IsZero():
		t.DueAt = time.Time{}
	case t.byWall:
		t.DueAt = t.due
	default:
		t.DueAt = tx.WallAt(t.due)
	}
}

// An Attempt is one execution.
type Attempt struct {
	Token   uint64
	Actor   uuid.UUID
	Path    string // of the actor
	Party   string // which of the actor's sub-agents, or ""
	BeganAt time.Time
	EndedAt time.Time // zero while it runs
	Cause   string    // how it ended
}

// last returns the attempt that runs, or the last one.
func (t *Task) last() *Attempt { return &t.Attempts[len(t.Attempts)-1] }

// submitted reports whether a task may have a result.
func (t *Task) submitted() bool { return t.State == Completed || t.State == Failed }

// A result is what was submitted for a task. A small one is in the task's
// record. A larger one has a row of its own, so that it is not rewritten with
// the record.
type result struct {
	text  string
	apart bool
}

const smallResult = 512 // bytes

// A line identifies a queue of a run. It is the key of the queue's account,
// which is looked up very often. It ends in the name that other keys use for
// the queue.
type line string

func lineOf(run uuid.UUID, queue string) line {
	return line(accountPrefix + string(run[:]) + queue)
}

// lineNamed returns the line for a name that was read from a key or from a
// record.
func lineNamed(name string) line { return line(accountPrefix + name) }

func (l line) name() string   { return string(l[len(accountPrefix):]) }
func (l line) run() uuid.UUID { return uuid.UUID([]byte(l.name()[:16])) }
func (l line) queue() string  { return l.name()[16:] }

const (
	taskFormat = 5
	recordRoom = 160 // bytes; enough for most records of tasks with one attempt and a small result
)

func (t *Task) encode(w *record.Writer) {
	w.Byte(taskFormat)
	w.Text(t.line.name())
	w.Byte(byte(t.State))
	w.Byte(byte(t.Priority))
	w.Uint(uint64(t.Attempt))
	w.Uint(uint64(t.MaxAttempts))
	w.Uint(uint64(t.Size))
	w.Text(t.Key)
	w.Time(t.EnqueuedAt)
	w.Text(t.EnqueuedBy)
	w.Flags(t.byWall, t.Trace != "")
	if t.Trace != "" {
		w.Text(t.Trace)
	}
	w.Time(t.due)
	w.Time(t.FinishedAt)
	w.Time(t.Until)
	w.Uint(t.place)
	if t.submitted() {
		w.Flags(t.result.apart)
		w.Text(t.result.text)
	}
	w.Uint(uint64(len(t.Attempts)))
	for _, a := range t.Attempts {
		w.Uint(a.Token)
		w.ID(a.Actor)
		w.Texts(a.Path, a.Party)
		w.Time(a.BeganAt)
		w.Time(a.EndedAt)
		w.Text(a.Cause)
	}
}

func (t *Task) record() string {
	w := record.New(recordRoom)
	t.encode(w)
	return w.String()
}

// decode reads a record. The task's strings point into text and so keep its memory
// alive.
func (t *Task) decode(id uuid.UUID, text string) (ok bool) {
	r := record.Read(text)
	format, name := r.Byte(), r.Text()
	if len(name) < 16 || !isName(name[16:]) {
		return false
	}
	l := lineNamed(name)
	t.ID, t.Run, t.Queue, t.line = id, l.run(), l.queue(), l
	t.State, t.Priority = State(r.Byte()), int(r.Byte())
	t.Attempt, t.MaxAttempts, t.Size, t.Key = int(r.Uint()), int(r.Uint()), int(r.Uint()), r.Text()
	t.EnqueuedAt, t.EnqueuedBy = r.Time(), r.Text()
	var traced bool
	r.Flags(&t.byWall, &traced)
	if traced {
		t.Trace = r.Text()
	}
	t.due, t.FinishedAt, t.Until = r.Time(), r.Time(), r.Time()
	t.place = r.Uint()
	if t.submitted() {
		r.Flags(&t.result.apart)
		t.result.text = r.Text()
	}
	n := r.Uint()
	if n > MaxAttempts || n != uint64(t.Attempt) {
		return false
	}
	if n > 0 {
		t.Attempts = make([]Attempt, 0, n)
	}
	for range n {
		t.Attempts = append(t.Attempts, Attempt{
			Token: r.Uint(), Actor: r.ID(), Path: r.Text(), Party: r.Text(), BeganAt: r.Time(), EndedAt: r.Time(), Cause: r.Text(),
		})
	}
	executed := t.State == InProgress || t.State == Completed || t.State == Failed || t.State == Dead
	return format == taskFormat && r.Done() && t.State >= Delayed && t.State <= Cancelled &&
		t.Priority <= MaxPriority && (!executed || n > 0)
}

// Stats counts the tasks of one queue.
type Stats struct {
	Queue      string
	Ready      [MaxPriority + 1]uint64 // by priority
	Delayed    uint64
	InProgress uint64
	Completed  uint64 // only those still kept, as in the next three
	Failed     uint64
	Dead       uint64
	Cancelled  uint64
	Corrupt    uint64 // tasks set aside because their records cannot be read

	Paused      bool // see Pause; Stats and AllStats read it
	PauseReason string
}

// ReadyTotal returns how many tasks are ready.
func (s *Stats) ReadyTotal() (n uint64) {
	for _, r := range s.Ready {
		n += r
	}
	return n
}

func (s *Stats) unfinished() uint64 { return s.ReadyTotal() + s.Delayed + s.InProgress }

// of returns the count for a state; for Ready, of one priority.
func (s *Stats) of(state State, priority int) *uint64 {
	switch state {
	case Ready:
		return &s.Ready[priority]
	case Delayed:
		return &s.Delayed
	}
	return s.others()[1+state-InProgress]
}

// others returns the counts of all states except Ready, in the order of the
// states.
func (s *Stats) others() [7]*uint64 {
	return [...]*uint64{&s.Delayed, &s.InProgress, &s.Completed, &s.Failed, &s.Dead, &s.Cancelled, &s.Corrupt}
}

func (s *Stats) empty() bool { return *s == Stats{Queue: s.Queue} }

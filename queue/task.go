package queue

import (
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine/record"
)

// A State is where a task stands; see the package doc.
type State byte

const (
	Delayed State = iota + 1
	Ready
	InProgress
	Completed
	Failed
	Dead
	Cancelled
)

var stateNames = [...]string{
	Delayed: "delayed", Ready: "ready", InProgress: "in_progress",
	Completed: "completed", Failed: "failed", Dead: "dead", Cancelled: "cancelled",
}

func (s State) String() string { return stateNames[s] }

// Finished reports whether nothing changes a task in this state but a redrive
// of a dead one.
func (s State) Finished() bool { return s >= Completed }

// A Task is a task without its payload and its result.
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
	DueAt       time.Time // of a delayed task
	FinishedAt  time.Time
	Until       time.Time // when a finished task may be forgotten
	Attempts    []Attempt // one for each execution begun, the last may be under way

	line    line
	place   uint64 // in line, of a ready task
	payload string // of one that is claimed, if it was read ahead: the value of its row
	result  result // of one that was submitted
	draft   *draft // of one that is not written yet
}

// An Attempt is one execution.
type Attempt struct {
	Token   uint64
	Actor   uuid.UUID
	Path    string // of the actor
	BeganAt time.Time
	EndedAt time.Time // zero while it is under way
	Cause   string    // how it ended
}

// last is the attempt under way, or the last that was.
func (t *Task) last() *Attempt { return &t.Attempts[len(t.Attempts)-1] }

// submitted reports whether a task may have a result.
func (t *Task) submitted() bool { return t.State == Completed || t.State == Failed }

// A result is what was submitted for a task: a small one stands in its record,
// which is not written again, and another apart, in a row of its own.
type result struct {
	text  string
	apart bool
}

const smallResult = 512 // bytes

// A line is a queue of a run. It is the key of the queue's row, which is looked
// up all the time, and ends in what stands in other keys.
type line string

func lineOf(run uuid.UUID, queue string) line {
	return line(statsPrefix + string(run[:]) + queue)
}

// lineNamed is lineOf for a name that was read from a key or from a record.
func lineNamed(name string) line { return line(statsPrefix + name) }

func (l line) name() string   { return string(l[len(statsPrefix):]) }
func (l line) run() uuid.UUID { return uuid.UUID([]byte(l.name()[:16])) }
func (l line) queue() string  { return l.name()[16:] }

const (
	taskFormat = 3
	recordRoom = 160 // bytes: what the record of a task mostly takes, that has one attempt and a small result
)

// encode writes a task's record.
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
	w.Time(t.DueAt)
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
		w.Text(a.Path)
		w.Time(a.BeganAt)
		w.Time(a.EndedAt)
		w.Text(a.Cause)
	}
}

// record is what encode writes.
func (t *Task) record() string {
	w := record.New(recordRoom)
	t.encode(w)
	return w.String()
}

var errTaskRecord = errors.New("not a task record")

// decode reads a record, which is probably of a task of the line that is given.
// The task refers to it, as does what is cut from it.
func (t *Task) decode(id uuid.UUID, text string, l line) error {
	r := record.Read(text)
	format, name := r.Byte(), r.Text()
	if l == "" || l.name() != name {
		if l = lineNamed(name); len(name) < 16 || !isName(l.queue()) {
			return errTaskRecord
		}
	}
	t.ID, t.Run, t.Queue, t.line = id, l.run(), l.queue(), l
	t.State, t.Priority = State(r.Byte()), int(r.Byte())
	t.Attempt, t.MaxAttempts, t.Size, t.Key = int(r.Uint()), int(r.Uint()), int(r.Uint()), r.Text()
	t.EnqueuedAt, t.EnqueuedBy = r.Time(), r.Text()
	t.DueAt, t.FinishedAt, t.Until = r.Time(), r.Time(), r.Time()
	t.place = r.Uint()
	if t.submitted() {
		r.Flags(&t.result.apart)
		t.result.text = r.Text()
	}
	n := r.Uint()
	if n > MaxAttempts || n != uint64(t.Attempt) {
		return errTaskRecord
	}
	if n > 0 {
		t.Attempts = make([]Attempt, 0, n)
	}
	for range n {
		t.Attempts = append(t.Attempts, Attempt{
			Token: r.Uint(), Actor: r.ID(), Path: r.Text(), BeganAt: r.Time(), EndedAt: r.Time(), Cause: r.Text(),
		})
	}
	executed := t.State == InProgress || t.State == Completed || t.State == Failed || t.State == Dead
	switch {
	case format != taskFormat, !r.Done(), t.State < Delayed, t.State > Cancelled, t.Priority > MaxPriority, executed && n == 0:
		return errTaskRecord
	}
	return nil
}

// Stats counts the tasks of one queue.
type Stats struct {
	Queue      string
	Ready      [MaxPriority + 1]uint64 // by priority
	Delayed    uint64
	InProgress uint64
	Completed  uint64 // and still kept, as are the next three
	Failed     uint64
	Dead       uint64
	Cancelled  uint64
}

// ReadyTotal is how many tasks wait to be claimed.
func (s Stats) ReadyTotal() (n uint64) {
	for _, r := range s.Ready {
		n += r
	}
	return n
}

// of is the count that a task stands in.
func (s *Stats) of(t *Task) *uint64 {
	switch t.State {
	case Delayed:
		return &s.Delayed
	case Ready:
		return &s.Ready[t.Priority]
	case InProgress:
		return &s.InProgress
	case Completed:
		return &s.Completed
	case Failed:
		return &s.Failed
	case Dead:
		return &s.Dead
	case Cancelled:
		return &s.Cancelled
	}
	panic(fmt.Sprintf("queue: task %s in state %d", t.ID, t.State))
}

func (s Stats) empty() bool { return s == Stats{Queue: s.Queue} }

// others are the counts but those of the ready.
func (s *Stats) others() [6]*uint64 {
	return [...]*uint64{&s.Delayed, &s.InProgress, &s.Completed, &s.Failed, &s.Dead, &s.Cancelled}
}

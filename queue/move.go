package queue

import (
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/event"
	"github.com/leasehold/leasehold/engine/record"
)

// A task moves in two steps: it is removed from the index of its state, changes,
// and is added to the index of its new state.

// schedule makes a task that is in no index ready, at the end of its line, or
// delayed for so long by the running clock.
func (q *Queue) schedule(tx *ledger, t *Task, delay time.Duration) {
	if delay > 0 {
		t.State, t.due, t.byWall = Delayed, tx.Now().Add(delay), false
		addToIndex(tx, t)
		return
	}
	t.place = tx.accountOf(t.line).nextPlace(q)
	q.makeReady(tx, t)
}

// makeReady makes a task ready at its place, or gives it to a waiting claim. A
// task becomes ready only here or through schedule, so no claim waits while a
// task is ready.
func (q *Queue) makeReady(tx *ledger, t *Task) {
	t.State, t.due, t.byWall = Ready, time.Time{}, false
	if !q.giveToWaiter(tx, t) {
		addToIndex(tx, t)
	}
}

// addToIndex writes a task in its new state: the record, the entry in the
// index, and the count.
func addToIndex(tx *ledger, t *Task) {
	a := tx.accountOf(t.line)
	n := a.stats.of(t.State, t.Priority)
	*n++
	if !t.State.Finished() {
		a.bytes += uint64(t.Size)
	}
	a.moved = true
	value := putTask(tx, t)
	if t.State == InProgress {
		return
	}
	in, tail := t.entry()
	switch {
	case t.State == Ready:
		if *n == 1 || t.place < a.first[t.Priority] {
			a.first[t.Priority] = t.place
		}
		value = string(t.ID[:]) + value
	case t.State == Delayed:
		a.wanted(tx, t.due, t.byWall)
		value = ""
	default:
		a.wanted(tx, t.Until, true)
		value = ""
	}
	in.put(tx, tail, value)
}

// removeFromIndex removes a task from the counts and the index. A claim raises
// the lower bound itself.
func removeFromIndex(tx *ledger, t *Task) {
	a := tx.accountOf(t.line)
	if n := a.stats.of(t.State, t.Priority); *n > 0 {
		*n--
	}
	if !t.State.Finished() {
		a.bytes -= min(a.bytes, uint64(t.Size))
	}
	a.moved = true
	if t.State == InProgress {
		return
	}
	in, tail := t.entry()
	tx.Delete(in.prefix + tail)
	if t.State == Ready && t.place >= a.first[t.Priority] {
		in.forget(tx)
	}
}

// keepKey is how long an idempotency key is kept at least after the enqueue.
const keepKey = 24 * time.Hour

func (q *Queue) finish(tx *ledger, t *Task, state State, cause string) {
	removeFromIndex(tx, t)
	e := event.Event{Kind: event.TaskCompleted + event.Kind(state-Completed)}
	if state != Completed && state != Failed { // for those, the cause repeats the state
		e.Cause = cause
	}
	t.note(tx, e)
	endAttempt(tx, t, cause)
	wall := tx.Wall()
	t.State, t.due, t.byWall, t.FinishedAt = state, time.Time{}, false, wall
	t.Until = wall.Add(q.opts.Retention)
	if state == Dead {
		t.Until = wall.Add(q.opts.DeadRetention)
	}
	if keep := t.EnqueuedAt.Add(keepKey); t.Key != "" && keep.After(t.Until) {
		t.Until = keep
	}
	addToIndex(tx, t)
}

func endAttempt(tx *ledger, t *Task, cause string) {
	if t.State == InProgress {
		t.last().EndedAt, t.last().Cause = tx.Wall(), cause
	}
}

// giveBack ends an execution without a result. The task is retried after delay,
// or is dead if it has no attempts left.
func (q *Queue) giveBack(tx *ledger, t *Task, cause string, delay time.Duration) {
	if t.Attempt >= t.MaxAttempts {
		q.finish(tx, t, Dead, cause)
		return
	}
	removeFromIndex(tx, t)
	t.note(tx, event.Event{Kind: event.TaskReturned, Cause: cause})
	endAttempt(tx, t, cause)
	q.schedule(tx, t, delay)
}

func forget(tx *ledger, t *Task) {
	removeFromIndex(tx, t)
	if t.Key != "" {
		tx.Delete(idemKey(t.line, t.Key))
	}
	forgetRows(tx, t.ID)
}

func forgetRows(tx *ledger, id uuid.UUID) {
	tx.Delete(taskKey(id))
	tx.Delete(payloadKey(id))
	tx.Delete(resultKey(id))
}

// lose removes an entry from its index whose task cannot be read, so that the
// line goes on. If the task was not finished, what is left of it is kept for
// DeadRetention, in the index of corrupt tasks.
func (q *Queue) lose(tx *ledger, in index, row engine.Row) {
	tx.Delete(row.Key)
	if in.state == Ready {
		in.forget(tx)
	}
	a := tx.accountOf(in.line)
	n := a.stats.of(in.state, in.priority)
	*n -= min(*n, 1)
	a.moved = true
	switch id, ok := in.id(row); {
	case !ok:
	case in.state == Ready || in.state == Delayed:
		q.keepCorrupt(tx, a, id)
	default:
		forgetRows(tx, id)
	}
}

// loseClaimed is lose for a task in progress. If its queue cannot be
// determined, the count is wrong until the run is removed.
func (q *Queue) loseClaimed(tx *ledger, id uuid.UUID) {
	row, _, _ := tx.Try(taskKey(id))
	first, _, _ := tx.Try(payloadKey(id))
	_, text, _ := splitPayload(first.Value)
	for _, text := range []string{row.Value, text} {
		r := record.Read(text)
		format, name := r.Byte(), r.Text()
		if format != taskFormat || len(name) < 16 || !isName(name[16:]) {
			continue
		}
		if a := tx.accountOf(lineNamed(name)); a.stats.InProgress > 0 {
			a.stats.InProgress--
			q.keepCorrupt(tx, a, id)
			return
		}
	}
}

func (q *Queue) keepCorrupt(tx *ledger, a *account, id uuid.UUID) {
	a.stats.Corrupt++
	a.moved = true
	until := tx.Wall().Add(q.opts.DeadRetention)
	in, tail := indexByTime(a.line, corruptState, true), atTime(until, id)
	in.put(tx, tail, "")
	a.wanted(tx, until, true)
}

func getTask(tx *ledger, id uuid.UUID) (t Task, err error) {
	found, err := t.read(tx, id)
	if err == nil && !found {
		err = notFound(id)
	}
	return t, err
}

// getTaskOf is getTask for a task that must belong to a run.
func getTaskOf(tx *ledger, run, id uuid.UUID) (Task, error) {
	t, err := getTask(tx, id)
	if err == nil && t.Run != run {
		return Task{}, notFound(id)
	}
	return t, err
}

// read reads a task's record. Until the task first changes, the record may be
// in the row of its payload, after it.
func (t *Task) read(tx *ledger, id uuid.UUID) (found bool, err error) {
	*t = Task{}
	key := taskKey(id)
	row, found, err := tx.Try(key)
	text, readable := row.Value, err == nil
	if readable && !found {
		key = payloadKey(id)
		if row, found, err = tx.Try(key); err == nil && found {
			_, text, readable = splitPayload(row.Value)
			found = text != "" // otherwise the record had its own row, which is gone
		}
	}
	if err == nil && readable && !found {
		return false, nil
	}
	if err != nil || !readable || !t.decode(id, text) {
		*t = Task{}
		return false, corruptTask(id, key)
	}
	return true, nil
}

// smallPayload is the longest payload whose row also has the record; reading
// such a record reads the payload, too.
const smallPayload = 4 << 10 // bytes

// putTask writes a task's record and returns it. It writes a new task's payload
// as well. If a new task is ready and its payload small, the record is in the
// payload's row: the task is mostly claimed and changed before its record is
// read.
func putTask(tx *ledger, t *Task) (text string) {
	if t.draft == nil {
		text = t.record()
		tx.Put(engine.Row{Key: taskKey(t.ID), Value: text})
		return text
	}
	w := t.draft.row // it already has the payload
	t.draft = nil
	if t.State == Ready && t.Size <= smallPayload {
		payload := w.Len()
		t.encode(&w)
		text = w.String()[payload:]
	} else {
		text = t.record()
		tx.Put(engine.Row{Key: taskKey(t.ID), Value: text})
	}
	tx.Put(engine.Row{Key: payloadKey(t.ID), Value: w.String()})
	return text
}

// splitPayload splits a payload's row into the payload and the task's record.
// text is empty if the record always had its own row.
func splitPayload(value string) (payload, text string, ok bool) {
	r := record.Read(value)
	payload, text = r.Text(), r.Rest()
	return payload, text, r.Done() && payload != ""
}

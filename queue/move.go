package queue

import (
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
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
	t.place = tx.nextPlace()
	q.makeReady(tx, t)
}

// scheduleAt is schedule until an instant of the wall clock.
func (q *Queue) scheduleAt(tx *ledger, t *Task, at time.Time) {
	if !at.After(tx.Wall()) {
		q.schedule(tx, t, 0)
		return
	}
	t.State, t.due, t.byWall = Delayed, at.Round(0).UTC(), true
	addToIndex(tx, t)
}

// makeReady makes a task ready at its place, or gives it to a claim that waits
// for it. With schedule it is the only way to become ready, so no claim waits
// where a task is ready.
func (q *Queue) makeReady(tx *ledger, t *Task) {
	t.State, t.due, t.byWall = Ready, time.Time{}, false
	if !q.giveToWaiter(tx, t) {
		addToIndex(tx, t)
	}
}

// addToIndex writes a task in the state it has come to: its record, its entry in
// the index, and its count.
func addToIndex(tx *ledger, t *Task) {
	a := tx.accountOf(t.line)
	n := a.stats.of(t)
	*n++
	if !t.State.Finished() {
		a.bytes += uint64(t.Size)
	}
	a.moved = true
	text := putTask(tx, t)
	switch in, tail := t.entry(); {
	case t.State == Ready:
		if *n == 1 || t.place < a.first[t.Priority] {
			a.first[t.Priority] = t.place
		}
		tx.Put(engine.Row{Key: in.prefix + tail, Value: string(t.ID[:]) + text})
	case t.State == Delayed:
		in.lowerLowerBound(tx, tail)
		a.wanted(t.due, t.byWall)
		tx.Put(engine.Row{Key: in.prefix + tail})
	case t.State.Finished():
		in.lowerLowerBound(tx, tail)
		a.wanted(t.Until, true)
		// The state is here too, so that a task whose record cannot be read is
		// forgotten in time and counted rightly.
		tx.Put(engine.Row{Key: in.prefix + tail, Value: string([]byte{byte(t.State)})})
		if t.State == Dead {
			dead := deadIndex(t.line)
			dead.lowerLowerBound(tx, tail)
			tx.Put(engine.Row{Key: dead.prefix + tail})
		}
	}
}

// removeFromIndex takes a task out of the counts and the indexes. A claim raises
// the lower bound itself.
func removeFromIndex(tx *ledger, t *Task) {
	a := tx.accountOf(t.line)
	n := a.stats.of(t)
	*n--
	if !t.State.Finished() {
		a.bytes -= uint64(t.Size)
	}
	a.moved = true
	if t.State == InProgress {
		return
	}
	in, tail := t.entry()
	tx.Delete(in.prefix + tail)
	switch {
	case t.State == Dead:
		tx.Delete(deadIndex(t.line).prefix + tail)
	case t.State == Ready && (*n == 0 || t.place >= a.first[t.Priority]):
		in.forget(tx)
	}
}

// keepKey is how long an idempotency key is kept at least, from the enqueue.
const keepKey = 24 * time.Hour

// finish moves a task to a final state.
func (q *Queue) finish(tx *ledger, t *Task, state State, cause string) {
	removeFromIndex(tx, t)
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

// giveBack ends an execution without a result: the task is retried after delay,
// or is dead if it may not begin again.
func (q *Queue) giveBack(tx *ledger, t *Task, cause string, delay time.Duration) {
	if t.Attempt >= t.MaxAttempts {
		q.finish(tx, t, Dead, cause)
		return
	}
	removeFromIndex(tx, t)
	endAttempt(tx, t, cause)
	q.schedule(tx, t, delay)
}

// forget removes every row of a task.
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

// setAside takes an entry out of its index whose task cannot be read, so that the
// line goes on. What is left of the task is kept for a while, in the index of the
// corrupt.
func (q *Queue) setAside(tx *ledger, in index, row engine.Row) {
	tx.Delete(row.Key)
	in.forget(tx)
	a := tx.accountOf(in.line)
	id, ok := uuid.UUID{}, false
	switch {
	case in.ofReady():
		a.stats.Ready[in.priority]--
		if ok = len(row.Value) >= 16; ok {
			id = uuid.UUID([]byte(row.Value[:16]))
		}
	default:
		a.stats.Delayed--
		_, id, ok = in.timeAndID(row)
	}
	if !ok {
		a.moved = true
		return
	}
	q.addCorrupt(tx, a, id)
}

// setAsideClaimed is setAside for a task in progress. If it cannot be told which
// queue it is of, its count stays until the run goes.
func (q *Queue) setAsideClaimed(tx *ledger, id uuid.UUID) {
	if l, ok := lineOfRecord(tx, id); ok {
		a := tx.accountOf(l)
		a.stats.InProgress--
		q.addCorrupt(tx, a, id)
	}
}

func (q *Queue) addCorrupt(tx *ledger, a *account, id uuid.UUID) {
	a.stats.Corrupt++
	a.moved = true
	until := tx.Wall().Add(q.opts.DeadRetention)
	in := corruptIndex(a.line)
	in.lowerLowerBound(tx, atTime(until, id))
	tx.Put(engine.Row{Key: in.prefix + atTime(until, id)})
	a.wanted(until, true)
}

// forgetUnread forgets a finished or a corrupt task whose record cannot be read.
func forgetUnread(tx *ledger, in index, row engine.Row) {
	tx.Delete(row.Key)
	a := tx.accountOf(in.line)
	a.moved = true
	if in.kind == corruptPrefix {
		a.stats.Corrupt--
	} else if len(row.Value) == 1 && State(row.Value[0]).Finished() && State(row.Value[0]) <= Cancelled {
		*a.stats.of(&Task{State: State(row.Value[0])})--
		tx.Delete(deadIndex(in.line).prefix + in.tail(row))
	}
	if _, id, ok := in.timeAndID(row); ok {
		forgetRows(tx, id)
	}
}

// getTask reads a task.
func getTask(tx *ledger, id uuid.UUID) (t Task, err error) {
	found, err := t.read(tx, id)
	if err == nil && !found {
		err = notFound(id)
	}
	return t, err
}

// getTaskOf is getTask for a task that has to be of a run.
func getTaskOf(tx *ledger, run, id uuid.UUID) (Task, error) {
	t, err := getTask(tx, id)
	if err != nil || t.Run != run {
		return Task{}, cmpErr(err, notFound(id))
	}
	return t, nil
}

func cmpErr(err, otherwise error) error {
	if err != nil {
		return err
	}
	return otherwise
}

// read reads a task's record. While the task is as it was enqueued, that is
// behind its payload.
func (t *Task) read(tx *ledger, id uuid.UUID) (found bool, err error) {
	*t = Task{}
	row, ok := tx.Get(taskKey(id))
	text := row.Value
	if !ok {
		if row, ok = tx.Get(payloadKey(id)); !ok {
			return false, nil
		}
		if _, text, ok = splitPayload(row.Value); !ok {
			return false, corruptTask(id, row.Key)
		}
		if text == "" { // the record had a row of its own, which has gone
			return false, nil
		}
	}
	if !t.decode(id, text, tx.account.line) {
		*t = Task{}
		return false, corruptTask(id, row.Key)
	}
	return true, nil
}

// lineOfRecord finds out which queue a task is of whose record cannot be read as
// a whole.
func lineOfRecord(tx *ledger, id uuid.UUID) (line, bool) {
	row, _ := tx.Get(taskKey(id))
	texts := []string{row.Value}
	if row, ok := tx.Get(payloadKey(id)); ok {
		_, text, _ := splitPayload(row.Value)
		texts = append(texts, text)
	}
	for _, text := range texts {
		r := record.Read(text)
		format, name := r.Byte(), r.Text()
		if format != taskFormat || len(name) < 16 || !isName(name[16:]) {
			continue
		}
		if l := lineNamed(name); tx.accountOf(l).stats.InProgress > 0 {
			return l, true
		}
	}
	return "", false
}

// smallPayload is how long a payload may be to have the record in its row:
// whoever looks for that reads all of it.
const smallPayload = 4 << 10 // bytes

// putTask writes a task's record, and returns it. A new task's payload is written
// with it. If the task is ready the payload's row has the record, too: mostly it
// is claimed and changed before anybody looks for it.
func putTask(tx *ledger, t *Task) (text string) {
	if t.draft == nil {
		text = t.record()
		tx.Put(engine.Row{Key: taskKey(t.ID), Value: text})
		return text
	}
	w := t.draft.row // which has the payload
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

// payloadRow begins the value of a payload's row, with room for a record.
func payloadRow(payload []byte) record.Writer {
	w := record.New(len(payload) + recordRoom)
	w.Bytes(payload)
	return *w
}

// splitPayload gives what is in a payload's row: the payload, and the record of
// the task, or nothing if that had a row of its own from the beginning.
func splitPayload(value string) (payload, text string, ok bool) {
	r := record.Read(value)
	payload, text = r.Text(), r.Rest()
	return payload, text, r.Done() && payload != ""
}

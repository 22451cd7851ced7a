package queue

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/record"
)

// Tx is what the rules need of a transaction; an [engine.Tx] is one.
type Tx interface {
	Now() time.Time
	Get(key string) (engine.Row, bool)
	Scan(prefix string) iter.Seq[engine.Row]
	ScanFrom(prefix, from string) iter.Seq[engine.Row]
	Owned(owner uuid.UUID) iter.Seq[engine.Row]
	Put(row engine.Row)
	Touch(row engine.Row)
	Delete(key string)
}

// The prefixes of the key schema in the package doc.
const (
	statsPrefix    = "queue/"
	placeKey       = "queue"
	cursorPrefix   = "cursor/"
	claimantPrefix = "claimant/"
	givenPrefix    = "given/"
	claimPrefix    = "claim/"
	dropPrefix     = "drop/"
	frontPrefix    = "front/"

	taskPrefix     = engine.Cold + "task/"
	payloadPrefix  = engine.Cold + "payload/"
	resultPrefix   = engine.Cold + "result/"
	readyPrefix    = engine.Cold + "ready/"
	delayedPrefix  = engine.Cold + "delayed/"
	finishedPrefix = engine.Cold + "finished/"
	deadPrefix     = engine.Cold + "dead/"
	keyPrefix      = engine.Cold + "key/"
)

func dropKey(l line) string             { return dropPrefix + l.name() }
func claimantKeys(l line) string        { return claimantPrefix + l.name() + "\x00" }
func givenKey(claim uuid.UUID) string   { return givenPrefix + string(claim[:]) }
func taskKey(id uuid.UUID) string       { return taskPrefix + string(id[:]) }
func payloadKey(id uuid.UUID) string    { return payloadPrefix + string(id[:]) }
func resultKey(id uuid.UUID) string     { return resultPrefix + string(id[:]) }
func idemKey(l line, key string) string { return keyPrefix + l.name() + "\x00" + key }
func claimKey(session uuid.UUID, requestID string) string {
	return claimPrefix + string(session[:]) + requestID
}

// atTime sorts by time, then by id.
func atTime(at time.Time, id uuid.UUID) string {
	var b [24]byte
	binary.BigEndian.PutUint64(b[:], uint64(at.UnixNano()))
	copy(b[8:], id[:])
	return string(b[:])
}

// timeOf reads the instant off the end of a row's key that atTime ends.
func timeOf(row engine.Row) time.Time {
	tail := row.Key[max(0, len(row.Key)-24):]
	if len(tail) != 24 {
		panic(corrupt(row.Key, errEntry))
	}
	return time.Unix(0, int64(record.ReadFixed(tail[:8])))
}

// idOf reads an id off the row under key.
func idOf(key, id string) uuid.UUID {
	if len(id) != 16 {
		panic(corrupt(key, errEntry))
	}
	return uuid.UUID([]byte(id))
}

var errEntry = errors.New("not an entry of an index")

// corrupt is the fault of a row that cannot be read. The rules panic with it,
// for they have no errors of their own, and what runs them makes it one.
func corrupt(key string, err error) error {
	return fmt.Errorf("%w: %q: %w", engine.ErrCorrupt, key, err)
}

// caught makes a panic with a corrupt row an error.
func caught(err *error) {
	switch fault := recover().(type) {
	case nil:
	case error:
		if !errors.Is(fault, engine.ErrCorrupt) {
			panic(fault)
		}
		*err = fault
	default:
		panic(fault)
	}
}

// getTask reads a task.
func getTask(tx *ledger, id uuid.UUID) (t Task, ok bool) {
	ok = t.read(tx, id)
	return t, ok
}

// read reads a task's record, which stands behind its payload while it is as it
// was enqueued.
func (t *Task) read(tx *ledger, id uuid.UUID) (ok bool) {
	*t = Task{}
	row, ok := tx.Get(taskKey(id))
	text := row.Value
	if !ok {
		if row, ok = tx.Get(payloadKey(id)); ok {
			_, text = payloadOf(row)
		}
		if text == "" { // the record was apart, and has gone
			return false
		}
	}
	if err := t.decode(id, text, tx.account.line); err != nil {
		panic(corrupt(row.Key, err))
	}
	return true
}

// claimedTask is getTask for a task whose claim ends now: nothing else changes its
// record, so that is as it was when the transaction began.
func claimedTask(tx *ledger, id uuid.UUID) (t Task, ok bool) {
	row, ok := tx.ahead[id]
	if !ok {
		return getTask(tx, id)
	}
	delete(tx.ahead, id)
	if err := t.decode(id, row.Value, tx.account.line); err != nil {
		panic(corrupt(row.Key, err))
	}
	return t, true
}

// smallPayload is how long a payload may be to have the record in its row:
// whoever looks for that reads all of it.
const smallPayload = 4 << 10 // bytes

// putTask writes a task's record, and gives it. A new one's payload is written
// with it, and if it is ready it has no other row: it will be claimed and changed
// before anybody looks for it, mostly.
func putTask(tx *ledger, t *Task) (text string) {
	if t.draft == nil {
		text = t.record()
		tx.Put(engine.Row{Key: taskKey(t.ID), Value: text})
		return text
	}
	w := t.draft.row // of which the payload is there
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

// payloadOf gives what is in a payload's row: the payload, and the record of the
// task, or nothing if that was apart from the beginning.
func payloadOf(row engine.Row) (payload, text string) {
	r := record.Read(row.Value)
	payload, text = r.Text(), r.Rest()
	if !r.Done() {
		panic(corrupt(row.Key, errors.New("not a payload")))
	}
	return payload, text
}

// An idempotent enqueue is known by its key for as long as its task.
type enqueued struct {
	ID   uuid.UUID
	Hash [sha256.Size]byte
}

func getEnqueued(tx Tx, l line, key string) (e enqueued, ok bool) {
	row, ok := tx.Get(idemKey(l, key))
	if !ok {
		return e, false
	}
	if len(row.Value) != 16+sha256.Size {
		panic(corrupt(row.Key, errors.New("not an idempotency key's record")))
	}
	copy(e.ID[:], row.Value)
	copy(e.Hash[:], row.Value[16:])
	return e, true
}

func (e enqueued) put(tx Tx, l line, key string) {
	tx.Put(engine.Row{Key: idemKey(l, key), Value: string(e.ID[:]) + string(e.Hash[:])})
}

func encodeJSON(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("queue: %T: %v", v, err)) // plain structs: cannot fail
	}
	return string(b)
}

func decodeJSON[T any](row engine.Row) (v T) {
	if err := json.Unmarshal([]byte(row.Value), &v); err != nil {
		panic(corrupt(row.Key, err))
	}
	return v
}

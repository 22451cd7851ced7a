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

func bigEndian(n uint64) string {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], n)
	return string(b[:])
}

func fromBigEndian(s string) uint64 { return binary.BigEndian.Uint64([]byte(s)) }

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
	return time.Unix(0, int64(fromBigEndian(tail[:8])))
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

// getTask reads a task's record, which stands before its payload while it is as
// it was enqueued.
func getTask(tx Tx, id uuid.UUID) (Task, bool) {
	row, ok := tx.Get(taskKey(id))
	text := row.Value
	if !ok {
		if row, ok = tx.Get(payloadKey(id)); ok {
			text, _ = payloadOf(row)
		}
		if text == "" { // the record was apart, and has gone
			return Task{}, false
		}
	}
	t, err := decodeTask(id, text)
	if err != nil {
		panic(corrupt(row.Key, err))
	}
	return t, true
}

// smallPayload is how long a payload may be to have the record in its row:
// whoever looks for that reads all of it.
const smallPayload = 4 << 10 // bytes

// putTask writes a task's record. A new one's payload is written with it, and if
// it is ready it has no other row: it will be claimed and changed before anybody
// looks for it, mostly.
func putTask(tx Tx, t *Task, text string, isNew bool) {
	if !isNew {
		tx.Put(engine.Row{Key: taskKey(t.ID), Value: text})
		return
	}
	if t.State != Ready || t.Size > smallPayload {
		tx.Put(engine.Row{Key: taskKey(t.ID), Value: text})
		text = ""
	}
	w := record.New(4 + len(text) + len(t.payload))
	w.Text(text)
	w.Rest(t.payload)
	tx.Put(engine.Row{Key: payloadKey(t.ID), Value: w.String()})
}

// payloadOf gives what is in a payload's row: the record of the task, or nothing
// if that was apart from the beginning, and the payload.
func payloadOf(row engine.Row) (text, payload string) {
	r := record.Read(row.Value)
	text, payload = r.Text(), r.Rest()
	if !r.Done() {
		panic(corrupt(row.Key, errors.New("not a payload")))
	}
	return text, payload
}

// nextPlace numbers the places of all lines, so that the oldest of several
// queues can be told.
func nextPlace(tx Tx) uint64 {
	const block = 1 << 12 // how many places one durable write reserves
	next, reserved := places(tx)
	next++
	if next > reserved {
		reserved = next + block
		tx.Put(placesRow(reserved, reserved))
	}
	tx.Touch(placesRow(next, reserved))
	return next
}

func placesRow(last, reserved uint64) engine.Row {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:], last)
	binary.BigEndian.PutUint64(b[8:], reserved)
	return engine.Row{Key: placeKey, Value: string(b[:])}
}

// places are the last place given, and the last that is reserved.
func places(tx Tx) (last, reserved uint64) {
	row, ok := tx.Get(placeKey)
	if !ok {
		return 0, 0
	}
	if len(row.Value) != 16 {
		panic(corrupt(row.Key, errors.New("not a count of places")))
	}
	return fromBigEndian(row.Value[:8]), fromBigEndian(row.Value[8:])
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

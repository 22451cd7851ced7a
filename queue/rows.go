package queue

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"iter"
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
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

	taskPrefix     = engine.Cold + "task/"
	payloadPrefix  = engine.Cold + "payload/"
	resultPrefix   = engine.Cold + "result/"
	readyPrefix    = engine.Cold + "ready/"
	delayedPrefix  = engine.Cold + "delayed/"
	finishedPrefix = engine.Cold + "finished/"
	deadPrefix     = engine.Cold + "dead/"
	keyPrefix      = engine.Cold + "key/"
)

func statsKey(l line) string                  { return statsPrefix + string(l) }
func claimantKeys(l line) string              { return claimantPrefix + string(l) + "\x00" }
func givenKey(claim uuid.UUID) string         { return givenPrefix + string(claim[:]) }
func claimKey(se uuid.UUID, id string) string { return claimPrefix + string(se[:]) + id }
func taskKey(id uuid.UUID) string             { return taskPrefix + string(id[:]) }
func payloadKey(id uuid.UUID) string          { return payloadPrefix + string(id[:]) }
func resultKey(id uuid.UUID) string           { return resultPrefix + string(id[:]) }
func readyKeys(l line, priority int) string {
	return readyPrefix + string(l) + "\x00" + string(rune('0'+MaxPriority-priority))
}
func delayedKeys(l line) string  { return delayedPrefix + string(l) + "\x00" }
func finishedKeys(l line) string { return finishedPrefix + string(l) + "\x00" }
func deadKeys(l line) string     { return deadPrefix + string(l) + "\x00" }
func idemKey(l line, key string) string {
	return keyPrefix + string(l) + "\x00" + key
}
func cursorKey(l line, priority int) string {
	return cursorPrefix + string(l) + "\x00" + string(rune('0'+priority))
}

func bigEndian(n uint64) string { return string(binary.BigEndian.AppendUint64(nil, n)) }

// atTime sorts by time, then by id.
func atTime(at time.Time, id uuid.UUID) string {
	return bigEndian(uint64(at.UnixNano())) + string(id[:])
}

// timeOf reads the instant and the id off the end of a key that atTime ends.
func timeOf(key string) (time.Time, uuid.UUID) {
	tail := key[len(key)-24:]
	return time.Unix(0, int64(binary.BigEndian.Uint64([]byte(tail[:8])))), uuid.UUID([]byte(tail[8:]))
}

// readyKey is where a ready task stands.
func readyKey(t Task) string { return readyKeys(t.line(), t.Priority) + bigEndian(t.place) }

func getTask(tx Tx, id uuid.UUID) (Task, bool) {
	row, ok := tx.Get(taskKey(id))
	if !ok {
		return Task{}, false
	}
	t, err := decodeTask(id, row.Value)
	if err != nil {
		panic(fmt.Sprintf("queue: row %q: %v", row.Key, err))
	}
	return t, true
}

func putTask(tx Tx, t Task) { tx.Put(engine.Row{Key: taskKey(t.ID), Value: t.encode()}) }

func getStats(tx Tx, l line) Stats {
	row, ok := tx.Get(statsKey(l))
	if !ok {
		return Stats{Queue: l.queue()}
	}
	s, err := decodeStats(l.queue(), row.Value)
	if err != nil {
		panic(fmt.Sprintf("queue: row %q: %v", row.Key, err))
	}
	return s
}

// putStats writes the counts of a queue, and when it wants attention next: at
// the end of its earliest delay or retention.
func putStats(tx Tx, l line, s Stats, due time.Time) {
	if s.empty() {
		tx.Delete(statsKey(l))
		return
	}
	tx.Put(engine.Row{Key: statsKey(l), Value: s.encode(), Due: due})
}

func dueOf(tx Tx, l line) time.Time {
	row, _ := tx.Get(statsKey(l))
	return row.Due
}

// nextPlace numbers the places of all lines, so that the oldest of several
// queues can be told.
func nextPlace(tx Tx) uint64 {
	const block = 1 << 12 // how many places one durable write reserves
	var next, reserved uint64
	if row, ok := tx.Get(placeKey); ok {
		next, reserved = binary.BigEndian.Uint64([]byte(row.Value)), binary.BigEndian.Uint64([]byte(row.Value[8:]))
	}
	next++
	if next > reserved {
		reserved = next + block
		tx.Put(engine.Row{Key: placeKey, Value: bigEndian(reserved) + bigEndian(reserved)})
	}
	tx.Touch(engine.Row{Key: placeKey, Value: bigEndian(next) + bigEndian(reserved)})
	return next
}

// An idempotent enqueue is known by its key for as long as its task.
type enqueued struct {
	ID   uuid.UUID
	Hash [sha256.Size]byte
}

func getEnqueued(tx Tx, l line, key string) (e enqueued, ok bool) {
	row, ok := tx.Get(idemKey(l, key))
	if !ok || len(row.Value) != 16+sha256.Size {
		return e, false
	}
	copy(e.ID[:], row.Value)
	copy(e.Hash[:], row.Value[16:])
	return e, true
}

func (e enqueued) put(tx Tx, l line, key string) {
	tx.Put(engine.Row{Key: idemKey(l, key), Value: string(e.ID[:]) + string(e.Hash[:])})
}

// A claimant waits at the lines it named until it is given a task.
type claimant struct {
	Claim  uuid.UUID // the call
	Lines  [][]byte
	Place  uint64
	Holder holder
	TTL    time.Duration
}

func (c claimant) put(tx Tx) {
	for _, l := range c.Lines {
		tx.Touch(engine.Row{Key: claimantKeys(line(l)) + bigEndian(c.Place), Value: encodeJSON(c), Owner: c.Holder.Session})
	}
}

func (c claimant) remove(tx Tx) {
	for _, l := range c.Lines {
		tx.Delete(claimantKeys(line(l)) + bigEndian(c.Place))
	}
}

func claimants(tx Tx, l line) iter.Seq[claimant] {
	return func(yield func(claimant) bool) {
		for row := range tx.Scan(claimantKeys(l)) {
			if !yield(decodeJSON[claimant](row)) {
				return
			}
		}
	}
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
		panic(fmt.Sprintf("queue: row %q: %v", row.Key, err))
	}
	return v
}

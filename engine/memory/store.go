package memory

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/google/uuid"
)

// A Store keeps records on a medium that outlives the process. A record has a
// key, which is unique within its [Space], and a value. Only this package
// interprets the values.
//
// An error of Append or of Wait, and a call of the function that the store gets
// when it is opened, are final: the engine stops using the store and only
// closes it.
type Store interface {
	Reader
	// Keep makes the writes of a commit survive the end of the process, ahead of
	// the next batch, which will contain them or what is left of them. It
	// reports whether they do, and so do all earlier batches. If not, the caller
	// appends the batch. Keep is called by the goroutine that calls Append.
	Keep(writes []Write) bool
	// Append writes a batch after all earlier ones and returns its number,
	// which is greater than theirs. After a crash the store has a batch only if
	// it has all earlier ones. Reads that begin after Append has returned see
	// what the batch wrote. Append is called by one goroutine at a time.
	// Everyone waits for it, so it must not wait for the disk. The caller may
	// reuse the batch after Append has returned.
	Append(batch Batch) (number uint64, err error)
	// Wait returns when the batch with this number, and all earlier ones,
	// survive the end of the machine if disk is true, otherwise the end of the
	// process. It may wait longer than that in the second case. Any number of
	// goroutines may call Wait at once; they share the work.
	Wait(number uint64, disk bool) error
	// Snapshot returns a view of the present records, which later batches do
	// not change.
	Snapshot() Snapshot
	// Full reports whether the store is short of space, so that only writes
	// that free some, or need little, are allowed, and by how many bytes these may
	// make the state larger. It is called often, by one goroutine at a time.
	Full() (full bool, growth int)
	// Close releases the store. It must not be used after that.
	Close() error
}

// A Reader reads records. It is safe for concurrent use.
type Reader interface {
	// Get calls read with the value under key, and reports whether there is one.
	// The value is valid until read returns. If read returns an error, Get
	// returns it.
	Get(space Space, key string, read func(value []byte) error) (found bool, err error)
	// Iterate returns an iterator over the records of a space whose keys are at
	// least from and less than end. If end is empty, the limit is the end of the
	// space.
	Iterate(space Space, from, end string) (Iterator, error)
}

// A Snapshot is a Reader of the records at one instant. Its user must close it.
type Snapshot interface {
	Reader
	Close() error
}

// An Iterator goes through records in the order of their keys. Key and Value are
// valid until the next call of another method.
type Iterator interface {
	// Next moves to the next record. The first call moves to the first record.
	Next() bool
	Key() []byte
	Value() ([]byte, error)
	// Err returns the error because of which Next returned false, or nil if
	// there were no more records.
	Err() error
	Close() error
}

// Each calls visit with an iterator at each record from a key to an end (see
// [Reader]), until visit returns an error.
func Each(r Reader, space Space, from, end string, visit func(Iterator) error) (err error) {
	it, err := r.Iterate(space, from, end)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	for it.Next() {
		if err := visit(it); err != nil {
			return err
		}
	}
	if err := it.Err(); err != nil {
		return fmt.Errorf("engine: read the rows: %w", err)
	}
	return nil
}

// A Batch is a list of writes. Either all of them take effect, or none.
type Batch struct {
	Writes []Write // applied in this order
	Disk   bool    // callers will wait until it survives the machine
	Kept   bool    // all its commits were kept
}

// A Space is a separate range of keys.
type Space byte

const (
	Meta Space = 0 // the engine's own records
	Hot  Space = 1 // the rows of the working set
	Cold Space = 2 // the cold rows
)

// A Write sets one record, or deletes it.
type Write struct {
	Space  Space
	Key    string
	Delete bool
	// Once says of a deletion that the record was set exactly once since the
	// key last did not exist. Some stores can use that.
	Once bool

	value string
	owner uuid.UUID
	due   int64
}

// Size returns the size of the record's value in bytes.
func (w *Write) Size() int {
	n := 1 + len(w.value)
	if w.owner != uuid.Nil {
		n += len(w.owner)
	}
	if w.due != never {
		n += 8
	}
	return n
}

// A record's value is a row without its key:
//
//	byte      version<<4 | hasOwner | hasDue
//	[16]byte  owner, if hasOwner
//	int64     due in unix nanoseconds, big endian, if hasDue
//	...       the row's value
const (
	recordVersion = 1
	hasOwner      = 1 << 0
	hasDue        = 1 << 1
)

// Encode writes the value of the record into b, which has [Write.Size] bytes.
func (w *Write) Encode(b []byte) {
	head := byte(recordVersion << 4)
	n := 1
	if w.owner != uuid.Nil {
		head |= hasOwner
		n += copy(b[n:], w.owner[:])
	}
	if w.due != never {
		head |= hasDue
		binary.BigEndian.PutUint64(b[n:], uint64(w.due))
		n += 8
	}
	copy(b[n:], w.value)
	b[0] = head
}

// never is the due time of a row without one.
const never = math.MaxInt64

var errRecord = errors.New("not a record of a known version")

// decode decodes the value of a record. The result refers to b.
func decode(b []byte) (value []byte, owner uuid.UUID, due int64, err error) {
	due = never
	if len(b) == 0 || b[0]>>4 != recordVersion || b[0]&0xf&^(hasOwner|hasDue) != 0 {
		return nil, owner, due, errRecord
	}
	head, b := b[0], b[1:]
	if head&hasOwner != 0 {
		if len(b) < len(owner) {
			return nil, owner, due, errors.New("record ends within its owner")
		}
		if b = b[copy(owner[:], b):]; owner == uuid.Nil {
			return nil, owner, due, errors.New("record is owned by nobody")
		}
	}
	if head&hasDue != 0 {
		if len(b) < 8 {
			return nil, owner, due, errors.New("record ends within its due time")
		}
		if due, b = int64(binary.BigEndian.Uint64(b)), b[8:]; due == never {
			return nil, owner, due, errors.New("record is due never")
		}
	}
	return b, owner, due, nil
}

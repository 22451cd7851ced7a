package memory

import (
	"encoding/binary"
	"errors"
	"math"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
)

// A Store keeps records on something that outlives the process. A record has a
// key, which is unique within its [Space], and a value. What the values mean is
// this package's business; a store does not look into them.
//
// An error of Append, of Wait, or of the callback that a store gets when it is
// opened is final: the engine stops using the store and only closes it.
type Store interface {
	Reader
	// Append writes a batch behind all batches before it, and gives its number,
	// which is greater than theirs: after a crash the store has a batch only if
	// it has all earlier ones. Reads that begin after Append has returned find
	// what the batch wrote. It is called by one goroutine at a time, which holds
	// up everybody, and so does not wait for the disk. The batch is the caller's
	// again when Append returns.
	Append(batch Batch) (number uint64, err error)
	// Wait returns once the batch with a number, and each one before it, survives
	// the end of the machine, or else only of the process. A batch for the
	// process alone may have to be waited for as well. Wait may be called by any
	// number of goroutines, which share what it takes.
	Wait(number uint64, disk bool) error
	// Snapshot gives the records as they are now. Later batches do not change
	// what it shows.
	Snapshot() Snapshot
	// Full reports whether the store is short of room, so that only what
	// frees some, or takes little, may be written. It is asked often.
	Full() bool
	// Close releases the store. Nobody uses it any more then.
	Close() error
}

// A Reader reads records. It is safe for concurrent use.
type Reader interface {
	// Get calls read with the value under key, which is valid until read
	// returns, and reports whether there is one. An error of read is Get's.
	Get(space Space, key string, read func(value []byte) error) (found bool, err error)
	// Iterate gives an iterator over a space.
	Iterate(space Space) (Iterator, error)
}

// A Snapshot is a Reader of one instant, to be closed by its user.
type Snapshot interface {
	Reader
	Close() error
}

// An Iterator walks the records of a space in the order of their keys. Key and
// Value are valid until the next call of another method.
type Iterator interface {
	// Seek goes to the first record whose key is at least from and less than
	// end. An empty end is the end of the space.
	Seek(from, end string) bool
	// Next goes to the next record before the end that Seek was given.
	Next() bool
	Key() []byte
	Value() ([]byte, error)
	// Err tells why Seek or Next found nothing, if not for want of records.
	Err() error
	Close() error
}

// A Batch is a list of writes, all of which take effect, or none.
type Batch struct {
	Writes []Write // in their order
	Disk   bool    // it is going to be waited for until it survives the machine
}

// A Space is a range of keys of its own.
type Space byte

const (
	Meta Space = 0 // what the engine keeps for itself
	Hot  Space = 1 // the rows of the working set
	Cold Space = 2 // the cold rows
)

// A Write sets one record, or deletes it.
type Write struct {
	Space  Space
	Key    string
	Delete bool
	// Once says of a deletion that the record was set exactly once since the
	// key last had none, which some stores can make use of.
	Once bool

	value string
	owner uuid.UUID
	due   int64
}

// Size is how many bytes the value of the record has.
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

// Encode fills b, which has [Write.Size] bytes, with the value of the record.
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

// never is the due time of a row that has none.
const never = math.MaxInt64

var errRecord = errors.New("not a record of a known version")

// decode reads the value of a record. What it gives aliases b.
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
	if len(b) > engine.MaxValue {
		return nil, owner, due, errors.New("record's value is too large")
	}
	return b, owner, due, nil
}

package pebble

import (
	"encoding/binary"
	"errors"
	"math"
	"strings"
	"time"
	"unsafe"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
)

// A row is one record of the working set. A row that lives is in memory's table
// and rows, in its owner's list when it has one, and in memory.due when it is
// due ever. It fills 64 bytes, one of the allocator's sizes, which is why its
// key and its value are one piece of memory, and four numbers share a word.
type row struct {
	text  *byte  // the key, then the value
	word  uint64 // see the masks
	owner *owner // nil is nobody
	due   int64  // unix nanoseconds, or never

	prev, next  *row // in owner's list
	left, right *row // in a ring of memory.due
}

// What is in a row's word, from its low bits up: the length of the key, that of
// the value, whether the store has a record of the row, whether it was given
// only one since there was none, and 1 + the row's place in the transaction's
// writes, or 0.
const (
	keyBits   = 13
	valueBits = 24

	valueShift = keyBits
	storedBit  = 1 << (keyBits + valueBits)
	onceBit    = storedBit << 1
	dirtyShift = keyBits + valueBits + 2

	textMask = storedBit - 1
	keyMask  = 1<<keyBits - 1
	sizeMask = 1<<valueBits - 1
)

const (
	_ = uint(keyMask - engine.MaxKey)
	_ = uint(sizeMask - engine.MaxValue)
)

func (r *row) keyLen() int   { return int(r.word & keyMask) }
func (r *row) valueLen() int { return int(r.word >> valueShift & sizeMask) }
func (r *row) key() string   { return unsafe.String(r.text, r.keyLen()) }

func (r *row) value() string {
	n := r.keyLen()
	return unsafe.String(r.text, n+r.valueLen())[n:]
}

// setText gives r its key, the first keyLen bytes of text, and its value.
func (r *row) setText(text string, keyLen int) {
	r.text = unsafe.StringData(text)
	r.word = r.word&^textMask | uint64(keyLen) | uint64(len(text)-keyLen)<<valueShift
}

// text is a key and a value in memory of their own.
func text(key, value string) string {
	if value == "" {
		return strings.Clone(key) // to add nothing would not
	}
	return key + value
}

func (r *row) stored() bool { return r.word&storedBit != 0 }

func (r *row) dirty() int { return int(r.word >> dirtyShift) }

func (r *row) setDirty(n int) { r.word = r.word&(1<<dirtyShift-1) | uint64(n)<<dirtyShift }

// once reports whether the store has one record of the row, and no earlier ones
// that it has forgotten to forget. After an Open that is not known.
func (r *row) once() bool { return r.word&onceBit != 0 }

// settle notes what a commit has done to r.
func (r *row) settle(stored bool) {
	var bits uint64
	switch {
	case stored && !r.stored():
		bits = storedBit | onceBit
	case stored:
		bits = storedBit
	}
	r.word = r.word&textMask | bits
}

// was keeps what changes of r, to be restored.
func (r *row) was() before { return before{r.text, r.word & textMask, r.ownerID(), r.due} }

// A before is a row as it was.
type before struct {
	text  *byte
	word  uint64
	owner uuid.UUID
	due   int64
}

func (r *row) restore(b before) { r.text, r.word = b.text, r.word&^textMask|b.word }

// An owner is the head of the list of the rows it owns.
type owner struct {
	id   uuid.UUID
	head *row
}

// never is the due time of a row that has none.
const never = math.MaxInt64

// instant gives t as unix nanoseconds. Instants that do not fit, before 1678
// or after 2262, become the nearest that do.
func instant(t time.Time) int64 {
	const most = math.MaxInt64 / int64(time.Second)
	switch s := t.Unix(); {
	case t.IsZero():
		return never
	case s < -most:
		return math.MinInt64
	case s >= most:
		return never - 1
	}
	return t.UnixNano()
}

func (r *row) public() engine.Row {
	p := engine.Row{Key: r.key(), Value: r.value()}
	if r.owner != nil {
		p.Owner = r.owner.id
	}
	if r.due != never {
		p.Due = time.Unix(0, r.due).UTC()
	}
	return p
}

// A record is a row as the store keeps it, under its key:
//
//	byte      recordVersion<<4 | hasOwner | hasDue
//	[16]byte  owner, if hasOwner
//	int64     due in unix nanoseconds, big endian, if hasDue
//	...       value
const (
	recordVersion = 1
	hasOwner      = 1 << 0
	hasDue        = 1 << 1
)

func recordSize(value string, owner uuid.UUID, due int64) int {
	n := 1 + len(value)
	if owner != uuid.Nil {
		n += len(owner)
	}
	if due != never {
		n += 8
	}
	return n
}

// encodeRecord fills b, which has the record's size.
func encodeRecord(b []byte, value string, owner uuid.UUID, due int64) {
	head := byte(recordVersion << 4)
	n := 1
	if owner != uuid.Nil {
		head |= hasOwner
		n += copy(b[n:], owner[:])
	}
	if due != never {
		head |= hasDue
		binary.BigEndian.PutUint64(b[n:], uint64(due))
		n += 8
	}
	copy(b[n:], value)
	b[0] = head
}

var errRecord = errors.New("not a record of a known version")

// decodeRecord reads a record. Its value aliases b.
func decodeRecord(b []byte) (value []byte, owner uuid.UUID, due int64, err error) {
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

package postgres

import (
	"encoding/binary"
	"errors"

	"github.com/tidwall/btree"

	"github.com/leasehold/leasehold/engine/memory"
)

// An overlay has the last write of each record that was written after the
// records in the database.
type overlay struct {
	writes btree.Map[string, write] // by place
	size   int                      // approximate, in bytes
}

// A write is the last write of a record.
type write struct {
	value string
	gone  bool
	// fresh says that the overlay had no earlier write of the record before it
	// was set. If the record was set only once, no lower layer has it.
	fresh bool
}

// place returns the position of a record among those of all spaces.
func place(space memory.Space, key string) string { return string([]byte{byte(space)}) + key }

const writeSize = 64 // approximate size of a write in memory, without key and value

func (o *overlay) set(at, value string) {
	old, had := o.writes.Set(at, write{value: value, fresh: true})
	if had {
		o.size += len(value) - len(old.value)
		if !old.fresh {
			o.writes.Set(at, write{value: value})
		}
		return
	}
	o.size += writeSize + len(at) + len(value)
}

// delete notes that a record was deleted. If the record was set only once, and
// in this overlay, no lower layer has it, and the write is simply removed.
func (o *overlay) delete(at string, once bool) {
	old, had := o.writes.Get(at)
	if once && had && old.fresh && !old.gone {
		o.writes.Delete(at)
		o.size -= writeSize + len(at) + len(old.value)
		return
	}
	o.writes.Set(at, write{gone: true})
	if had {
		o.size -= len(old.value)
		return
	}
	o.size += writeSize + len(at)
}

func (o *overlay) copy() *overlay {
	return &overlay{writes: *o.writes.Copy(), size: o.size}
}

// add applies a batch and appends its encoded form to log.
func (o *overlay) add(log []byte, writes []memory.Write) []byte {
	for i := range writes {
		w := &writes[i]
		at := place(w.Space, w.Key)
		head := byte(w.Space) << 1
		if w.Delete {
			log = append(log, head|1)
			log = append(binary.AppendUvarint(log, uint64(len(w.Key))), w.Key...)
			o.delete(at, w.Once)
			continue
		}
		log = append(log, head)
		log = append(binary.AppendUvarint(log, uint64(len(w.Key))), w.Key...)
		n := w.Size()
		log = binary.AppendUvarint(log, uint64(n))
		begin := len(log)
		log = append(log, make([]byte, n)...)
		w.Encode(log[begin:])
		o.set(at, string(log[begin:]))
	}
	return log
}

var errBatch = errors.New("a batch of the log cannot be read")

// replay applies a batch from the log.
func (o *overlay) replay(log []byte) error {
	field := func() (string, bool) {
		n, used := binary.Uvarint(log)
		if used <= 0 || n > uint64(len(log)-used) {
			return "", false
		}
		text := string(log[used : used+int(n)])
		log = log[used+int(n):]
		return text, true
	}
	for len(log) > 0 {
		head := log[0]
		log = log[1:]
		key, ok := field()
		if !ok {
			return errBatch
		}
		at := place(memory.Space(head>>1), key)
		if head&1 != 0 {
			o.delete(at, false)
			continue
		}
		value, ok := field()
		if !ok {
			return errBatch
		}
		o.set(at, value)
	}
	return nil
}

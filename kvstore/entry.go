package kvstore

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/record"
	"github.com/leasehold/leasehold/registry"
)

// An Entry is one value under its path. Below /leases/ it is a lease: see
// [LeaseValue].
type Entry struct {
	Path      Path
	Value     json.RawMessage // compact; nil in a listing without values
	Version   uint64          // from 1, below 2^53
	UpdatedAt time.Time
	UpdatedBy string // path of the actor

	length int // of the value, whether or not it is here
}

// Limits bound one store. A zero field stands for its default.
type Limits struct {
	ValueBytes int   // in one value, compact; 1 MiB, never more than MaxValueBytes
	Bytes      int64 // in all paths and values; 64 MiB
	Entries    int   // 10 000
}

// MaxValueBytes is the most that [Limits] can allow one value, for it must fit
// a row and a message.
const MaxValueBytes = 3 << 20

func (l Limits) withDefaults() Limits {
	l.ValueBytes = min(cmp.Or(l.ValueBytes, 1<<20), MaxValueBytes)
	l.Bytes = cmp.Or(l.Bytes, 64<<20)
	l.Entries = cmp.Or(l.Entries, 10_000)
	return l
}

// A VersionError says that a write expected another version than the one
// there. Nothing was changed.
type VersionError struct {
	Path    Path
	Version uint64 // the one there; 0: there is no entry
}

func (e *VersionError) Error() string {
	if e.Version == 0 {
		return fmt.Sprintf("there is no entry at %s, which is version 0; read it again before you write", e.Path)
	}
	return fmt.Sprintf("%s is at version %d; read it again before you write", e.Path, e.Version)
}

// compact is the form in which a value is kept.
func compact(value json.RawMessage) ([]byte, error) {
	var b bytes.Buffer
	if err := json.Compact(&b, value); err != nil {
		return nil, &registry.ArgumentError{Argument: "value", Problem: "must be valid JSON: " + err.Error()}
	}
	if !utf8.Valid(b.Bytes()) {
		return nil, &registry.ArgumentError{Argument: "value", Problem: "must be valid UTF-8"}
	}
	return b.Bytes(), nil
}

const entryFormat = 2

// coldValue is from how many bytes on a value is kept in a cold row: it takes no
// memory, and no time to open.
const coldValue = 4 << 10

// put writes the entry under its key.
func (e Entry) put(tx engine.Tx, key string) {
	cold := len(e.Value) >= coldValue
	w := record.New(32 + len(e.UpdatedBy) + len(e.Value))
	w.Byte(entryFormat)
	w.Flags(cold)
	w.Uint(e.Version)
	w.Time(e.UpdatedAt)
	w.Text(e.UpdatedBy)
	w.Uint(uint64(len(e.Value)))
	if cold {
		tx.Put(engine.Row{Key: engine.Cold + key, Value: string(e.Value)})
	} else {
		tx.Delete(engine.Cold + key)
		w.Rest(string(e.Value))
	}
	tx.Put(engine.Row{Key: key, Value: w.String()})
}

// remove deletes the entry under key.
func remove(tx engine.Tx, key string) {
	tx.Delete(key)
	tx.Delete(engine.Cold + key)
}

var errEntryRecord = errors.New("not an entry record")

// decodeEntry reads what put wrote, without its path. A cold value is not read.
func decodeEntry(value string) (e Entry, cold bool, err error) {
	r := record.Read(value)
	format := r.Byte()
	r.Flags(&cold)
	e.Version, e.UpdatedAt, e.UpdatedBy = r.Uint(), r.Time(), strings.Clone(r.Text())
	length := r.Uint()
	rest := r.Rest()
	if !r.Done() || format != entryFormat || length > MaxValueBytes || !cold && uint64(len(rest)) != length || cold && rest != "" {
		return Entry{}, false, errEntryRecord
	}
	e.length = int(length)
	if !cold {
		e.Value = json.RawMessage(rest)
	}
	return e, cold, nil
}

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

// An Entry is a value and its path. Below /leases/ it describes a lease: see
// [LeaseValue].
type Entry struct {
	Path      Path
	Value     json.RawMessage // compact; nil in a listing without values
	Version   uint64          // from 1, below 2^53
	UpdatedAt time.Time
	UpdatedBy string // path of the actor

	length int // of the value, even if Value is not loaded
}

// Limits are the limits of one store. A zero field means its default.
type Limits struct {
	ValueBytes int   // in one value, compact; 1 MiB, at most MaxValueBytes
	Bytes      int64 // in all paths and values; 64 MiB
	Entries    int   // 10 000
}

// MaxValueBytes is the greatest ValueBytes of [Limits]. A value must fit into a
// row and a message.
const MaxValueBytes = 3 << 20

func (l Limits) withDefaults() Limits {
	l.ValueBytes = min(cmp.Or(l.ValueBytes, 1<<20), MaxValueBytes)
	l.Bytes = cmp.Or(l.Bytes, 64<<20)
	l.Entries = cmp.Or(l.Entries, 10_000)
	return l
}

// A VersionError is returned by a write that expected another version than the
// current one. Nothing was changed.
type VersionError struct {
	Path    Path
	Version uint64 // the current one; 0: there is no entry
}

func (e *VersionError) Error() string {
	if e.Version == 0 {
		return fmt.Sprintf("there is no entry at %s, which is version 0; read it again before you write", e.Path)
	}
	return fmt.Sprintf("%s is at version %d; read it again before you write", e.Path, e.Version)
}

// compact returns the stored form of a value.
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

// coldValue is the size in bytes from which a value is stored in a cold row,
// which takes no memory and no time when the state is opened.
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

// decodeEntry decodes what put wrote, without the path. It does not read a cold
// value.
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

package kvstore

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
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

	call uuid.UUID // that wrote it; see [Call]
}

// A Call names one request of one session. A client whose daemon went away
// under a request sends it again and cannot know whether it was carried out: a
// write that Resent finds done by this very call is answered, not repeated.
// The zero Call is one that nobody sends again.
type Call struct {
	ID     uuid.UUID
	Resent bool
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

const entryFormat = 1

// row is the entry as it is kept; its path is in the row's key.
func (e Entry) row(key string) engine.Row {
	b := make([]byte, 0, 48+len(e.UpdatedBy)+len(e.Value))
	b = append(b, entryFormat)
	b = binary.AppendUvarint(b, e.Version)
	b = binary.AppendVarint(b, e.UpdatedAt.UnixNano())
	b = append(b, e.call[:]...)
	b = binary.AppendUvarint(b, uint64(len(e.UpdatedBy)))
	b = append(b, e.UpdatedBy...)
	b = append(b, e.Value...)
	return engine.Row{Key: key, Value: string(b)}
}

var errEntryRecord = errors.New("not an entry record")

// decodeEntry reads what row wrote, without its path. The value is left as it
// lies in the row, for whoever wants a copy.
func decodeEntry(record string) (e Entry, value string, err error) {
	head := []byte(record[:min(len(record), 1+3*binary.MaxVarintLen64+len(e.call))])
	if len(head) == 0 || head[0] != entryFormat {
		return Entry{}, "", errEntryRecord
	}
	at := 1
	version, n := binary.Uvarint(head[at:])
	at += max(n, 0)
	updated, m := binary.Varint(head[at:])
	at += max(m, 0)
	at += copy(e.call[:], head[at:])
	length, k := binary.Uvarint(head[at:])
	at += max(k, 0)
	if n <= 0 || m <= 0 || k <= 0 || length > uint64(len(record)-at) {
		return Entry{}, "", errEntryRecord
	}
	by, value := record[at:at+int(length)], record[at+int(length):]
	e.Version, e.UpdatedAt, e.UpdatedBy = version, time.Unix(0, updated), strings.Clone(by)
	return e, value, nil
}

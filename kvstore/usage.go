package kvstore

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/record"
)

// Prefixes of the key schema in the package doc.
const (
	entryPrefix   = "kv/"
	usagePrefix   = "kvuse/"
	versionPrefix = "kvver/"
)

// A Usage is how much a store holds. It is updated with every write and never
// recounted; [Check] verifies it.
type Usage struct {
	Entries int64
	Bytes   int64 // of paths and values
}

func (s *Store) usage(tx engine.Tx) Usage {
	row, ok := tx.Get(usagePrefix + s.layer)
	if !ok {
		return Usage{}
	}
	return decodeUsage(row.Value)
}

func (s *Store) putUsage(tx engine.Tx, u Usage) {
	tx.Put(engine.Row{Key: usagePrefix + s.layer, Value: record.Fixed(uint64(u.Entries)) + record.Fixed(uint64(u.Bytes))})
}

// decodeUsage decodes what putUsage wrote. For anything else it returns a value
// that fails Check.
func decodeUsage(value string) Usage {
	if len(value) != 16 {
		return Usage{-1, -1}
	}
	return Usage{int64(record.ReadFixed(value)), int64(record.ReadFixed(value[8:]))}
}

// nextVersion returns a version greater than any that was issued in p's space
// before.
func (s *Store) nextVersion(tx engine.Tx, p Path) uint64 {
	key := versionPrefix + s.layer + p.space()
	version := uint64(1)
	if row, ok := tx.Get(key); ok {
		version = decodeVersion(row.Value) + 1
	}
	tx.Put(engine.Row{Key: key, Value: record.Fixed(version)})
	return version
}

// decodeVersion returns 0 for a value that nextVersion cannot have written.
func decodeVersion(value string) uint64 {
	if len(value) != 8 {
		return 0
	}
	return record.ReadFixed(value)
}

// Check reports contradictions between the rows of the stores of all layers: an
// entry that cannot be read, has an invalid path or has a version that its space has
// not issued; a usage that is not the sum of the entries. The error names the key and
// is an [engine.ErrCorrupt].
func Check(tx engine.Tx) error {
	sum := make(map[string]Usage)
	for row := range tx.Scan(entryPrefix) {
		id, size, err := checkEntry(tx, row)
		if err != nil {
			return fmt.Errorf("%w: %q: %v", engine.ErrCorrupt, row.Key, err)
		}
		u := sum[id]
		sum[id] = Usage{u.Entries + 1, u.Bytes + size}
	}
	for row := range tx.Scan(usagePrefix) {
		id := strings.TrimPrefix(row.Key, usagePrefix)
		if have := decodeUsage(row.Value); have != sum[id] {
			return fmt.Errorf("%w: %q: says %+v where the entries are %+v", engine.ErrCorrupt, row.Key, have, sum[id])
		}
		delete(sum, id)
	}
	for id, u := range sum {
		return fmt.Errorf("%w: %q: missing, where the entries are %+v", engine.ErrCorrupt, usagePrefix+id, u)
	}
	for row := range tx.Scan(versionPrefix) {
		if decodeVersion(row.Value) == 0 {
			return fmt.Errorf("%w: %q: not a version record", engine.ErrCorrupt, row.Key)
		}
	}
	return nil
}

// Recover checks the stores when a state is opened. It changes nothing.
func Recover(ctx context.Context, eng engine.Engine) error { return eng.View(ctx, Check) }

// checkEntry checks one row, and returns its layer and its size.
func checkEntry(tx engine.Tx, row engine.Row) (layer string, size int64, err error) {
	layer, at, ok := splitEntryKey(row.Key)
	if !ok {
		return "", 0, errEntryRecord
	}
	p, err := ParsePath(at)
	if err == nil {
		err = checkWritable(p)
	}
	if err != nil {
		return "", 0, err
	}
	e, cold, err := decodeEntry(row.Value)
	if err != nil {
		return "", 0, err
	}
	if !cold && !json.Valid(e.Value) {
		return "", 0, fmt.Errorf("its value is not JSON")
	}
	given := uint64(0)
	if counter, ok := tx.Get(versionPrefix + layer + p.space()); ok {
		given = decodeVersion(counter.Value)
	}
	if e.Version == 0 || e.Version > given {
		return "", 0, fmt.Errorf("has version %d, but the last given in %s is %d", e.Version, p.space(), given)
	}
	return layer, int64(len(at) + e.length), nil
}

func splitEntryKey(key string) (layer, path string, ok bool) {
	rest := strings.TrimPrefix(key, entryPrefix)
	if len(rest) < layerLen {
		return "", "", false
	}
	_, err := uuid.Parse(rest[:layerLen])
	return rest[:layerLen], rest[layerLen:], err == nil
}

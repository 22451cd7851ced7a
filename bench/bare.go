package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync/atomic"

	pebbledb "github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/pebble"
)

// startBare starts the limit: a Pebble with the engine's options. It commits what the
// queue commits, as many bytes under keys in the same order, and does nothing else.
func startBare(ctx context.Context, p place) (*contender, error) {
	enqueued, claimed, submitted, err := recordCommits(ctx)
	if err != nil {
		return nil, err
	}
	const memtable = 32 << 20
	o := &pebbledb.Options{
		FS:                 logFS{vfs.Default, memtable},
		FormatMajorVersion: pebbledb.FormatNewest,
		MemTableSize:       memtable, MemTableStopWritesThreshold: 4,
		CacheSize: 64<<20 + 4*memtable,
		Logger:    quiet{},
	}
	o.Experimental.TombstoneDenseCompactionThreshold = -1
	o.Levels[0].FilterPolicy = bloom.FilterPolicy(10)
	db, err := pebbledb.Open(filepath.Join(p.dir, p.name), o)
	if err != nil {
		return nil, err
	}
	// Both count the same tasks: the enqueued tasks are then claimed.
	var in, out atomic.Uint64
	commits := func(n *atomic.Uint64, count int, commits ...commit) step {
		return func(context.Context, int) (int, error) {
			last := n.Add(uint64(count))
			for _, c := range commits {
				batch := db.NewBatch()
				for i := range uint64(count) {
					c.replay(batch, last-i, i == 0)
				}
				if err := batch.Commit(pebbledb.Sync); err != nil {
					return 0, err
				}
				if err := batch.Close(); err != nil {
					return 0, err
				}
			}
			return count, nil
		}
	}
	return &contender{
		version: fmt.Sprintf("pebble %s, commits of %d bytes for an enqueue, %d for a claim, %d for a submit",
			module("github.com/cockroachdb/pebble/v2"), enqueued.size(), claimed.size(), submitted.size()),
		steps: map[operation]step{
			enqueue:     commits(&in, 1, enqueued),
			cycle:       commits(&out, 1, claimed, submitted),
			enqueueMany: commits(&in, many, enqueued),
			cycleMany:   commits(&out, many, claimed, submitted),
		},
		close: db.Close,
	}, nil
}

// A commit is what one transaction of the queue wrote.
type commit []change

type change struct {
	key   string // of the task that was recorded; see replay
	id    uuid.UUID
	value []byte // nil: a deletion
}

// size is of the batch.
func (c commit) size() int {
	n := 12
	for _, w := range c {
		n += 3 + len(w.key) + len(w.value)
	}
	return n
}

// replay writes c into b for the n-th task: where a key has the id of the task
// that was recorded it gets another, and where it has its place or the time it
// gets n, so that keys are as random and as ordered as the queue's. What is of
// no task is written for the first of a batch alone, as the queue does.
func (c commit) replay(b *pebbledb.Batch, n uint64, first bool) {
	id := idOf(n)
	for _, w := range c {
		key := strings.Replace(w.key, string(w.id[:]), string(id[:]), 1)
		key = strings.Replace(key, w.id.String(), id.String(), 1)
		k := []byte(key)
		switch {
		case bytes.HasPrefix(k[1:], []byte("~ready/")):
			binary.BigEndian.PutUint64(k[len(k)-8:], n)
		case bytes.HasPrefix(k[1:], []byte("~completed/")):
			binary.BigEndian.PutUint64(k[len(k)-24:], n)
		case key == w.key && !first:
			continue
		}
		if w.value == nil {
			_ = b.Delete(k, nil) // fails for an indexed batch only
		} else {
			_ = b.Set(k, w.value, nil)
		}
	}
}

// idOf is the n-th of a sequence of ids that rise, as the queue's do, and end
// at random.
func idOf(n uint64) (id uuid.UUID) {
	x := n * 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	binary.BigEndian.PutUint64(id[:], n)
	binary.BigEndian.PutUint64(id[8:], x^x>>31)
	return id
}

// recordCommits tells what the queue writes for one task.
func recordCommits(ctx context.Context) (enqueued, claimed, submitted commit, err error) {
	eng, err := pebble.Open(pebble.Options{Dir: "recorded", FS: vfs.NewMem()})
	if err != nil {
		return nil, nil, nil, err
	}
	rec := &recorder{Engine: eng, stored: make(map[string]bool)}
	h, err := newHouse(rec)
	if err != nil {
		return nil, nil, nil, err
	}
	defer func() { err = errors.Join(err, h.close()) }()
	// Run a few, because the first one also writes rows that later ones do not.
	for range 3 {
		for range 2 {
			rec.last = nil
			if _, err := h.Enqueue(ctx, h.newTask()); err != nil {
				return nil, nil, nil, err
			}
		}
		enqueued, rec.last = rec.last, nil
		tasks, err := h.claim(ctx, 0, 1)
		if err != nil {
			return nil, nil, nil, err
		}
		claimed, rec.last = rec.last, nil
		if err := h.submit(ctx, 0, tasks[0]); err != nil {
			return nil, nil, nil, err
		}
		submitted = rec.last
	}
	if len(enqueued) == 0 || len(claimed) == 0 || len(submitted) == 0 {
		return nil, nil, nil, errors.New("nothing was recorded")
	}
	for _, c := range []commit{enqueued, claimed, submitted} {
		c.named()
	}
	return enqueued, claimed, submitted, nil
}

// named finds the task of a commit. Every commit writes the task's record.
func (c commit) named() {
	for _, w := range c {
		_, id, ok := strings.Cut(w.key[1:], "/")
		if ok && (strings.HasPrefix(w.key[1:], "~payload/") || strings.HasPrefix(w.key[1:], "~task/")) {
			for i := range c {
				c[i].id = uuid.UUID([]byte(id))
			}
		}
	}
}

// A recorder records the durable writes of the last Update, as the engine encodes
// them. Only one goroutine may use it.
type recorder struct {
	engine.Engine
	last   commit
	stored map[string]bool // hot rows that were ever Put
}

func (r *recorder) Update(ctx context.Context, fn func(engine.Tx) error) error {
	t := &recorderTx{recorder: r}
	err := r.Engine.Update(ctx, func(tx engine.Tx) error {
		t.Tx = tx
		return fn(t)
	})
	if len(t.writes) > 0 {
		r.last = t.writes
	}
	return err
}

type recorderTx struct {
	engine.Tx
	*recorder
	writes commit
}

func (t *recorderTx) Put(row engine.Row) {
	t.Tx.Put(row)
	size := 1 + len(row.Value)
	if row.Owner != uuid.Nil {
		size += len(row.Owner)
	}
	if !row.Due.IsZero() {
		size += 8
	}
	value := make([]byte, size)
	copy(value[size-len(row.Value):], row.Value)
	t.note(change{key: "\x01" + row.Key, value: value})
	t.stored[row.Key] = true
}

func (t *recorderTx) Delete(key string) {
	t.Tx.Delete(key)
	if t.stored[key] {
		t.note(change{key: "\x01" + key})
		delete(t.stored, key)
	}
}

// note keeps the last write of a row.
func (t *recorderTx) note(w change) {
	for i := range t.writes {
		if t.writes[i].key == w.key {
			t.writes[i] = w
			return
		}
	}
	t.writes = append(t.writes, w)
}

// A logFS creates a log with its full size, as the engine does, because an fsync of a
// growing file takes longer.
type logFS struct {
	vfs.FS
	size int64
}

func (l logFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := l.FS.Create(name, category)
	if err == nil && strings.HasSuffix(name, ".log") && f.Fd() != vfs.InvalidFd {
		layOut(f.Fd(), l.size)
	}
	return f, err
}

func (l logFS) Unwrap() vfs.FS { return l.FS }

type quiet struct{}

func (quiet) Infof(string, ...any)  {}
func (quiet) Errorf(string, ...any) {}
func (quiet) Fatalf(f string, args ...any) {
	panic(fmt.Sprintf(f, args...))
}

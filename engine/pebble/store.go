package pebble

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/memory"
)

// A store is a [memory.Store] in a Pebble database. The first byte of a stored
// key is its space.
type store struct {
	reader
	memory.Failure
	db   *pebble.DB
	fs   *stateFS
	lock *pebble.Lock
	logf func(format string, args ...any)

	// Used by one goroutine at a time: by Open, then by calls of Append.
	number   uint64 // of the last batch; 0 until the logs or the journal have shown one
	journal  journal
	boot     string            // identifies the boot of the machine; "" if unknown
	logBytes int64             // size of the logs when opened
	marks    map[string]string // the records under engine.Mark, by key
	syncs    syncs
	flushed  <-chan struct{} // closed after the last flush for want of room; nil: there was none
}

// Keep implements [memory.Store]: it writes the commit to the journal.
func (s *store) Keep(writes []memory.Write) bool {
	if s.noteMarks(writes) != nil {
		return false
	}
	onDisk := s.syncs.onDisk.Load()
	b := s.batch(writes, s.number+1, onDisk)
	kept := s.journal.write(s.number+1, onDisk, b.Repr())
	_ = b.Close() // never fails
	s.journal.parts = s.journal.parts || kept
	return kept
}

// Append implements [memory.Store]. It writes the batch to the journal if it
// can. A batch that is not in the journal, or must survive the machine, is
// durable only after a sync.
func (s *store) Append(batch memory.Batch) (number uint64, err error) {
	if err := errors.Join(s.flushIfFull(), s.noteMarks(batch.Writes)); err != nil {
		return 0, err
	}
	s.number++
	onDisk := s.syncs.onDisk.Load()
	b := s.batch(batch.Writes, s.number, onDisk)
	switch j := &s.journal; {
	case batch.Kept, !j.parts && !(batch.Disk && b.Len() >= largeBatch) && j.write(s.number, onDisk, b.Repr()):
		j.last.Store(s.number)
	}
	s.journal.parts = false
	err = errors.Join(s.db.Apply(b, pebble.NoSync), b.Close())
	s.syncs.appended.Store(s.number)
	return s.number, err
}

// batch returns writes as a batch of Pebble, with its entry for the log.
func (s *store) batch(writes []memory.Write, number, onDisk uint64) *pebble.Batch {
	b := s.db.NewBatch()
	_ = b.LogData(appendEntry(make([]byte, 0, 24), number, onDisk), nil) // never fails
	for i := range writes {
		encode(b, &writes[i])
	}
	_ = b.Set(numberRow, binary.BigEndian.AppendUint64(make([]byte, 0, 8), number), nil)
	return b
}

func encode(b *pebble.Batch, w *memory.Write) {
	var op *pebble.DeferredBatchOp
	switch n := 1 + len(w.Key); {
	case w.Delete && w.Once:
		op = b.SingleDeleteDeferred(n)
	case w.Delete:
		op = b.DeleteDeferred(n)
	default:
		op = b.SetDeferred(n, w.Size())
		w.Encode(op.Value)
	}
	op.Key[0] = byte(w.Space)
	copy(op.Key[1:], w.Key)
	_ = op.Finish() // fails for an indexed batch only
}

// syncs lets all callers that wait for the disk share syncs: during one, the
// batches of the next one accumulate.
type syncs struct {
	appended, onDisk atomic.Uint64 // the last batch that Pebble has, and the last one known to be on disk

	mu   sync.Mutex
	busy bool
	over sync.Cond // on mu; signals that busy has ended
}

// slowSync is how long a sync takes before an operator is told.
const slowSync = 5 * time.Second

func (s *store) Wait(number uint64, disk bool) error {
	if !disk && number <= s.journal.last.Load() || number <= s.syncs.onDisk.Load() {
		return nil
	}
	g := &s.syncs
	g.mu.Lock()
	defer g.mu.Unlock()
	for number > g.onDisk.Load() {
		if err := s.Failed(); err != nil {
			return err
		}
		if g.busy {
			g.over.Wait()
			continue
		}
		g.busy = true
		g.mu.Unlock()
		to := g.appended.Load()
		told := time.AfterFunc(slowSync, func() {
			s.logf("engine: the disk has stored nothing for %v: whoever waits for it goes on waiting; reads, and leases of sessions on this machine, go on", slowSync)
		})
		err := s.db.LogData(nil, pebble.Sync)
		if !told.Stop() {
			s.logf("engine: the disk stores again what is written")
		}
		g.mu.Lock()
		g.busy = false
		g.over.Broadcast()
		// If the disk fails, the store has failed before Pebble learns of it,
		// see stateFS. So if there is no failure after the sync, everything up
		// to it has reached the disk.
		if err = cmp.Or(s.Failed(), err); err != nil {
			return err
		}
		g.onDisk.Store(to)
	}
	return nil
}

// settle waits for a running sync of a store that has failed.
func (g *syncs) settle() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for g.busy {
		g.over.Wait()
	}
}

func (s *store) Snapshot() memory.Snapshot {
	return reader{s.db.NewSnapshot()}
}

func (s *store) Close() error {
	if err := s.fs.checkPlace(); err != nil {
		s.Fail(err)
	}
	var err error
	if s.Failed() == nil {
		err = s.writeMarks()
	}
	s.stopReserve()
	s.syncs.settle()
	err = errors.Join(err, s.db.Close())
	return errors.Join(err, s.closeJournal(err == nil), s.lock.Close())
}

var formatKey = append([]byte{byte(memory.Meta)}, "format"...)

const formatVersion = 3

// Format is the format number of the files of a state. A version that has a smaller number
// does not open them.
const Format = formatVersion

// checkFormat refuses a state that a later version of this package has written,
// and otherwise writes the present version. It returns the version found, or 0. The
// version is written before the file of marks: if only that is there, the state has lost
// its beginning, as with a manifest whose end was cut.
func (s *store) checkFormat() (found byte, err error) {
	if found, err = s.format(); err == nil && found == 0 {
		var marks []byte
		if marks, err = s.readMarksFile(); err == nil && marks != nil {
			err = fmt.Errorf("%w: the beginning of the state is missing: its manifest names no file that has it", engine.ErrCorrupt)
		}
	}
	if err == nil && found == 0 {
		err = s.db.Set(formatKey, []byte{formatVersion}, pebble.Sync)
	}
	return found, err
}

// format returns the version of the files, or 0 if they have none yet.
func (s *store) format() (found byte, err error) {
	_, err = s.Get(memory.Meta, "format", func(value []byte) error {
		if len(value) != 1 || value[0] < formatVersion { // no lower one was released
			return fmt.Errorf("%w: key %q", engine.ErrCorrupt, "format")
		}
		found = value[0]
		return nil
	})
	if err == nil && found > formatVersion {
		err = fmt.Errorf("%w: its files have format %d, and this version reads formats up to %d", engine.ErrNewer, found, formatVersion)
	}
	return found, err
}

// corruption turns Pebble's error about damaged files into an
// [engine.ErrCorrupt].
func corruption(err error) error {
	if err != nil && pebble.IsCorruptionError(err) {
		return fmt.Errorf("%w: %s", engine.ErrCorrupt, words(err))
	}
	return err
}

// words returns what an error of Pebble says, without the name of a wrapper that Pebble
// writes into the words.
func words(err error) string {
	return strings.TrimSuffix(err.Error(), "\n<corruption detail carrier>")
}

// damaged reports whether Pebble cannot open a state because a file of it is missing or
// has been cut. Pebble does not count these among its errors about damaged files.
func damaged(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || strings.Contains(err.Error(), "object size mismatch")
}

// A reader is a [memory.Reader] of a Pebble database or of a snapshot.
type reader struct{ pebble.Reader }

func (r reader) Get(space memory.Space, key string, read func(value []byte) error) (found bool, err error) {
	stored := append(append(make([]byte, 0, 128), byte(space)), key...)
	value, closer, err := r.Reader.Get(stored)
	if errors.Is(err, pebble.ErrNotFound) {
		return false, nil
	}
	if errors.Is(err, syscall.EIO) { // a bad sector stays bad, and only what is in it is lost
		return false, fmt.Errorf("%w: %w", engine.ErrCorrupt, err)
	}
	if err != nil {
		return false, corruption(err)
	}
	err = read(value)
	return err == nil, errors.Join(err, closer.Close())
}

func (r reader) Iterate(space memory.Space, from, end string) (memory.Iterator, error) {
	// The bounds prevent Pebble from reading deleted records beyond the end.
	lower, upper := append([]byte{byte(space)}, from...), []byte{byte(space) + 1}
	if end != "" {
		upper = append([]byte{byte(space)}, end...)
	}
	it, err := r.NewIter(&pebble.IterOptions{LowerBound: lower, UpperBound: upper})
	if err != nil {
		return nil, corruption(err)
	}
	return &iterator{it: it}, nil
}

type iterator struct {
	it    *pebble.Iterator
	begun bool
}

func (i *iterator) Next() bool {
	if !i.begun {
		i.begun = true
		return i.it.First()
	}
	return i.it.Next()
}

func (i *iterator) Key() []byte { return i.it.Key()[1:] }
func (i *iterator) Err() error  { return corruption(i.it.Error()) }

func (i *iterator) Value() ([]byte, error) {
	value, err := i.it.ValueAndErr()
	return value, corruption(err)
}

func (i *iterator) Close() error { return i.it.Close() }

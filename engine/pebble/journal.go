package pebble

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/memory"
)

// A journal holds the latest batches, for callers that need them to survive the
// process only. Pebble writes its log on a separate goroutine; passing a batch
// to it and waiting for it takes two switches, 30 µs on an idle machine. The
// journal is a mapped file, so the goroutine that commits only copies the batch
// into memory that the system keeps when the process ends. Pebble gets the batch
// later, together with others, without a sync, and so may have it in memory
// only; Open reads it from the journal. There a batch of several commits is in
// as many parts, with the same number.
//
// A batch goes to the journal only if all earlier ones have reached the
// operating system, through the journal or the log. So the journal also holds
// batches that will be synced: callers that read what they wrote, or commit
// after them, then need not wait for the disk. Large ones, and those that do
// not fit, are only synced. After that the log has everything that the journal
// has, and the journal starts over.
//
//	[4]byte  CRC-32 of what follows, Castagnoli, little endian
//	uint32   the length of the batch, little endian
//	...      the batch in Pebble's format, with its entry (see log.go)
//
// After the last batch come eight zeros.
type journal struct {
	f     vfs.File
	end   int64
	last  atomic.Uint64 // the number of its last whole batch; all batches up to it have reached the operating system
	parts bool          // it has commits of the next batch
	buf   []byte
}

const (
	journalFile = "journal"
	journalSize = 1 << 20
	largeBatch  = 16 << 10 // a batch to be synced of at least this size is not journaled
	journalHead = 8
)

// What the journal needs to know from Pebble: the number of the last batch,
// which each batch sets, and the boot of the machine in which the journal
// began.
const (
	numberKey = "number"
	bootKey   = "boot"
)

var (
	numberRow = append([]byte{byte(memory.Meta)}, numberKey...)
	bootRow   = append([]byte{byte(memory.Meta)}, bootKey...)
)

// write appends a batch, or a part of one, and reports whether it could. The log
// has all batches up to inLog.
func (j *journal) write(number, inLog uint64, batch []byte) bool {
	last := j.last.Load()
	if last <= inLog && !j.parts {
		j.end = 0
	}
	if max(last, inLog) != number-1 || j.end+int64(2*journalHead+len(batch)) > journalSize {
		return false
	}
	b := append(j.buf[:0], make([]byte, journalHead)...)
	b = append(b, batch...)
	binary.LittleEndian.PutUint32(b[4:], uint32(len(batch)))
	binary.LittleEndian.PutUint32(b, crc32.Checksum(b[4:], castagnoli))
	b = append(b, make([]byte, journalHead)...)
	if _, err := j.f.WriteAt(b, j.end); err != nil {
		return false
	}
	j.buf = b
	j.end += int64(len(b) - journalHead)
	return true
}

// openJournal passes to Pebble what the journal has and Pebble lacks, if the
// machine has not restarted since. After a restart the log may lack batches on
// which those of the journal depend, and no client of that time is left.
func (s *store) openJournal() error {
	same := false
	_, err := s.Get(memory.Meta, bootKey, func(boot []byte) error { same = s.boot != "" && string(boot) == s.boot; return nil })
	if err != nil || !same {
		return err
	}
	content, err := s.fs.read(journalFile)
	if err == nil && content == nil { // the state was closed
		return nil
	}
	if err == nil {
		err = s.replay(content)
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", journalFile, err)
	}
	return nil
}

// startJournal begins an empty journal after the last batch. It replaces the
// old one first, because the numbers of batches there that could not be used
// may be given again.
func (s *store) startJournal() (err error) {
	path := s.fs.path(journalFile)
	if s.journal.f, err = s.fs.Create(path, vfs.WriteCategoryUnspecified); err != nil {
		return err
	}
	if _, err = s.journal.f.Write(make([]byte, journalSize)); err != nil { // so that its space is reserved before the disk is full
		return err
	}
	if f, ok := s.journal.f.(*stateFile); ok { // not after a failure
		f.mapFile(journalSize)
	}
	s.syncs.appended.Store(s.number)
	s.syncs.onDisk.Store(s.number)
	b := s.db.NewBatch()
	return errors.Join(
		b.LogData(appendEntry(nil, s.number, s.number), nil), // the log says where it begins
		b.Set(numberRow, binary.BigEndian.AppendUint64(nil, s.number), nil),
		b.Set(bootRow, []byte(s.boot), nil),
		s.db.Apply(b, pebble.Sync), b.Close())
}

// replay passes to Pebble what the journal has and Pebble lacks. Of a damaged
// journal it passes nothing on: the next start would take the readable parts of a
// batch for the whole batch, and not see the damage any more.
func (s *store) replay(content []byte) error {
	had, err := s.lastNumber()
	if err != nil {
		return err
	}
	has, end, err := s.checkJournal(content, had)
	if err != nil {
		return err
	}
	if s.number = max(s.number, has); has == had {
		return nil
	}
	for at, last := 0, had; at < end; {
		b := s.db.NewBatch() // of all the parts with a number, because a start may be killed, too
		for at < end {
			number, part, _ := journaled(content[at:])
			if number > last && !b.Empty() {
				break
			}
			at += journalHead + len(part)
			if number <= had {
				continue
			}
			last = number
			commit := s.db.NewBatch()
			if err := errors.Join(commit.SetRepr(part), b.Apply(commit, nil), commit.Close()); err != nil {
				return err
			}
		}
		if err := errors.Join(s.db.Apply(b, pebble.NoSync), b.Close()); err != nil {
			return err
		}
	}
	return s.db.LogData(nil, pebble.Sync)
}

// checkJournal returns the number of the last batch in the journal, and where the
// readable batches end. had is the last batch that Pebble has. If batches follow
// behind damage, it returns an error.
func (s *store) checkJournal(content []byte, had uint64) (has uint64, end int, err error) {
	has = had
	for number, part, ok := journaled(content); ok; number, part, ok = journaled(content[end:]) {
		if number > has+1 {
			return 0, 0, fmt.Errorf("%w: commits %d to %d are missing", engine.ErrCorrupt, has+1, number-1)
		}
		has = max(has, number)
		end += journalHead + len(part)
	}
	if end+journalHead <= len(content) && binary.LittleEndian.Uint64(content[end:]) == 0 {
		return has, end, nil
	}
	for next := end + 1; next < len(content); next++ {
		if number, _, ok := journaled(content[next:]); ok && number >= max(has, had+1) {
			return 0, 0, fmt.Errorf("%w: damaged at offset %d, behind commit %d, and commit %d follows", engine.ErrCorrupt, end, has, number)
		}
	}
	if end < len(content) {
		s.logf("engine: the end of %s, from offset %d, cannot be read; if the daemon was killed just there, nothing is missing; otherwise the file was damaged and what came behind commit %d is lost", journalFile, end, has)
	}
	return has, end, nil
}

// journaled reads the batch at the beginning of b.
func journaled(b []byte) (number uint64, batch []byte, ok bool) {
	if len(b) < journalHead {
		return 0, nil, false
	}
	size := int64(binary.LittleEndian.Uint32(b[4:]))
	if size == 0 || size > int64(len(b)-journalHead) ||
		crc32.Checksum(b[4:journalHead+size], castagnoli) != binary.LittleEndian.Uint32(b) {
		return 0, nil, false
	}
	batch = b[journalHead:][:size:size]
	number, _, ok = readEntry(batch)
	return number, batch, ok
}

// lastNumber returns the number of the last batch that Pebble has.
func (s *store) lastNumber() (number uint64, err error) {
	_, err = s.Get(memory.Meta, numberKey, func(value []byte) error {
		if len(value) != 8 {
			return fmt.Errorf("%q has %d bytes", numberKey, len(value))
		}
		number = binary.BigEndian.Uint64(value)
		return nil
	})
	return number, err
}

// closeJournal closes the journal, and removes it if the log has everything.
func (s *store) closeJournal(logged bool) error {
	if s.journal.f == nil {
		return nil
	}
	err := s.journal.f.Close()
	if logged {
		err = errors.Join(err, s.fs.Remove(s.fs.path(journalFile)))
	}
	return err
}

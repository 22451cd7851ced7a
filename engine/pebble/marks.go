package pebble

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"maps"
	"slices"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/memory"
	"github.com/leasehold/leasehold/engine/record"
)

// marksFile keeps, apart from the log and the tables, what must never go back:
// the rows under [engine.Mark], such as the highest token that may have been
// issued, and the number of commits. It is written and synced before a commit
// that changes a mark reaches the log.
//
// It also has its own time of birth, which a copy of the file does not share.
//
//	[4]byte  CRC-32 of what follows, Castagnoli, little endian
//	uint     version, 2
//	uint     when the file was created, in nanoseconds; 0 if that is not known
//	uint     the number of the last commit known when it was written
//	uint     how many marks follow
//	text     the key of a mark, and then
//	text     its record
const marksFile = "marks"

const marksVersion = 2

// marks is the content of the file.
type marks struct {
	birth, number uint64
	rows          map[string]string // records by key
}

func (m marks) encode() []byte {
	w := record.New(64)
	w.Uint(marksVersion)
	w.Uint(m.birth)
	w.Uint(m.number)
	w.Uint(uint64(len(m.rows)))
	for _, key := range slices.Sorted(maps.Keys(m.rows)) {
		w.Text(key)
		w.Text(m.rows[key])
	}
	content := w.String()
	b := binary.LittleEndian.AppendUint32(nil, crc32.Checksum([]byte(content), castagnoli))
	return append(b, content...)
}

func decodeMarks(b []byte) (m marks, ok bool) {
	if len(b) < 4 || crc32.Checksum(b[4:], castagnoli) != binary.LittleEndian.Uint32(b) {
		return m, false
	}
	r := record.Read(string(b[4:]))
	version := r.Uint()
	m.birth, m.number = r.Uint(), r.Uint()
	m.rows = make(map[string]string)
	for n := r.Uint(); n > 0 && !r.Done(); n-- {
		key := r.Text()
		m.rows[key] = r.Text()
	}
	return m, version == marksVersion && r.Done()
}

// readMarksFile returns the content of the file, or nil if there is none.
func (s *store) readMarksFile() ([]byte, error) {
	b, err := s.fs.read(marksFile)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", marksFile, err)
	}
	return b, nil
}

// readMarks reads the file. If it is damaged, readMarks logs that, and known is
// false.
func (s *store) readMarks() (m marks, known bool, err error) {
	m.rows = make(map[string]string)
	b, err := s.readMarksFile()
	if err != nil || b == nil {
		return m, false, err
	}
	if read, ok := decodeMarks(b); ok {
		return read, true, nil
	}
	s.logf("engine: the file %s is damaged; it is written again from the rows, which have the same numbers unless they are damaged too", marksFile)
	return m, false, nil
}

// reconcile sets both the marks and the store to the greater of their values. It
// does not write the file yet, and returns when that was created. It reports if the
// store's were lower, because then the store has lost its latest commits.
func (s *store) reconcile(found bool) (birth uint64, err error) {
	m, known, err := s.readMarks()
	if err != nil {
		return 0, err
	}
	if !known && found {
		s.logf("engine: the file %s is missing or unreadable; whether the latest commits are all here cannot be told", marksFile)
	}
	if known && 0 < s.number && s.number < m.number {
		s.logf("engine: the log ends with commit %d, but %d was written: the latest commits are lost; tokens go on behind those that were issued", s.number, m.number)
	}
	s.number = max(s.number, m.number)
	for _, key := range slices.Sorted(maps.Keys(m.rows)) {
		if err := s.raise(key, m.rows[key]); err != nil {
			return 0, err
		}
	}
	s.marks = m.rows
	return m.birth, memory.Each(s, memory.Hot, engine.Mark, engine.Mark+"\xff", func(it memory.Iterator) error {
		value, err := it.Value()
		m.rows[string(it.Key())] = string(value)
		return err
	})
}

// noteCopy gives a state that was copied by other means than a backup the row of
// one, unless it has that already: the original, or another copy, may have gone
// on. It does so if the marks are in another file than they were written to.
func (s *store) noteCopy(written uint64) error {
	f, err := s.fs.FS.Open(s.fs.path(marksFile))
	if err != nil {
		return nil // there is none, or it could not be read
	}
	found := birthOf(f)
	_ = f.Close()
	if written == 0 || found == 0 || written == found {
		return nil
	}
	return memory.NoteCopy(s)
}

// birthOf returns when a file was created, or 0 if that is not known.
func birthOf(f vfs.File) uint64 {
	if f.Fd() == vfs.InvalidFd {
		return 0
	}
	return birth(f.Fd())
}

// raise sets a row to a record, unless its record is at least as great.
func (s *store) raise(key, value string) error {
	var stored string
	_, err := s.Get(memory.Hot, key, func(v []byte) error { stored = string(v); return nil })
	if err != nil || stored >= value {
		return err
	}
	s.logf("engine: %q was behind what was noted outside the log and is set to that: the log has lost its latest commits", strings.TrimPrefix(key, engine.Mark))
	return s.db.Set(append([]byte{byte(memory.Hot)}, key...), []byte(value), pebble.Sync)
}

func (s *store) writeMarks() error {
	return s.writeFile(marksFile, func(f vfs.File) []byte {
		return marks{birthOf(f), s.number, s.marks}.encode()
	})
}

// noteMarks updates the file if a batch changes marks.
func (s *store) noteMarks(writes []memory.Write) error {
	changed := false
	for i := range writes {
		w := &writes[i]
		if w.Space != memory.Hot || !strings.HasPrefix(w.Key, engine.Mark) {
			continue
		}
		changed = true
		if w.Delete {
			delete(s.marks, w.Key)
			continue
		}
		b := make([]byte, w.Size())
		w.Encode(b)
		s.marks[w.Key] = string(b)
	}
	if !changed {
		return nil
	}
	return s.writeMarks()
}

package pebble

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/leasehold/leasehold/engine"
)

// Pebble takes the first record of the last log that it cannot read for the end
// of the log. Mostly that is right, because a crash cut off what was being
// written. But if the file was damaged, everything after the damage would be
// lost silently. So logs are checked before Pebble reads them.
//
// Each batch has an entry in the log with its number, and with the number of
// the last batch that was known to be on disk when it was written. If part of
// the log cannot be read, but a later part can, and its entries say that a
// missing batch was on disk, then the log was damaged and the state is not
// opened. Otherwise no batch is missing that had to survive the machine: the
// rest of the log is cut off, and that is reported.
//
// The entry is Pebble's LogData, which is written to the log and nowhere else:
//
//	"lh"      marks the entry as ours
//	uvarint   the number of the batch
//	uvarint   the number of the last batch known to be on disk
const entryMark = "lh"

func appendEntry(b []byte, number, onDisk uint64) []byte {
	b = append(b, entryMark...)
	return binary.AppendUvarint(binary.AppendUvarint(b, number), onDisk)
}

// readEntry reads the entry at the beginning of a batch in Pebble's format: a
// sequence number, a count, and then the entries, each beginning with its kind.
func readEntry(batch []byte) (number, onDisk uint64, ok bool) {
	const header, kindLogData = 12, 3
	if len(batch) <= header || batch[header] != kindLogData {
		return 0, 0, false
	}
	size, n := binary.Uvarint(batch[header+1:])
	if n <= 0 || size > uint64(len(batch)-header-1-n) {
		return 0, 0, false
	}
	entry, ours := strings.CutPrefix(string(batch[header+1+n:][:size]), entryMark)
	if !ours {
		return 0, 0, false
	}
	number, n = binary.Uvarint([]byte(entry))
	if n <= 0 {
		return 0, 0, false
	}
	onDisk, m := binary.Uvarint([]byte(entry[n:]))
	return number, onDisk, m > 0
}

const (
	logBlock = 32 << 10 // a log is a sequence of blocks; no chunk crosses two

	// Kinds of chunks: 1 to 4 have a header of 7 bytes and are used in
	// manifests; 5 to 8 have 11 bytes, with the log's number; 9 to 12 have 19.
	// Of each four, the first is a whole record; the others are its first,
	// middle and last part.
	mostKind  = 12
	closeKind = 5 // also ends a log; then it has the next number and no content
)

var headerSizes = [...]int{7, 11, 19}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// A chunk is a record or a part of one, within a block.
type chunk struct {
	part int // 0 whole, 1 first, 2 middle, 3 last
	data []byte
	end  int // where the next one begins in the block
}

// readChunk reads the chunk at an offset of a block. number is that of the log,
// or 0 for a manifest.
func readChunk(block []byte, at int, number uint32) (c chunk, ok bool) {
	if at+7 > len(block) {
		return c, false
	}
	b := block[at:]
	kind := int(b[6])
	if kind < 1 || kind > mostKind || (number == 0) != (kind <= 4) {
		return c, false
	}
	header := headerSizes[(kind-1)/4]
	size := header + int(binary.LittleEndian.Uint16(b[4:]))
	if size > len(b) || number != 0 && binary.LittleEndian.Uint32(b[7:]) != number {
		return c, false
	}
	sum := crc32.Checksum(b[6:size], castagnoli)
	if sum = (sum>>15 | sum<<17) + 0xa282ead8; sum != binary.LittleEndian.Uint32(b) {
		return c, false
	}
	return chunk{(kind - 1) % 4, b[header:size], at + size}, true
}

// closes reports whether a log ends at an offset of a block because it was
// closed.
func closes(block []byte, at int, number uint32) bool {
	return number != 0 && at+headerSizes[1] <= len(block) && block[at+6] == closeKind &&
		binary.LittleEndian.Uint16(block[at+4:]) == 0 && binary.LittleEndian.Uint32(block[at+7:]) == number+1
}

// padding reports whether only zeros follow in a block, and too few bytes for a
// chunk.
func padding(block []byte, at int) bool {
	return at+headerSizes[2] > len(block) && !slices.ContainsFunc(block[at:], func(b byte) bool { return b != 0 })
}

// A logScan is what was found in a log or a manifest.
type logScan struct {
	good    int64  // length of its beginning that consists of whole records
	whole   bool   // nothing follows these: the log was closed, or the file ends
	tail    bool   // something follows that is not a record and not only zeros
	later   bool   // a readable record follows
	closed  bool   // after that the log was closed, and so it was on disk
	onDisk  uint64 // the last batch that was on disk according to a later record
	next    uint64 // the number of the first batch behind the damage; 0: none can be read
	first   uint64 // the numbers of the first and the last batch in the good part
	last    uint64
	begun   bool // the good part has an entry, so last says what is there, even if it is 0
	scanned int64

	record []byte // the part of a record that was read so far
	broken bool   // the good part has ended
}

// scanLog reads a log, or a manifest if number is 0.
func scanLog(r io.Reader, number uint32) (s logScan, err error) {
	block := make([]byte, logBlock)
	for !s.whole && !s.closed {
		n, err := io.ReadFull(r, block)
		if n == 0 {
			s.whole = !s.broken && len(s.record) == 0
			if err == io.EOF {
				err = nil
			}
			return s, err
		}
		s.block(block[:n], number)
		s.scanned += int64(n)
	}
	return s, nil
}

func (s *logScan) block(block []byte, number uint32) {
	at := 0
	for !s.broken && at < len(block) {
		if len(s.record) == 0 && closes(block, at, number) {
			s.whole = true
			return
		}
		if padding(block, at) {
			return
		}
		c, ok := readChunk(block, at, number)
		if begins := c.part <= 1; !ok || begins != (len(s.record) == 0) {
			s.broken = true
			break
		}
		at = c.end
		s.record = append(s.record, c.data...)
		if c.part == 1 && len(c.data) == 0 {
			s.record = append(s.record, 0) // so that the record counts as begun
		}
		if c.part == 0 || c.part == 3 {
			if n, _, ok := readEntry(s.record); ok {
				s.begun = true
				if s.last = n; s.first == 0 {
					s.first = n
				}
			}
			s.record = s.record[:0]
			s.good = s.scanned + int64(at)
		}
	}
	for ; at < len(block); at++ { // after damage, chunks may be at any offset
		if block[at] != 0 {
			s.tail = true
		}
		if s.later && closes(block, at, number) {
			s.closed = true
			return
		}
		c, ok := readChunk(block, at, number)
		if !ok || len(c.data) == 0 {
			continue
		}
		s.later = true
		if n, onDisk, ok := readEntry(c.data); ok && c.part <= 1 {
			s.onDisk = max(s.onDisk, onDisk)
			if s.next == 0 {
				s.next = n
			}
		}
		at = c.end - 1
	}
}

// inspect checks the logs and the manifest before Pebble reads them. It cuts
// off what a crash left at the end of the last log, and sets s.number to the
// number of the last batch.
func (s *store) inspect() error {
	names, err := s.fs.List(s.fs.dir)
	if err != nil {
		return nil // a new state
	}
	slices.Sort(names) // by number: the numbers of logs have six digits
	var logs []string
	for _, name := range names {
		number, ok := strings.CutSuffix(name, ".log")
		log, live := strings.CutSuffix(name, liveMark)
		switch {
		case live && !slices.Contains(names, log):
			return fmt.Errorf("%w: %s is missing", engine.ErrCorrupt, log)
		case ok:
			if _, err := strconv.ParseUint(number, 10, 32); err == nil {
				logs = append(logs, name)
			}
		case strings.HasPrefix(name, "MANIFEST-"):
			if err := s.inspectManifest(name); err != nil {
				return err
			}
		}
	}
	for i, name := range logs {
		marked := slices.Contains(names, name+liveMark)
		if err := s.inspectLog(name, i == len(logs)-1, marked); err != nil {
			return err
		}
	}
	return nil
}

func (s *store) scan(name string, number uint32) (scan logScan, err error) {
	f, err := s.fs.Open(s.fs.path(name), vfs.SequentialReadsOption)
	if err != nil {
		return scan, err
	}
	scan, err = scanLog(f, number)
	_ = f.Close()
	if err != nil {
		return scan, fmt.Errorf("read %s: %w", name, err)
	}
	return scan, nil
}

func (s *store) inspectManifest(name string) error {
	scan, err := s.scan(name, 0)
	switch {
	case err != nil:
		return err
	case scan.later:
		return fmt.Errorf("%w: %s is damaged at offset %d", engine.ErrCorrupt, name, scan.good)
	case scan.tail:
		s.logf("engine: the end of %s, from offset %d, cannot be read and is ignored; after a crash of the machine that is expected, otherwise the file was damaged and tasks or leases may be missing", name, scan.good)
	}
	return nil
}

// missesSynced reports whether batches that were on disk are missing behind the good part
// of a log. before is the last batch in earlier logs; 0: there are none. Without either
// nobody knows which batch the log began with, and what a later entry calls on disk may
// all be in tables by now: then only a batch of this log proves it.
func (s *logScan) missesSynced(before uint64) bool {
	if !s.begun && before == 0 {
		return s.next > 0 && s.onDisk >= s.next
	}
	return s.onDisk > max(s.last, before)
}

// inspectLog checks one log. Pebble keeps some old logs for reuse and deletes
// later ones, so commits may be missing before a marked log. That is no damage,
// because a log that must exist has a mark.
func (s *store) inspectLog(name string, last, marked bool) error {
	number, _ := strconv.ParseUint(strings.TrimSuffix(name, ".log"), 10, 32)
	scan, err := s.scan(name, uint32(number))
	if err != nil {
		return err
	}
	if !marked && s.number != 0 && scan.first > s.number+1 {
		return fmt.Errorf("%w: commits %d to %d are missing before %s", engine.ErrCorrupt, s.number+1, scan.first-1, name)
	}
	before := s.number
	s.number = max(s.number, scan.last)
	s.logBytes += scan.good
	switch {
	case scan.whole, !last: // Pebble itself refuses an older log that does not end properly
		return nil
	case scan.later && (scan.closed || scan.missesSynced(before)):
		return fmt.Errorf("%w: %s is damaged at offset %d, behind commit %d; commits that were answered follow there", engine.ErrCorrupt, name, scan.good, scan.last)
	case scan.later, scan.tail:
		s.logf("engine: the end of %s, from offset %d, cannot be read and is cut off; after a crash that is expected, and no commit is missing that had to survive it; otherwise the file was damaged and commits after number %d are lost", name, scan.good, scan.last)
	}
	if scan.later || scan.tail {
		return s.cut(name, scan.good)
	}
	return nil
}

func (s *store) cut(name string, size int64) error {
	content, err := s.fs.read(name)
	if err != nil {
		return err
	}
	return s.writeFile(name, func(vfs.File) []byte { return content[:size] })
}

// writeFile replaces a file, or creates it. After a crash the file has either
// the old content or the new. When writeFile returns nil, the new content is on
// disk.
func (s *store) writeFile(name string, content func(vfs.File) []byte) error {
	path := s.fs.path(name)
	f, err := s.fs.Create(path+".new", vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	_, err = f.Write(content(f))
	if err == nil {
		err = f.Sync()
	}
	err = errors.Join(err, f.Close())
	if err == nil {
		err = s.fs.Rename(path+".new", path)
	}
	if err != nil {
		return err
	}
	return s.fs.syncDir()
}

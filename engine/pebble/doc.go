// Package pebble is the embedded engine: package memory on top of a Pebble
// store on the local disk. This package is the store.
//
// This package serves the daemon and is not public: programs use package
// client of this module.
//
// # Schema
//
//	0x00 "format"   the version of this schema, one byte
//	0x00 "clock"    the running clock (see package memory)
//	0x00 "number"   of the last batch
//	0x00 "boot"     the boot of the machine in which the journal began
//	0x01 key        one row: its owner, due time and value (see memory.Write)
//	0x02 key        one cold row, likewise; Open does not read these
//
// A row that was written to the store only once, such as the lease on a task,
// is deleted by what Pebble calls a single deletion: row and deletion disappear
// when they meet, mostly before they reach a table. A normal deletion stays in
// the tables until it has passed all of them.
//
// # The log
//
// A batch that must survive the machine is written to Pebble's log and synced.
// A commit that must survive only the process is first written to the file
// "journal", and later to Pebble, in a batch with others, both without a sync:
// see journal.go. A second later package memory waits for the disk in any case.
// The journal also holds batches that are not synced yet, so
// that other callers do not wait for a slow disk.
// After the end of the process nothing is missing. After the end of the machine
// at most the last commits are missing, and only those that did not need the
// disk.
//
// A failure of the disk is final but does not end the process, as it would with
// Pebble alone: see stateFS. After [engine.ErrFailed], the state must be closed
// and opened again.
//
// # Damage
//
// Each batch has an entry in the log with its number (see log.go). Logs and
// manifests are checked before Pebble reads them. A log that lost its beginning
// or its middle is refused with [engine.ErrCorrupt]. If a crash has torn the
// end of a log, the end is cut off, and this is reported. A removed log is
// refused too: an empty file beside it says that it must exist. The journal is
// checked in the same way, unless the machine has restarted since: then it is
// ignored. Rows under [engine.Mark], and the number of the last batch, are also
// kept in the file "marks" (see marks.go). Open uses the greater values, and
// reports if those of the log were lower. The file also has its own time of
// birth. A copy was born at another time, so Open puts [engine.CopyRow] into it.
// One kind of damage cannot be detected: after a kill, whether the last records
// of a log were damaged rather than torn.
//
// # A full disk
//
// While the disk has less than 64 MiB, or a quarter of its size if that is
// less, an Update that makes the state larger returns [engine.ErrFull]. A file
// named "reserve" holds 16 MiB. A write that finds no space gets a part of it, see
// full.go.
// If there is no space for what Open writes, Open returns an error that says
// so.
//
// # What was measured
//
// On two cores and an ext4 disk with an fsync of 0.1 ms.
//
// The log. An fsync of a file that grows also writes its size to the file
// system's journal. Appending 180 bytes took 135 µs when the file grew, even
// with blocks allocated beyond its size as Pebble does. It took 95 µs when the
// file had its size from the start, and no less when it was full of zeros.
// Through Pebble these are 6 900 and 9 500 commits a second from one goroutine,
// 27 000 and 36 000 from eight. So a log gets its size before it is written, 8
// MiB at a time by fallocate, in 0.2 ms.
//
// The journal. While each local commit went to Pebble alone, an acquire and a
// release over the socket took 71 µs of processor time each, and without that
// 52: the skip list, the log and the compactions of rows that were soon deleted
// took the rest. With a write to the file, a commit of one row took 7.3 µs; with the
// file mapped into memory it takes 3.6.
//
// The memtable. With 8 MiB, half of the processor time went into compactions,
// because data that is soon written again or deleted, as everything about a
// task is, reached the tables first. Batches of a hundred tasks took 11.2 µs a
// task with 8 MiB, 8.2 with 32 and 7.7 with 64; claiming and submitting a task
// took 31, 25 and 23. A memtable begins small and doubles, so a state with
// little work uses little memory. The limit is 32 MiB.
//
// The tables, which are read at run time for cold rows. This was measured with
// four million tasks of three rows each, 1.6 GB. In Pebble's default cache of 8
// MiB a read of a random state took 14 µs with a million tasks; with 64 MiB, in
// which the index blocks fit, it took 8. With four million tasks it took 39 µs
// without filters and 18 with 10 bits a key. Neither disabling compression nor
// blocks of 16 KiB made anything faster.
//
// Deletions. Pebble compacts a table of which a tenth is deletions early, so
// that scans skip fewer of them. A scan of a queue begins after them anyway.
// While a thousand claims of a million expired each second, such a compaction
// also read and wrote the tables below, of 40 MB for one of 2. The ten seconds
// in which a memtable filled up took 3.2 s of a core with these compactions,
// and 1.0 without.
package pebble

// Package pebble is the embedded engine: package memory on top of a Pebble store
// on the local disk. This package is the store.
//
// # Schema
//
//	0x00 "format"   the version of this schema, one byte
//	0x00 "clock"    the running clock (see package memory)
//	0x00 "number"   of the last batch
//	0x00 "boot"     in which life of the machine the journal began
//	0x01 key        one row: its owner, due time and value (see memory.Write)
//	0x02 key        one cold row, likewise; Open does not look at these
//
// A row that the store was given once, such as the lease on a task, is deleted by
// what Pebble calls a single deletion: the two go when they meet, mostly before
// they come to a table, where a deletion stays until it has passed all of them.
//
// # The log
//
// A batch that must survive the machine is written to Pebble's log and synced. One
// that must survive the process only is written to the file "journal" first, by one
// write and without a sync, and Pebble gets it without one: see journal.go. The journal
// also has what is not synced yet, so that nobody else waits for a disk that is slow. After
// the end of the process nothing is missing, and after the end of the machine at
// most a suffix of batches that did not need the disk is missing.
//
// A failure of the disk is final but does not end the process, as it would with
// a bare Pebble: see stateFS. The answer to [engine.ErrFailed] is to Close and
// Open again.
//
// # Damage
//
// Each batch has an entry in the log with its number (see log.go), and logs and
// manifests are looked at before Pebble reads them. A log that lost its beginning
// or its middle is refused with [engine.ErrCorrupt]. The end of a log that a crash
// has torn is cut off, and reported. A log that was removed is refused too: an
// empty file beside it says that it must be there. The journal is treated alike,
// unless the machine has started again since: then it is left out. Rows under [engine.Mark], and the number of
// the last batch, are also kept in the file "marks" (see marks.go); Open takes
// the greater and reports where the log had less. What cannot be told: after a
// kill, that the very last records of a log were damaged rather than torn.
//
// # A full disk
//
// While the disk has less than 64 MiB, or a quarter of it if that is less, an
// Update that makes the state larger answers [engine.ErrFull]. A file named
// "reserve" holds 16 MiB, which a write that finds no room releases. Open answers
// with the cause if there is no room for what it writes.
//
// # What was measured
//
// On two cores and an ext4 disk with an fsync of 0.1 ms.
//
// The log. An fsync of a file that grows also writes its size to the file
// system's journal. Appending 180 bytes took 135 µs when the file grew, also
// with its blocks allocated beyond its size as Pebble does; 95 µs when the
// file had its size from the start, and no less when it was full of zeros.
// Through Pebble that is 6 900 against 9 500 lone commits a second, 27 000
// against 36 000 from eight goroutines. So a log gets its size before it is
// written, 8 MiB at a time by fallocate, in 0.2 ms.
//
// The memtable. Half of the processor's time went into compactions when it had
// 8 MiB: what is written and soon written again or deleted, as all of a task is,
// came to the tables first. Batches of a hundred tasks took 11.2 µs a task with
// 8 MiB, 8.2 with 32 and 7.7 with 64; to claim and submit them took 31, 25 and 23.
// It begins small and doubles, so a state with little to do has little. It has
// 32 MiB.
//
// The tables, which are read at run time for cold rows. With four million tasks
// of three rows each and 1.6 GB, in Pebble's default cache of 8 MiB a state at
// random took 14 µs already at a million, and 8 with 64 MiB, as the blocks of
// indexes fit; at four million it took 39 µs without filters and 18 with 10
// bits a key. Without compression, or with blocks of 16 KiB, nothing was faster.
//
// Deletions. Pebble compacts a table of which a tenth is deletions before its
// time, so that scans pass over fewer. Whoever scans a queue begins behind them.
// While a thousand claims of a million expired each second, such a compaction
// read and wrote the tables below as well, of 40 MB for one of 2: the ten seconds
// in which a memtable filled up took 3.2 s of a core, and 1.0 without.
package pebble

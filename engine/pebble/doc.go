// Package pebble is the embedded engine: memory for the working set, a Pebble
// store for what must outlive the process.
//
// # How it keeps the contract
//
// Every row but the cold ones is in memory, under one lock, so transactions are
// serial and a read costs no I/O. An Update runs its function against memory and
// notes what was Put or Deleted, both inside the lock. Outside it, that becomes
// a Pebble batch. Batches are appended to the log in the order they were begun,
// and each waits for the log's fsync, which any number share; Updates that come
// while the batch before theirs is being appended share a batch as well, with
// one record of a row that several of them changed, such as a count. Since the
// log is in order, a commit that is durable has everything durable that it was
// built on. A transaction that writes nothing durable waits for the last
// commit before it, and so tells of nothing that a crash could undo.
//
// Cold rows are in the store alone. A transaction may follow another whose
// batch is not applied yet, so what is written of cold rows is kept in an
// overlay until it is; what a transaction reads is the store with that on it.
// It reads the store with the lock held, and everybody waits for a disk that
// has to be asked: rules keep small records apart from large ones, and leave
// the large ones to Get, which reads without the lock, or to Read, which waits
// for no commit either: a claim that reads its payload with Get has the syncs of
// others to wait for, after its own.
//
// Sixteen thousand small cold rows that were written or read last are kept in
// memory as well: a task that is submitted was mostly claimed just before.
//
// A row that the store was given once, such as the lease on a task, is deleted by
// what Pebble calls a single deletion: the two go when they meet, mostly before
// they come to a table, where a deletion stays until it has passed all of them.
//
// A commit that fails leaves memory ahead of the store. There is no way back
// from that but to read the store again, so the failure is final, and whether
// the commits under way at that instant are found afterwards is not known.
// Nor does a failure end the process, as it would with a bare Pebble: see
// stateFS. The answer to [engine.ErrFailed] is to Close and Open again.
//
// # Schema
//
//	0x00 "format"   the version of this schema, one byte
//	0x01 key        one row: its owner, due time and value (see row.go)
//	0x02 key        one cold row, likewise; Open does not look at these
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
// written, 8 MiB at a time by fallocate, in 0.2 ms. To fill it with zeros would
// halve an fsync of 12 kB, from 0.2 ms to 0.1, but costs 120 ms for each 64 MiB,
// and through Pebble, which uses its logs again, no gain was left.
//
// The memtable. Half of the processor's time went into compactions when it had
// 8 MiB: what is written and soon written again or deleted, as all of a task is,
// came to the tables first. Batches of a hundred tasks took 11.2 µs a task with
// 8 MiB, 8.2 with 32 and 7.7 with 64; to claim and submit them took 31, 25 and 23.
// Keys in random order, as ids once were, outgrow the caches in a large one, which
// cost a fifth then; those that rise do not. It begins small and doubles, so a
// state with little to do has little. It has 32 MiB.
//
// The tables, which are read at run time for cold rows. With four million tasks
// of three rows each and 1.6 GB, in Pebble's default cache of 8 MiB a state at
// random took 14 µs already at a million, and 8 with 64 MiB, as the blocks of
// indexes fit; at four million it took 39 µs without filters and 18 with 10
// bits a key, a payload by Get 50 and 32. The next row from a cursor took 4 to
// 6 µs at any number, with the deletion of it, and a scan 0.15 µs a row, so an
// iterator is not kept for longer than a transaction: it would not see what
// was applied since. Without compression, or with blocks of 16 KiB, nothing
// was faster. Memory for a task is nothing, and Open reads what the log has.
//
// Deletions. Pebble compacts a table of which a tenth is deletions before its
// time, so that scans pass over fewer. Whoever scans a queue begins behind them.
// While a thousand claims of a million expired each second, such a compaction
// read and wrote the tables below as well, of 40 MB for one of 2: the ten seconds
// in which a memtable filled up took 3.2 s of a core, and 1.0 without; the others
// take 0.3.
//
// The indexes, at a million rows in random order. A lookup takes half a
// microsecond by hash and three times that in order, so there is a table for Get
// beside the order for Scan. Neither has the keys a second time, as a map would:
// the table is open addressed and compares hashes, the order is leaves of sixty
// rows, of which only the first key is kept. Due rows are in such leaves as well,
// once they are due soon: the earliest leaves in 0.2 µs, where it is 0.6 in an
// indexed heap, and a walk can go on from any place. One over the due rows whose
// body changes some and leaves others would have to pass over all it left behind,
// again after each change, in a heap. Of those that are due later nobody asks
// which is first: they are in rings, one for each second, and to put one off
// takes 0.3 µs, and 1.3 in leaves. So a renewal of a random one of them took 2.2
// µs and takes 1.0, most of it to find the row. What is due within two seconds is
// drawn into the leaves, a thousand rows at a time, by whoever waits for due rows:
// a million may be due at one instant, a ttl after a restart, and while they are
// drawn nobody waits for more than 5 ms. Either way the cost grows with what is
// due, never with what lives.
//
// Memory. A row is 64 bytes, with the links of its ring, its key and value one
// piece of text, its places in the other indexes about 30. With a B-tree of rows,
// a map and the value apart, a claim took 195 bytes beyond its key, and takes 153
// now; recovered, when texts and rows lie side by side, 142.
//
// Recovery. All cores read the store, each a part between two of its tables, and
// get ready what the indexes have of the rows of it: leaves, hashes by their part
// of the table, lists of owners. A Revise looks at the rows on all cores as well,
// and puts them in their rings. Of an Open and a Revise of a million claims, with
// 2.1 and 1.2 times the processor time of a bare scan, that leaves 1.8 times the
// time of the scan on two cores; with one to read and one to fill, and the due rows
// sorted, it was more than four times, and 30 with a Touch of each. Half of a
// Revise was the garbage collector, which marked all that had just been read; so it
// rests until that is through as well. The blocks that are read do not stay in the
// cache: to fill that took a tenth of an Open.
//
// The stream of due rows. A thousand rows that fall due each second, one by one,
// are a thousand transactions with a sync and a wake-up each, which took 17 % of
// a core; told of together, at most a tenth of a second late, 3 %.
//
// A commit. On two cores, one of which the sync has, hardly any transaction came
// while another's commit was being appended, so with 64 goroutines each commit
// was of one. Whoever is about to close one lets others run first, who can: they
// were woken together, by the sync before. That took a fifth off the processor
// time of an Update, with 8 goroutines as with 64.
//
// What was tried and brought nothing: a lock of its own for the open commit,
// so that whoever closes it need not queue up among transactions; and that whoever
// has the lock runs the transactions of all who wait for it, who sleep once, until
// they are durable: they seldom have to wait, as what keeps them is the sync.
package pebble

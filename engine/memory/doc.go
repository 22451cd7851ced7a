// Package memory is the working set of an engine: rows and their indexes in
// memory, transactions, watches and the clocks. It keeps the
// contract of package engine on top of a small [Store].
//
// # Transactions
//
// Every row but the cold ones is in memory, under one lock, so transactions are
// serial and a read costs no I/O. Rows never change; a write puts another row in
// the place of the old one and notes both, so that an error can undo it. The
// rows, and two indexes over them by owner and by due time, are B-trees that
// copy a node when a copy of the tree still uses it. So [Engine.Snapshot] takes
// three roots and a snapshot of the store, and then holds no lock.
//
// # Commits
//
// An Update runs its function against memory and notes what was Put or Deleted. The
// commits that are made at about the same time are a group, which goes to the store
// as one [Batch], in the order of the transactions. Outside the lock the caller waits
// until the last group is durable, and so everything that its transaction was built
// on; any number of callers share an fsync. A transaction that writes nothing durable
// waits for the last group before it, and so tells of nothing that a crash could
// undo.
//
// # What a commit survives
//
// A caller that is a process of this machine (see [engine.Local]) waits until the
// batch survives the daemon. Anybody else waits until it survives the machine,
// also for a batch of a caller of the first kind that it has only seen.
//
// # Cold rows
//
// Cold rows are in the store alone, but for those that the group under way has
// written. A transaction reads them with the lock held, and everybody waits for a disk
// that has to be asked: rules keep small records apart from large ones, and leave the
// large ones to Get, which reads without the lock, or to Read, which waits for no
// group either.
//
// # Failure
//
// A commit that fails leaves memory ahead of the store. There is no way back
// from that but to read the store again, so a failure is final. Whether the
// commits under way at that instant are found afterwards is not known.
//
// # Time
//
// The running clock of a state is a clock of the machine that goes on during
// sleep, plus an offset. The state keeps the reading, the running clock and the
// wall clock of some instant in its record "clock" (see beat), which a commit
// writes down when the last one that did is a second old. Opened again in the
// same life of the machine, the clock goes on by the reading. After a restart of
// the machine it goes on by the wall clock, but never back, and by no more than
// a year.
//
// # The choices not taken
//
// A hash table for Get, rings of due rows, and leaves of sixty rows that share
// memory made a renewal among a million leases take 1.0 µs and a recovery of
// them 1.8 times a bare scan of the store. They were a third of the engine's
// code, nobody has a million leases, and none of them could be copied for a
// snapshot.
//
// That whoever has the lock runs the transactions of all who wait for it brought
// nothing: they seldom wait, as what keeps them is the sync.
//
// A batch for each commit, appended with the lock that its transaction holds, needs no
// group and no place for its cold rows. With 64 workers it takes the processor half
// as long again. Batches that are appended without the lock need a view of several
// that are on their way.
package memory

// Package memory is the working set of an engine: the rows and their indexes in
// memory, transactions, watches and clocks. It implements the contract of
// package engine on top of a small [Store].
//
// This package serves the daemon and is not public: programs use package
// client of this module.
//
// # Transactions
//
// Every row except the cold ones is in memory, under one lock, so transactions
// are serial and a read costs no I/O. Rows never change: a write replaces the
// row by another and notes both, so that an error can undo it. The rows, and
// two indexes over them by owner and by due time, are B-trees that copy a node
// before changing it if a copy of the tree still uses it. So [Engine.Snapshot]
// copies three roots, makes a snapshot of the store, and then holds no lock.
//
// # Commits
//
// An Update runs its function against memory and notes what was Put or Deleted.
// Commits made at about the same time form a group, which goes to the store as
// one [Batch], in the order of the transactions. After releasing the lock, the
// caller waits until the last group is durable, and with it everything that its
// transaction saw. Any number of callers share an fsync. A transaction that
// writes nothing durable waits for the last group before it, so that it never
// reports what a crash could undo.
//
// # What a commit survives
//
// A caller that is a process of this machine (see [engine.Local]) waits until
// its commit survives the daemon. A store that keeps such commits (see
// [Store.Keep]) gets the batch later, and what was put and deleted in between
// is not in it. Every other caller waits until everything it saw survives the
// machine; this includes commits of local callers that it has only read.
//
// # Cold rows
//
// Cold rows are only in the store, except those that the open group has
// written. A transaction reads them with the lock held, so everyone waits if
// the disk must be read. Therefore the rules keep small records apart from
// large ones, and read the large ones with Get, which does not hold the lock.
//
// # Failure
//
// A commit that fails leaves memory ahead of the store. The only remedy is to
// read the store again, so a failure is final. It is unknown whether the
// commits in progress at that moment are in the store.
//
// # Time
//
// The running clock of a state is a clock of the machine that continues during
// sleep, plus an offset. The state keeps the reading, the running clock and the
// wall clock of one instant in its record "clock" (see beat). A commit rewrites
// the record when it is a second old. If the state is opened again without a
// restart of the machine, the clock continues by the reading. After a restart
// of the machine it continues by the wall clock, but never goes back, nor
// forward by more than a year.
//
// # Alternatives not chosen
//
// With a hash table for Get, rings of due rows, and leaves of sixty rows that
// share memory, a renewal among a million leases took 1.0 µs, and their
// recovery 1.8 times a bare scan of the store. These were a third of the
// engine's code, nobody has a million leases, and none of them could be copied
// for a snapshot.
//
// Letting the holder of the lock run the transactions of all that wait for it
// brought no gain: transactions seldom wait for the lock, because most of their
// time goes into the sync.
//
// A reader that is not local waits for the last group. It could be answered sooner,
// once the groups that wrote what it has read are durable. With an fsync of 5 ms,
// a read beside one writer takes 4 ms, and beside eight 10 ms, instead of 3 µs. To
// answer sooner, each transaction would have to note all that it reads, with the ranges in
// which it finds nothing, and each group all that it deletes. No agent notices 10 ms.
//
// A batch for each commit, appended under the transaction's lock, needs no
// group and no place for its cold rows. With 64 workers it takes half as much
// processor time again. Batches appended without the lock would need a view
// over several pending batches.
package memory

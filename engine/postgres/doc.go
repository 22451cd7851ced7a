// Package postgres is the engine for several machines: package memory on top of
// a store in PostgreSQL. This package is the store.
//
// This package serves the daemon and is not public: programs use package
// client of this module.
//
// A state is a partition of a database, and one process at a time leads it.
// That process has the working set in memory and is the only writer. Open takes
// the lead from the previous leader.
//
// # Contract
//
//   - A commit is durable when the database says so. Whether it survives the loss of
//     a machine depends on the database's settings (synchronous_commit, standbys).
//   - Each commit is fenced: it has no effect unless the partition still has the
//     epoch that Open gave it. A process that was superseded learns of it at its next
//     commit, which returns [ErrSuperseded] and ends its engine as a broken disk does.
//   - A lost connection is replaced, and what was in progress is sent again, for as
//     long as Options.Patience allows. A commit takes effect once.
//   - A commit costs one round trip. Commits that arrive during one are sent together
//     in the next, also those of other partitions that the process leads.
//
// # Schema
//
//	leasehold_schema     the version of the schema, one row
//	leasehold_cluster    how many partitions there are, one row
//	leasehold_settled    runs that a copy brought into the first partition; see [Settle]
//	leasehold_server     the servers that are registered
//	leasehold_partition  epoch: how often the partition was opened
//	leasehold_mark       mark: whether the partition's rows are where a leader left them
//	leasehold_log        sequence, batch: what was committed, in order
//	leasehold_record     space, key, value: the content of the log up to some point
//
// A batch in the log is a list of writes:
//
//	byte   space<<1 | deleted
//	uint   the length of the key, and the key
//	uint   the length of the value, and the value, unless it is deleted
//
// # The log and the records
//
// A commit only appends to the log. What the log has beyond the records is also
// in memory, in an overlay, where reads look first. When the overlay is large,
// it is frozen: a new one is started on top, and the frozen one is written to
// the records in bulk and removed from the log, in one transaction that delays
// no commit (see fold.go). What was written and deleted in between never
// reaches the records. Open reads the log into an overlay.
//
// The last row of the log always stays, so that the numbers continue after it.
// Reading it again on top of records that contain it changes nothing.
//
// # Fencing
//
// A commit reads the partition's row at its own epoch FOR SHARE, in the
// statement that appends. Raising the epoch waits for such commits, and later
// ones find no row. So a process that has raised the epoch reads a log to which
// no other process will add.
//
// A commit that is sent again because its answer was lost writes its row again.
// Finding the row would not be enough: with synchronous replication, a commit
// whose wait was cut off may exist on one machine only, and a new write waits
// for all writes before it.
//
// # Time
//
// A state may last have been open on another machine. Then the wall clock says
// nothing about the time that passed, so the running clock continues from its
// last record.
//
// # Alternatives not chosen
//
// Writing the rows themselves in each commit halves the rate of updates that
// delete. Also, a prepared DELETE that was planned on an empty table became ten
// times slower. One SQL transaction for each rule would cost a round trip for
// each of its 10 to 25 reads, and shared rows would serialize all of them.
//
// With a connection and a commit for each partition, a process that leads twelve
// would use more than twice as much of the database's processor for a lease.
package postgres

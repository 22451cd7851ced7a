// Package postgres is the engine for many machines: package memory on top of a
// store in PostgreSQL. This package is the store.
//
// A state is a partition of a database, and one process at a time leads it. It has
// the working set in memory and is the only writer. Open takes the lead, from
// whoever had it.
//
// # Contract
//
//   - A commit is durable when the database says so. Whether that outlives a
//     machine is up to the database's settings (synchronous_commit, standbys).
//   - Each commit is fenced: it does nothing unless the partition still has the
//     epoch that Open gave it. A process that was superseded learns it by its next
//     commit, which answers [ErrSuperseded] and ends its engine as a broken disk does.
//   - A connection that is lost is made again, and what was under way is sent again,
//     for as long as Options.Patience allows. A commit has its effect once.
//   - A commit costs one round trip. Those that come while one is under way go
//     together in the next.
//
// # Schema
//
//	leasehold_schema     the version of the schema, one row
//	leasehold_partition  epoch: how often the partition was opened
//	leasehold_log        sequence, batch: what was committed, in order
//	leasehold_record     space, key, value: what the log said up to some point
//
// A batch in the log is a list of writes:
//
//	byte   space<<1 | deleted
//	uint   the length of the key, and the key
//	uint   the length of the value, and the value, unless it is deleted
//
// # The log and the records
//
// A commit appends to the log alone. What the log says beyond the records is also in
// memory, in an overlay, and reads look there first. When the overlay is large it is
// frozen: a new one is begun on top, and the frozen one is written to the records in
// bulk and taken off the log, in one transaction that holds up no commit (see
// fold.go). What was written and deleted in between never reaches the records. Open
// reads the log into an overlay.
//
// The last row of the log always stays, so that numbers go on behind it. Reading it
// again on top of records that have it changes nothing.
//
// # Fencing
//
// A commit reads the partition's row at its own epoch FOR SHARE, in the statement
// that appends. Raising the epoch waits for such commits, and those that come later
// find no row. So whoever has raised the epoch reads a log that nobody else will
// add to.
//
// A commit that is sent again because its answer was lost writes its row again. That
// it is there already would not be enough to know: with synchronous replication a
// commit whose wait was cut off may be on one machine only, and a new write waits for
// all before it.
//
// # Time
//
// A state may have been open on another machine last. Its wall clock says nothing
// here, so the running clock goes on from the last one that was written down.
//
// # The choices not taken
//
// Writing the rows themselves in each commit costs half the rate of updates that
// delete, and a prepared DELETE whose plan was made on an empty table became ten
// times slower. One SQL transaction for each rule would cost a round trip for each
// of its 10 to 25 reads, and shared rows would serialise everybody.
package postgres

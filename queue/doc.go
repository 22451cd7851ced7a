// Package queue implements durable tasks whose claims are leases.
//
// This package serves the daemon and is not public: programs use package
// client of this module.
//
// A task is enqueued once. It is executed until an execution submits it, or
// until it has used up its attempts. A claim on a task is a lease, in the scope
// "queue". A heartbeat renews it, and a submit is a write that the lease
// fences. The ttl, the end of the session and an operator end a claim by the
// rules of package registry.
//
// # Contract
//
//   - An enqueue, submit or cancel that was answered survives a crash of the
//     machine. A claim survives it unless its holder runs on that machine: then the
//     task is ready again, as if it had not been claimed.
//   - At least once: a task is executed until an execution submits it. At most
//     one claim of a task is live, and only its token can submit. Effects are
//     exactly once if the resource checks the token.
//   - A call that is sent again has no second effect, see package call. Nor has a
//     call that is cancelled before its client has the answer: claimed tasks return to
//     their places, and enqueued ones are removed. A finished task stays finished.
//   - An attempt is counted once, when the execution begins.
//   - Order: priority, then first in first out, over all the queues that a claim
//     names. A task that comes back goes to the end of its line, unless its claim
//     was undone.
//   - Claims that wait for a task are served in the order in which they asked, in
//     the transaction that makes the task ready.
//   - A finished task is final: no late submit, expiry or reaper changes it. A
//     second submission with another result is refused. Only a dead task can be
//     retried, by a redrive.
//   - An idempotency key is kept as long as its task, and for at least 24 h. It
//     belongs to the payload's JSON: white space and the order of names in an
//     object make no difference. Nor do they in the result of a second submission.
//   - The tasks of one enqueue are written all together or not at all.
//   - Delays and claims use the engine's running clock, so a step of the wall clock
//     does not move them. run_at and retention use the wall clock.
//   - A task whose record cannot be read is set aside, and its line goes on. A call
//     that names it gets the error, and Check reports it. Entries of an index that
//     the store cannot read are skipped: the tasks behind them are claimed, and the
//     skipped ones can be read and cancelled by their ids. That lasts until the
//     store compacts the damaged block; then the engine fails with the cause. An
//     account that cannot be read makes Recover fail.
//
// # States
//
//	                ┌────────────── delay ──────────────┐
//	                ▼                                   │
//	enqueue ──▶ delayed ──due──▶ ready ──claim──▶ in_progress ──submit──▶ completed
//	   │            │              ▲ │                │ │ │      └──────▶ failed
//	   └────────────┼──────────────┘ │                │ │ └─ nack, abandon, expiry, session end:
//	                │                │                │ │      attempts left: delayed or ready
//	                └───── cancel ───┴──── cancel ────┘ │      none left: dead
//	                          ▼                         │
//	                      cancelled                     └────▶ dead ──redrive──▶ ready
//
// # Key schema
//
// In keys, a queue's name is the 16 bytes of its run's id followed by its own
// name.
//
//	queue/<name>                          account: counts by state, bytes, the last place given, lower bounds of the ready lines; due when something in the queue is
//	queues/<run or actor>                 how many queues a run has, or an actor began; memory only
//	lease/queue␀<id>                      the claim, see package registry
//	answer/<call>                         the answer of a claim, enqueue or nack, see package call
//	waiter/<name>␀<number>                a claim that waits at a queue; memory only
//	paused/<name>                         a queue that is paused, and why
//	replan                                the queue from which to go on planning after the wall clock was set; memory only
//	cursor/~<index>                       lower bound of an index by time; memory only
//	drop/<run>                            a run that was removed; due until its queues are
//	~payload/<id>                         the payload without white space; then the record, until the task first changes
//	~task/<id>                            record: state, attempts, place, and a small result
//	~result/<id>                          a larger result
//	~ready/<name>␀<9-priority><place>     id and record: a claim reads no other row of the task
//	~delayed/<name>␀<due><id>             running clock
//	~timed/<name>␀<due><id>               wall clock: run_at
//	~completed/<name>␀<until><id>         wall clock: when it may be forgotten; also ~failed/, ~dead/ and ~cancelled/
//	~corrupt/<name>␀<until><id>           tasks that were set aside
//	~key/<name>␀<idempotency key>         id, and the canonical payload's hash
//
// Rows whose keys start with ~ are cold: they are on disk only, so a backlog of
// any length takes no memory. Names are checked so that none contains a
// separator. Ids are 16 raw bytes. Those of tasks increase with time, so that
// the rows of tasks that were enqueued together are stored together.
//
// # Alternatives not chosen
//
// A single index for all delayed tasks, by the running clock, would need a new
// entry for each task with a run_at whenever the wall clock is stepped. With an
// index for each clock, a step only makes each queue be checked. A row for the
// next instant of each queue, sorted by the wall clock, would avoid that check,
// but needed more code than it was worth.
//
// A claim could find its task by a scan from the start of the line. But until
// the store has compacted deleted entries away, it skips them one by one. So
// each index has a lower bound. After a restart the bound of an index by time
// is unknown, and its first scan skips the deleted entries once.
package queue

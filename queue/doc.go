// Package queue is durable tasks whose claims are leases.
//
// A task is enqueued once and executed until it is submitted, or until as many
// executions as it may have were begun. Whoever claims a task holds a lease on
// it, scope "queue". Heartbeat is renew, and submit is a write that the lease
// gates. The ttl, the end of the session and an operator end a claim by the rules
// of package registry.
//
// # Contract
//
//   - An enqueue, submit or cancel that was answered survives a crash of the
//     machine. A claim survives it unless its holder is of that machine: then the
//     task is ready again as if it had not been claimed.
//   - At least once: a task is executed until an execution submits it. At most
//     one claim of a task is live, and only its token can submit. Effects are
//     exactly once where the resource checks the token.
//   - A call that is sent again has no second effect, see package call. One that is
//     cancelled before its client has the answer has none: its tasks are where they
//     were, or were never enqueued. What finished a task stands.
//   - An attempt is counted once, when the execution begins.
//   - Order: priority, then first in first out, over all the queues that a claim
//     names. A task that comes back goes to the end of its line, unless its claim
//     was undone.
//   - Claims that wait for a task are served in the order of asking, in the
//     transaction that makes the task ready.
//   - A finished task absorbs: no late submit, expiry or reaper changes it. A second
//     submission with another result is refused.
//   - An idempotency key is kept as long as its task, and for 24 h at least. It
//     belongs to the payload's compact JSON, so white space makes no difference.
//   - The tasks of one enqueue are there as a whole or not at all.
//   - Delays and claims run on the engine's running clock, so no step of the wall
//     clock moves them. run_at and retention follow the wall clock.
//   - A task whose record cannot be read is set aside, and its line goes on.
//     Whoever asks for it is told, and Check reports it. Entries of an index that
//     the store cannot read are passed over: the tasks behind them are claimed, and
//     those of the entries can be read and cancelled by their ids. An account that
//     cannot be read makes Recover fail.
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
// A queue's name follows the 16 bytes of its run's id in keys.
//
//	queue/<name>                          account: counts by state, bytes, the last place given, lower bounds of the ready lines; due when the queue is to be looked at
//	queues/<run or actor>                 how many queues a run has, or an actor began; memory only
//	lease/queue␀<id>                      the claim, see package registry
//	answer/<call>                         the answer of a claim, enqueue or nack, see package call
//	waiter/<name>␀<number>                a claim that waits at a queue; memory only
//	paused/<name>                         a queue that is paused, and why
//	replan                                the queue from which on all are to be looked at, because the wall clock was set; memory only
//	cursor/~<index>                       lower bound of an index by time; memory only
//	drop/<run>                            a run that has gone, due until its queues have
//	~payload/<id>                         as it was enqueued, without white space; then the record, while it is as enqueued
//	~task/<id>                            record: state, attempts, place, and a small result
//	~result/<id>                          a larger one
//	~ready/<name>␀<9-priority><place>     id and record: a claim reads no other row of the task
//	~delayed/<name>␀<due><id>             running clock
//	~timed/<name>␀<due><id>               wall clock: run_at
//	~completed/<name>␀<until><id>         wall clock: when it may be forgotten; also ~failed/, ~dead/ and ~cancelled/
//	~corrupt/<name>␀<until><id>           tasks that were set aside
//	~key/<name>␀<idempotency key>         id, and the payload's hash
//
// What starts with ~ is cold: it is on disk alone, so a backlog of any length
// takes no memory. Names are checked so that none contains a separator. Ids are 16
// raw bytes, and those of tasks rise with time: rows of tasks that came together
// are stored together.
//
// # The choices not taken
//
// One index for all delayed tasks, by the running clock, needs a new entry for
// each task with a run_at whenever the wall clock is stepped. With an index for
// each clock a step only has each queue looked at. A row for the next instant of
// each queue, sorted by the wall clock, spares that, and needed more code than it
// was worth.
//
// A claim could find its task by a scan from the start of the line. The store
// passes over what was deleted one by one, until it has compacted it away. So each
// index has a lower bound. After a restart that of an index by time is unknown, and
// the first scan passes over once.
package queue

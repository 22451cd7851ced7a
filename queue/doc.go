// Package queue is durable tasks whose claims are leases.
//
// A task is enqueued once and executed until it is submitted, or until it has
// begun as often as it may. Whoever claims a task holds a lease on it, scope
// "queue": heartbeat is renew, submit is a write that the lease gates, and the
// end of the session, the ttl or an operator free it by the one set of rules
// in package registry.
//
// # Contract
//
//   - An acknowledged enqueue, submit or cancel survives a crash. A payload is
//     written once and never again.
//   - At least once: a task is executed until an execution submits it. At most
//     one claim of a task is live, and only its token can submit. Effects are
//     exactly once where the resource checks the token.
//   - An attempt is counted once, when the execution begins.
//   - Order: priority, then first in first out, over all the queues that a
//     claim names. A task that comes back goes to the end of its line, but one
//     whose claim was cancelled before it was answered has its place again.
//   - Whoever waits for a task is served in the order of asking, in the
//     transaction that makes the task ready.
//   - A finished task absorbs: no late submit, expiry or reaper changes it.
//   - An idempotency key is kept as long as its task, and that 24 h at least. It
//     knows a payload by its compact JSON: white space makes no other one.
//   - What is enqueued in one call is there as a whole or not at all.
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
// A queue's name stands in keys behind the 16 bytes of its run's id.
//
//	queue/<name>                          account: counts by state, where the ready lines begin; due at the next delay or retention to end
//	queue                                 the last place given in any line
//	lease/queue␀<id>                      the claim, see package registry
//	claimant/<name>␀<place>               who waits at a queue, memory only, owner session
//	given/<call>                          what who waited was handed, memory only, owner session
//	claim/<session><request id>           what an idempotent claim was given, owner session, due when it may be forgotten
//	cursor/~<index>                       before what nothing stands in an index by time, memory only
//	front/~ready/<name>␀<9-priority>      what stands next in a long line, memory only
//	drop/<name>                           a queue whose run has gone, due until the last of it is
//	~payload/<id>                         as it was enqueued, without white space; behind it the record, if it is in no other row yet
//	~task/<id>                            record: state, attempts, where the task stands, and a small result
//	~result/<id>                          a larger one
//	~ready/<name>␀<9-priority><place>     id and record: a claim reads no other row
//	~delayed/<name>␀<due><id>
//	~finished/<name>␀<until><id>          when it may be forgotten
//	~dead/<name>␀<until><id>              the dead among those
//	~key/<name>␀<idempotency key>         id and the payload's hash
//
// What starts with ~ is cold: on disk alone, so a backlog of any length takes
// no memory. Names are checked so that none holds a separator; ids are 16 raw
// bytes, and those of tasks rise with time: what comes together lies together.
//
// # Indexes that are taken from the front
//
// The store passes over what was deleted one by one, until it has compacted it
// away. So whoever looks for the first task begins where the queue's account
// says, and for the first delay or retention at a cursor, which a restart finds
// at the beginning, to pass over once.
//
// Even from there it costs the store more to find one entry than to read on to
// the next, and so it does with payloads. So a claim of one task from a line of
// more than 64 reads that many, and leaves them to the claims that follow: the
// line's front. It is a row, so that what undoes a transaction undoes what the
// transaction made of it.
//
// Claims that end by their ttl in one transaction are mostly of tasks that came
// together. So whoever tends reads on as well, from the record of the first to
// those close by, and leaves the others to be found one by one.
package queue
